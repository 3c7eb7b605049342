#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "hawser/error.h"
#include "hawser/transport/stream.h"

namespace hawser::transport {

// The byte stream beside a data transport. The stream's end shows that the peer is gone. One byte before the end shows
// that only the transport has failed. The connection owns the object and uses it on its loop.
class Liveness final : StreamSink {
 public:
  // `ended` is called at most once, from within a function of the stream, and must neither destroy this object nor
  // throw: the poller is in the call stack. Without memory for it, the text of the reason is "out of memory". The
  // reason has ErrorScope::connection if the peer is gone or sent unexpected bytes, and ErrorScope::transport if the
  // peer's transport failed while the peer lives.
  Liveness(std::unique_ptr<Stream> stream, std::function<void(Error reason)> ended);
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  std::string peer() const { return peer_; }
  // Closes the stream, which notifies the peer; with Why::transport_broke the peer learns that only the transport has
  // failed. `ended` is not called. May be called from within `ended`, and more than once.
  enum class Why : std::uint8_t { ended, transport_broke };
  void close(Why why = Why::ended) noexcept;

 private:
  MutableBytes receive_space() override { return MutableBytes(space_); }
  void received(std::size_t bytes) override;
  void sendable(std::size_t) override {}
  void ended(const Error& reason) override;
  void end(Error reason);

  std::unique_ptr<Stream> stream_;
  std::function<void(Error reason)> ended_;
  std::string peer_;
  bool closed_ = false;
  std::array<std::byte, 16> space_{};
};

}  // namespace hawser::transport
