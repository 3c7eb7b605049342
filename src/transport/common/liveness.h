#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "hawser/error.h"
#include "hawser/transport/stream.h"

namespace hawser::transport {

// The stream beside a data transport: its end tells that the peer is gone, after one byte if only the transport is.
// Belongs to a connection, on its loop.
class Liveness final : StreamSink {
 public:
  // `ended` is told once, from within the stream, and must not destroy this: the peer is gone or breaks the silence
  // (ErrorScope::connection), or its half of the transport broke while it lives (ErrorScope::transport).
  Liveness(std::unique_ptr<Stream> stream, std::function<void(const Error& reason)> ended);
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  std::string peer() const { return peer_; }
  // Closes the stream, so that the peer is told, also of a transport that broke at our end; `ended` is not. May be
  // called from within `ended`, and again.
  enum class Why : std::uint8_t { ended, transport_broke };
  void close(Why why = Why::ended) noexcept;

 private:
  MutableBytes receive_space() override { return MutableBytes(space_); }
  void received(std::size_t bytes) override;
  void sendable(std::size_t) override {}
  void ended(const Error& reason) override;

  std::unique_ptr<Stream> stream_;
  std::function<void(const Error& reason)> ended_;
  std::string peer_;
  bool closed_ = false;
  std::array<std::byte, 16> space_{};
};

}  // namespace hawser::transport
