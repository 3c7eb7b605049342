#include "pipe/null_sink.h"

#include <array>

namespace hawser::pipe {

MutableBytes discard_buffer() noexcept {
  static thread_local std::array<std::byte, 64 * 1024> memory;
  return memory;
}

transport::StreamSink& null_sink() noexcept {
  struct Nobody final : transport::StreamSink {
    MutableBytes receive_space() override { return discard_buffer(); }
    void received(std::size_t) override {}
    void sendable(std::size_t) override {}
    void ended(const Error&) override {}
  };
  static Nobody sink;
  return sink;
}

}  // namespace hawser::pipe
