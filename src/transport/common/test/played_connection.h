#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"
#include "hawser/error.h"
#include "hawser/transport/connection.h"
#include "transport/common/link_facts.h"
#include "transport/common/payload_memory.h"

namespace hawser::transport {

// A connection that keeps what is sent. The test delivers messages to `above`.
class PlayedConnection final : public Connection, public LinkFactsSource, public PayloadMemory {
 public:
  struct Sent {
    std::vector<std::byte> head;
    std::vector<std::byte> payload;
    bool in_place = false;
  };
  std::byte* reserve_payload(std::size_t bytes) noexcept override {
    if (!has_place) return nullptr;
    place.assign(bytes, std::byte{0});
    return place.data();
  }
  std::string_view transport() const noexcept override { return "played"; }
  Capabilities capabilities() const noexcept override {
    return {.head_bytes_max = 1 << 20, .message_bytes_max = 1 << 20, .remote_memory = true};
  }
  std::string peer() const override { return "the test"; }
  std::string link_details() const override { return "credits 7"; }
  std::optional<LinkFacts> link_facts() const noexcept override { return LinkFacts{.retransmissions = 3}; }
  void start(MessageSink& sink) override { above = &sink; }
  std::byte* reserve(std::size_t head_bytes) override {
    if (full) return nullptr;
    reserved_.assign(head_bytes, std::byte{0});
    return reserved_.data();
  }
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) override {
    Sent& one = sent_messages.emplace_back();
    one.in_place = payload.size() == 1 && owner == nullptr && payload.front().data == place.data();
    one.head.assign(reserved_.begin(), reserved_.begin() + static_cast<std::ptrdiff_t>(head_bytes));
    for (const ConstBuffer& piece : payload) one.payload.insert(one.payload.end(), piece.data, piece.data + piece.size);
    if (owner != nullptr && holds) held.push_back(owner);
    if (owner != nullptr && !holds) owner->on_send_complete();
  }
  void copy_and_release(SendCompletion&) override {}
  void revoke_receive_buffer(const std::byte*) noexcept override {}
  std::uint64_t committed() const noexcept override { return 0; }
  std::uint64_t sent() const noexcept override { return 0; }
  std::uint64_t arrived() const noexcept override { return 0; }
  std::size_t backlog() const noexcept override { return waiting; }
  void set_high_watermark(std::size_t bytes) noexcept override { marks.push_back(bytes); }
  void pause() noexcept override {}
  void resume() override {}
  bool paused() const noexcept override { return false; }
  void flush() override {
    ++flushes;
    waiting = std::min(waiting, flush_leaves);
    if (on_flush) on_flush();
  }
  void close() override {}
  void abort() noexcept override { aborted = true; }

  MessageSink* above = nullptr;
  std::vector<Sent> sent_messages;
  std::vector<SendCompletion*> held;
  bool full = false;  // reserve() has no memory.
  bool holds = false;
  bool has_place = false;
  std::vector<std::byte> place;
  bool aborted = false;
  std::size_t waiting = 0;              // The backlog.
  std::size_t flush_leaves = SIZE_MAX;  // A flush sends the backlog down to this.
  std::function<void()> on_flush;
  std::size_t flushes = 0;
  std::vector<std::size_t> marks;  // Passed to set_high_watermark().

 private:
  std::vector<std::byte> reserved_;
};

// A session above a connection. It keeps what it receives.
struct PlayedSink final : MessageSink {
  void on_message(const Message& message) override {
    heads.emplace_back(as_text(message.head));
    payloads.emplace_back(as_text(message.payload));
    discarded.push_back(message.discarded);
    cut.push_back(message.cut);
  }
  ReceiveBuffer select_receive_buffer(Bytes head, std::size_t) override {
    asked.emplace_back(as_text(head));
    return selected;
  }
  detail::ReceiveAccount* receive_account() noexcept override { return account; }
  void on_drained() override { ++drained; }
  void on_closed(const Error& reason) override {
    closed = reason.text;
    ++ends;
  }

  std::vector<std::string> heads;
  std::vector<std::string> payloads;
  std::vector<bool> discarded;
  std::vector<bool> cut;
  std::vector<std::string> asked;
  ReceiveBuffer selected;
  detail::ReceiveAccount* account = nullptr;
  std::string closed;
  std::size_t ends = 0;  // Calls of on_closed().
  std::size_t drained = 0;
};

}  // namespace hawser::transport
