#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <string_view>

#include "hawser/transport/stream.h"

namespace hawser::pipe {

// Controls a ScriptedStream and records what happened to it. Must outlive the stream.
struct StreamScript {
  transport::StreamSink* sink = nullptr;
  std::string peer = "peer:1";
  std::string sent;
  std::deque<std::size_t>
      take;  // Bytes that each of the next sends accepts; a send accepts everything when it is empty.
  bool paused = false;
  bool finished = false;
  int sends = 0;

  // Passes `text` to the sink, at most `step` bytes at a time, until the stream is paused. Returns the rest.
  std::string deliver(std::string_view text, std::size_t step = SIZE_MAX) {
    while (!text.empty() && !paused) {
      const MutableBytes space = sink->receive_space();
      const std::size_t size = std::min({text.size(), step, space.size()});
      std::memcpy(space.data(), text.data(), size);
      text.remove_prefix(size);
      sink->received(size);
    }
    return std::string(text);
  }
};

class ScriptedStream : public transport::Stream {
 public:
  explicit ScriptedStream(StreamScript& script) noexcept : script_(script) {}
  void start(Loop&, transport::StreamSink& sink) override { script_.sink = &sink; }
  void set_sink(transport::StreamSink& sink) noexcept override { script_.sink = &sink; }
  std::size_t send(std::span<const ConstBuffer> pieces) override {
    ++script_.sends;
    std::size_t left = SIZE_MAX;
    if (!script_.take.empty()) {
      left = script_.take.front();
      script_.take.pop_front();
    }
    std::size_t taken = 0;
    for (const ConstBuffer& piece : pieces) {
      const std::size_t size = std::min(piece.size, left - taken);
      script_.sent.append(reinterpret_cast<const char*>(piece.data), size);
      taken += size;
    }
    return taken;
  }
  void pause() noexcept override { script_.paused = true; }
  void resume() override { script_.paused = false; }
  void finish() noexcept override { script_.finished = true; }
  std::string_view transport() const noexcept override { return "scripted"; }
  std::string peer() const override { return script_.peer; }
  std::string local() const override { return "local:2"; }

 private:
  StreamScript& script_;
};

}  // namespace hawser::pipe
