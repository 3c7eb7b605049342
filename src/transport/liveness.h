#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "hawser/error.h"
#include "transport/stream.h"

namespace hawser::transport {

// The stream beside a data path: carries nothing any more, and its end tells that the peer is gone. Belongs to a
// connection, on its loop.
class Liveness final : StreamSink {
 public:
  // `ended` is told once when the peer is gone or breaks the silence, from within the stream: it must not destroy this.
  Liveness(std::unique_ptr<Stream> stream, std::function<void(const Error& reason)> ended);
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  std::string peer() const { return peer_; }
  // Closes the stream, so that the peer is told; `ended` is not. May be called from within `ended`.
  void close() noexcept;

 private:
  MutableBytes receive_space() override { return MutableBytes(space_); }
  void received(std::size_t bytes) override;
  void sendable(std::size_t) override {}
  void ended(const Error& reason) override;

  std::unique_ptr<Stream> stream_;
  std::function<void(const Error& reason)> ended_;
  std::string peer_;
  std::array<std::byte, 16> space_{};
};

}  // namespace hawser::transport
