#include <exception>
#include <memory>
#include <stop_token>
#include <utility>

#include "base/try.h"
#include "hawser/detail/loop_access.h"
#include "protocol/grpc/client_session.h"
#include "protocol/grpc/server_session.h"

// Decompresses messages on a thread of the offload pool: a few KiB may become megabytes, which take milliseconds.
namespace hawser::protocol::grpc {
namespace {

// A token of `stop`, which gets a state when the first message needs one.
std::stop_token token_of(std::stop_source& stop) {
  if (!stop.stop_possible()) stop = std::stop_source();
  return stop.get_token();
}

// A message that waits for a thread is dropped when a stop is requested.
Task<Result<Buffer>> offload_unpack(Loop& loop, const void* connection, std::stop_token stopped, PackedMessage packed) {
  auto work = [kept = std::move(packed)] { return unpack(kept); };
  CO_TRY(Result<Buffer>&& message,
         co_await detail::LoopAccess::offload_for(loop, connection, std::move(stopped), std::move(work)));
  co_return message;
}

}  // namespace

// ---- Server ----

bool Http2ServerSession::on_packed(std::uint32_t call, PackedMessage&& packed, detail::ReceiveCharge&& charge) {
  unpacking_.spawn(unpack_later(call, std::move(packed), std::move(charge)));
  return true;
}

Task<void> Http2ServerSession::unpack_later(std::uint32_t call, PackedMessage packed, detail::ReceiveCharge charge) {
  try {
    Result<Buffer> message = co_await offload_unpack(host().loop, this, token_of(unpacking_stop_), std::move(packed));
    charge.reset();
    if (closed()) co_return;
    machine_.unpacked(call, std::move(message));
    if (!closed()) send_soon();
  } catch (const std::exception&) {
    fail_connection();
  }
}

// ---- Client ----

// The end of a call may destroy the session, whose tasks must not do that: the loop delivers the message. It is
// allocated in advance, because a call must be able to end without memory.
struct GrpcClientSession::Delivery final : detail::Posted {
  Delivery(std::weak_ptr<GrpcClientSession> to, std::uint32_t id) noexcept : weak(std::move(to)), call(id) {}
  void run() override {
    const std::shared_ptr<GrpcClientSession> session = weak.lock();
    if (session == nullptr || session->stream_.closed()) return;
    try {
      session->machine_.unpacked(call, std::move(message));
      session->send_soon();
    } catch (const std::exception&) {
      session->end(Error::of_connection(ErrorCode::internal, "out of memory"));
    }
  }
  const std::weak_ptr<GrpcClientSession> weak;
  const std::uint32_t call;
  Result<Buffer> message;
};

bool GrpcClientSession::on_packed(std::uint32_t call, PackedMessage&& packed, detail::ReceiveCharge&&) {
  unpacking_.spawn(unpack_later(std::make_unique<Delivery>(weak_from_this(), call), std::move(packed)));
  return true;
}

Task<void> GrpcClientSession::unpack_later(std::unique_ptr<Delivery> delivery, PackedMessage packed) {
  try {
    delivery->message = co_await offload_unpack(loop_, this, token_of(unpacking_stop_), std::move(packed));
  } catch (const std::exception&) {
    delivery->message = fail(Error::of_call(ErrorCode::internal, "out of memory"));
  }
  loop_.post(std::unique_ptr<detail::Posted>(std::move(delivery)));
}

}  // namespace hawser::protocol::grpc
