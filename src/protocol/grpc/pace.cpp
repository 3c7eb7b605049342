#include <algorithm>
#include <chrono>
#include <string>

#include "protocol/grpc/server_session.h"

// Bounds the time for which responses wait for a client that does not take them.
namespace hawser::protocol::grpc {
namespace {

// A client must take so many bytes of a stream, or all that wait there, within write_timeout.
constexpr std::size_t taken_bytes_least = 16 * 1024;

}  // namespace

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
  machine_.for_each([&](Http2Stream& stream) {
    if (stream.plain != plain || !stream.open) return;
    any = true;
    const std::uint64_t taken = stream.out_taken - stream.checked_taken;
    const std::size_t wanted = stream.checked_wanted;
    stream.checked_taken = stream.out_taken;
    stream.checked_wanted = std::min(stream.out_bytes, taken_bytes_least);
    if (taken >= wanted || !machine_.reset(stream, http2_cancel)) return;
    // The reset itself may have to wait for the client.
    if (!stream.busy) return;
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(write_timeout(plain));
    give_up(stream, "the client has taken " + std::to_string(taken) + " of the " + std::to_string(wanted) +
                        " bytes of the response that it must take within " + std::to_string(limit.count()) +
                        " ms (write_timeout): it must read faster, or the option must be raised");
  });
  if (any) start_pace(plain);
  if (!closed()) send_soon();
}

}  // namespace hawser::protocol::grpc
