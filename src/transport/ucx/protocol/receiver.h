#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/transport/connection.h"
#include "transport/common/payload_buffer.h"
#include "transport/ucx/protocol/link.h"
#include "transport/ucx/protocol/packet_order.h"
#include "transport/ucx/protocol/payload_arrivals.h"
#include "transport/ucx/protocol/ucx_header.h"
#include "wire/message.h"

namespace hawser::transport::ucx {

// The functions are called from within functions of the receiver. They must not destroy the receiver.
class UcxReceiverOwner {
 public:
  // The peer violated the protocol; `how` describes it.
  virtual void on_protocol_violation(const std::string& how) = 0;
  // The connection must end: the peer's last message has been delivered, or a message is too long.
  virtual void on_end(const Error& reason) = 0;
  // UCX failed while it did `what`.
  virtual void on_failure(std::string_view what, ucs_status_t status) = 0;

 protected:
  ~UcxReceiverOwner() = default;
};

// Converts active messages to messages and delivers these in order. A payload that was sent in an active message of its
// own is fetched into the buffer that the sink selects. Later payloads are fetched meanwhile.
// Only arrived() may be called from a UCX callback.
class UcxReceiver {
 public:
  // No fetch of a payload begins ahead of its turn while this many bytes are being fetched or wait for delivery.
  static constexpr std::size_t ahead_bytes_max = std::size_t{512} << 10;

  UcxReceiver(UcxReceiverOwner& owner, UcxLink& link, wire::MessageLimit message_limit)
      : owner_(owner), link_(link), message_limit_(message_limit) {}
  UcxReceiver(const UcxReceiver&) = delete;
  UcxReceiver& operator=(const UcxReceiver&) = delete;

  // Records the active message for process(). May be called from a UCX callback.
  void arrived(const UcxTarget::ActiveMessage& message) { arrivals_.push_back(message); }
  // Returns whether any active message of the peer has arrived.
  bool heard() const noexcept { return heard_ || !arrivals_.empty(); }

  void start(MessageSink& sink) noexcept;
  // Delivers the messages that have arrived, unless the receiver is paused.
  void process();
  void pause() noexcept { paused_ = true; }
  void resume() noexcept { paused_ = false; }
  bool paused() const noexcept { return paused_; }
  void revoke_receive_buffer(const std::byte* memory) noexcept;
  // A fetch has completed. Recycles the operation.
  void on_ended(UcxOperation& operation);
  std::uint64_t arrived() const noexcept { return arrived_; }
  // Bytes of payloads that are being fetched, or are fetched and not delivered yet. The sum bounds the reading ahead.
  std::size_t ahead_bytes() const noexcept { return ahead_bytes_; }
  // The connection has ended: releases everything except the memory that UCX still writes.
  void end() noexcept;

 private:
  using ActiveMessage = UcxTarget::ActiveMessage;

  // A message that waits for its payload, or for the delivery of an earlier message.
  struct Waiting {
    enum class State : std::uint8_t { announced, fetching, here, lost };
    Bytes head;
    Bytes payload;           // Empty if the payload comes in an active message of its own.
    Block* block = nullptr;  // Holds head and payload; this message owns one reference.
    std::size_t cost = 0;    // Cost of the packet if this is the packet's last message, else 0.
    bool apart = false;      // The payload comes in an active message of its own.
    bool asked = false;      // select_receive_buffer() has been called.
    State state = State::announced;
    std::uint32_t number = 0;           // Number of the payload that comes in an active message of its own.
    std::size_t size = 0;               // Bytes of that payload.
    PayloadBuffer buffer;               // Destination of that payload.
    UcxOperation* operation = nullptr;  // Non-null while that payload is fetched.
  };

  void receive_arrivals();
  bool receive(ActiveMessage& message);
  bool receive_packet(ActiveMessage& message);
  void deliver();
  bool read_entry();
  bool deliver_front();
  bool settle_payload(Waiting& front);
  void read_ahead();
  void fetch_ahead();
  std::optional<UcxEntry> next_entry();
  void queue_entry(const UcxEntry& entry);
  bool fetch(Waiting& message);
  void release(ActiveMessage& message) noexcept;
  bool violation(const std::string& how);

  UcxReceiverOwner& owner_;
  UcxLink& link_;
  const wire::MessageLimit message_limit_;
  MessageSink* sink_ = nullptr;
  hawser::detail::ReceiveAccount* account_ = nullptr;

  std::vector<ActiveMessage> arrivals_;  // In the order of their arrival.
  std::vector<ActiveMessage> receiving_;
  PacketOrder packets_;
  std::deque<Waiting> waiting_;
  PayloadArrivals payloads_;  // The messages in waiting_ announce those that are undelivered.
  Operations operations_;
  std::size_t ahead_bytes_ = 0;  // See ahead_bytes().
  std::uint64_t arrived_ = 0;
  bool heard_ = false;
  bool paused_ = false;
  bool processing_ = false;
  bool ended_ = false;
};

}  // namespace hawser::transport::ucx
