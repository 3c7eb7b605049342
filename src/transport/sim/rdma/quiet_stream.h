#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hawser/transport/stream.h"
#include "transport/common/gather.h"

namespace hawser::transport {

// The byte stream beside a connection of a simulated device. It discards what is sent, receives nothing and never ends.
class QuietStream final : public Stream {
 public:
  void start(Loop&, StreamSink&) override {}
  void set_sink(StreamSink&) noexcept override {}
  std::size_t send(std::span<const ConstBuffer> pieces) override { return total_bytes(pieces); }
  void pause() noexcept override {}
  void resume() override {}
  void finish() noexcept override {}
  std::string_view transport() const noexcept override { return "sim"; }
  std::string peer() const override { return "peer"; }
  std::string local() const override { return "local"; }
};

}  // namespace hawser::transport
