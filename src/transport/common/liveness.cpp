#include "transport/common/liveness.h"

#include <utility>

#include "base/error_without_throwing.h"

namespace hawser::transport {
namespace {

constexpr std::byte transport_broke_byte{1};

}  // namespace

Liveness::Liveness(std::unique_ptr<Stream> stream, std::function<void(Error reason)> ended)
    : stream_(std::move(stream)), ended_(std::move(ended)), peer_(stream_->peer()) {
  stream_->set_sink(*this);
  stream_->resume();
}

void Liveness::received(std::size_t bytes) {
  if (bytes == 0) return;
  if (bytes == 1 && space_[0] == transport_broke_byte) {
    return end(error_without_throwing(Initiator::peer, ErrorScope::transport, ErrorCode::unavailable,
                                      "it broke at the peer's end"));
  }
  end(error_without_throwing(Initiator::peer, ErrorScope::connection, ErrorCode::protocol_error,
                             "the peer sent bytes on the stream although a data path carries the messages"));
}

void Liveness::ended(const Error& reason) {
  end(error_without_throwing(reason.initiator, reason.scope, reason.code, reason.text));
}

void Liveness::end(Error reason) {
  if (const auto callback = std::exchange(ended_, nullptr)) callback(std::move(reason));
}

// The stream is closed here and destroyed together with this object, because the stream may be in the call stack.
void Liveness::close(Why why) noexcept {
  ended_ = nullptr;
  if (std::exchange(closed_, true)) return;
  if (why == Why::transport_broke) {
    const ConstBuffer byte{&transport_broke_byte, 1};
    stream_->send(std::span(&byte, 1));
  }
  stream_->pause();
  stream_->finish();
}

}  // namespace hawser::transport
