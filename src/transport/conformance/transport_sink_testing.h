#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "hawser/transport/connection.h"

namespace hawser::transport {

// Records what a connection delivers. Only its loop may use it, except `count`.
struct TransportSink final : MessageSink {
  struct Received {
    std::string head;
    std::string payload;
    bool discarded = false;
    bool operator==(const Received&) const = default;
  };
  void on_message(const Message& message) override {
    EXPECT_TRUE(closed.empty()) << "a message after the end";
    EXPECT_TRUE(connection == nullptr || !connection->paused()) << "a message while paused";
    if (record) messages.push_back({text_of(message.head), text_of(message.payload), message.discarded});
    if (keep) {
      kept.push_back(message.keep_head());
      kept.push_back(message.keep_payload());
    }
    if (on_each) on_each(message);
    count.fetch_add(1);
  }
  ReceiveBuffer select_receive_buffer(Bytes head, std::size_t payload_bytes) override {
    EXPECT_TRUE(closed.empty()) << "a placement after the end";
    ++selected;
    return where ? where(head, payload_bytes) : ReceiveBuffer{};
  }
  hawser::detail::ReceiveAccount* receive_account() noexcept override { return account; }
  void on_drained() override {
    ++drained;
    if (on_each_drained) on_each_drained();
  }
  void on_closed(const Error& reason) override {
    EXPECT_TRUE(closed.empty()) << "notified twice of the end";
    closed.push_back(reason);
  }
  static std::string text_of(Bytes bytes) { return std::string(as_text(bytes)); }

  Connection* connection = nullptr;
  hawser::detail::ReceiveAccount* account = nullptr;  // Set before the connection starts.
  bool record = true;
  bool keep = false;
  std::vector<Received> messages;
  std::vector<Buffer> kept;  // Head and payload of each message.
  std::function<void(const Message&)> on_each;
  std::function<ReceiveBuffer(Bytes, std::size_t)> where;
  std::function<void()> on_each_drained;
  int selected = 0;
  int drained = 0;
  std::vector<Error> closed;
  std::atomic<std::size_t> count{0};
};

struct TransportCompletion final : SendCompletion {
  void on_send_complete() noexcept override { notified.fetch_add(1); }
  std::atomic<int> notified{0};
};

}  // namespace hawser::transport
