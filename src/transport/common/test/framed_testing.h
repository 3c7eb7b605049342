#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/little_endian.h"
#include "exec/sim_poller.h"
#include "hawser/loop.h"
#include "pipe/test/scripted_stream.h"
#include "transport/common/framed_connection.h"

namespace hawser::transport {

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
