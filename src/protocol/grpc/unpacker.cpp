#include "protocol/grpc/unpacker.h"

#include "base/try.h"
#include "hawser/detail/loop_access.h"

namespace hawser::protocol::grpc {

Task<Result<Buffer>> Unpacker::unpack(PackedMessage packed) {
  if (!stop_.stop_possible()) stop_ = std::stop_source();
  auto work = [kept = std::move(packed)] { return grpc::unpack(kept); };
  CO_TRY(Result<Buffer>&& message,
         co_await detail::LoopAccess::offload_for(loop_, connection_, stop_.get_token(), std::move(work)));
  co_return message;
}

}  // namespace hawser::protocol::grpc
