#include "protocol/grpc/unpacker.h"

#include "base/try.h"
#include "hawser/detail/loop_access.h"
#include "rpc/session/work_charge.h"

namespace hawser::protocol::grpc {

Task<Result<Buffer>> Unpacker::unpack(PackedMessage packed, const detail::ReceiveAccount* account,
                                      detail::ReceiveCharge charge) {
  if (!stop_.stop_possible()) stop_ = std::stop_source();
  rpc::WorkCharge paid;
  if (account != nullptr) paid.acquire(*account, std::move(charge), packed.bytes_max + packed.bytes.size());
  auto work = [kept = std::move(packed), use = paid.use()]() mutable {
    const rpc::WorkCharge::Use used = std::move(use);
    used.begin();
    return grpc::unpack(kept);
  };
  Result<Result<Buffer>> unpacked =
      co_await detail::LoopAccess::offload_for(loop_, connection_, stop_.get_token(), std::move(work));
  paid.reset();
  CO_TRY(Result<Buffer>&& message, std::move(unpacked));
  co_return message;
}

}  // namespace hawser::protocol::grpc
