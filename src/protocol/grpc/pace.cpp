#include <algorithm>
#include <chrono>
#include <string>

#include "protocol/grpc/server_session.h"
#include "protocol/http2/error_codes.h"

// Bounds the time for which responses wait for a client that does not take them.
namespace hawser::protocol::grpc {

Duration Http2ServerSession::write_timeout(bool plain) const noexcept {
  constexpr Duration least = std::chrono::milliseconds(1);
  return std::max(least, plain ? http_->write_timeout() : options_.write_timeout);
}

void Http2ServerSession::start_pace(bool plain) {
  const Duration interval = write_timeout(plain);
  Timer& timer = plain ? static_cast<Timer&>(plain_pace_) : calls_pace_;
  if (interval < forever) timer.start(host().loop, host().loop.after(interval));
}

// A client that does not open the window of a stream would keep the response, and the handler that sends it, for ever.
void Http2ServerSession::check_pace(bool plain) {
  if (closed()) return;
  bool any = false;
  machine_.for_each([&](GrpcStream& stream) {
    if (stream.plain != plain || !stream.open) return;
    any = true;
    const auto missed = stream.pace.check(stream.out);
    if (!missed || !machine_.reset(stream, http2::cancel)) return;
    // The reset itself may have to wait for the client.
    if (!stream.busy) return;
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(write_timeout(plain));
    give_up(stream, "the client has taken " + std::to_string(missed->taken) + " of the " +
                        std::to_string(missed->wanted) + " bytes of the response that it must take within " +
                        std::to_string(limit.count()) +
                        " ms (write_timeout): it must read faster, or the option must be raised");
  });
  if (any) start_pace(plain);
  if (!closed()) send_soon();
}

}  // namespace hawser::protocol::grpc
