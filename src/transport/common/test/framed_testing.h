#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/little_endian.h"
#include "exec/sim_poller.h"
#include "hawser/loop.h"
#include "hawser/transport/stream.h"
#include "transport/common/framed_connection.h"

namespace hawser::transport {

// Controls a ScriptedStream and records what happened to it. Must outlive the stream.
struct StreamScript {
  StreamSink* sink = nullptr;
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

class ScriptedStream final : public Stream {
 public:
  explicit ScriptedStream(StreamScript& script) noexcept : script_(script) {}
  void start(Loop&, StreamSink& sink) override { script_.sink = &sink; }
  void set_sink(StreamSink& sink) noexcept override { script_.sink = &sink; }
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

// Returns a message as it is on the stream (docs/wire-format.md, "Messages on a byte stream").
inline std::string framed(std::string_view head, std::string_view payload = {}) {
  std::string text(8, '\0');
  const auto to = reinterpret_cast<std::byte*>(text.data());
  store_le(to, static_cast<std::uint32_t>(head.size()));
  store_le(to + 4, static_cast<std::uint32_t>(payload.size()));
  return text.append(head).append(payload);
}

// Returns a string of `size` bytes in which neighbouring bytes differ.
inline std::string patterned(std::size_t size, unsigned seed = 1) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * 131 + i / 256 * 17 + seed) & 0xff);
  return text;
}

// Records the messages that a connection delivers, and selects receive buffers as the test has set it up.
struct RecordingSink final : MessageSink {
  struct Received {
    std::string head;
    std::string payload;
    bool discarded;
    bool operator==(const Received&) const = default;
  };
  void on_message(const Message& message) override {
    messages.push_back({std::string(as_text(message.head)), std::string(as_text(message.payload)), message.discarded});
    kept.push_back(message.keep_head());
    kept.push_back(message.keep_payload());
    if (message.payload.data() == given.data() && !given.empty()) ++in_given;
    if (pause_after != 0 && messages.size() % pause_after == 0) connection->pause();
  }
  ReceiveBuffer select_receive_buffer(Bytes head, std::size_t payload_bytes) override {
    selected.emplace_back(as_text(head));
    if (receive_buffer == ReceiveBuffer::Kind::given) given.resize(payload_bytes);
    return {receive_buffer, receive_buffer == ReceiveBuffer::Kind::given ? MutableBytes(given) : MutableBytes()};
  }
  void on_drained() override { ++drained; }
  void on_closed(const Error& reason) override { closed.push_back(reason); }

  Connection* connection = nullptr;
  std::vector<Received> messages;
  std::vector<Buffer> kept;
  std::vector<std::string> selected;  // The heads with which select_receive_buffer() was called.
  ReceiveBuffer::Kind receive_buffer = ReceiveBuffer::Kind::own;
  std::vector<std::byte> given;
  int in_given = 0;
  int drained = 0;
  std::vector<Error> closed;
  std::size_t pause_after = 0;  // Number of messages; 0: never pauses.
};

}  // namespace hawser::transport
