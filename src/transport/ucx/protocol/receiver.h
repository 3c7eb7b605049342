#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/transport/connection.h"
#include "transport/common/payload_buffer.h"
#include "transport/ucx/protocol/link.h"
#include "transport/ucx/protocol/ucx_header.h"
#include "wire/message.h"

namespace hawser::transport::ucx {

// Notified from within Receiver's calls; must not destroy it.
class ReceiverOwner {
 public:
  // The peer broke the protocol.
  virtual void on_protocol_violation(const std::string& how) = 0;
  // The connection is to end: the peer's last message has been delivered, or a message is too long.
  virtual void on_end(const Error& reason) = 0;
  // UCX failed at `what`.
  virtual void on_failure(std::string_view what, ucs_status_t status) = 0;

 protected:
  ~ReceiverOwner() = default;
};

// Active messages into messages, in order. A payload that goes by itself is fetched into the buffer that the sink selects;
// while one is on its way, those behind it are fetched too. Nothing but arrived() is called from within UCX.
class Receiver {
 public:
  // Of large payloads that arrive before it is their turn, so much is fetched ahead.
  static constexpr std::size_t ahead_bytes_max = std::size_t{512} << 10;
  // Active messages that may overtake each other: with several rails they do.
  static constexpr std::size_t overtaking_max = 4096;

  Receiver(ReceiverOwner& owner, Link& link, wire::MessageLimit message_limit) noexcept
      : owner_(owner), link_(link), message_limit_(message_limit) {}
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Within UCX: only recorded.
  void arrived(const UcxTarget::ActiveMessage& message) { arrivals_.push_back(message); }
  // The peer has been heard.
  bool heard() const noexcept { return heard_ || !arrivals_.empty(); }

  void start(MessageSink& sink) noexcept;
  // Delivers what has arrived, unless it is paused.
  void process();
  void pause() noexcept { paused_ = true; }
  void resume() noexcept { paused_ = false; }
  bool paused() const noexcept { return paused_; }
  void revoke_receive_buffer(const std::byte* memory) noexcept;
  // A fetch has ended. Gives it back.
  void on_ended(UcxOperation& operation);
  std::uint64_t arrived() const noexcept { return arrived_; }
  // Bytes of payloads that are being fetched, or are fetched and not delivered: bounds how far is read ahead.
  std::size_t ahead_bytes() const noexcept { return ahead_bytes_; }
  // The connection has ended: drops everything, apart from what UCX is at.
  void end() noexcept;

 private:
  using ActiveMessage = UcxTarget::ActiveMessage;

  // A message that waits for its payload, or behind one that does.
  struct Waiting {
    enum class State : std::uint8_t { announced, fetching, here, lost };
    Bytes head;
    Bytes payload;           // Of a message that is whole.
    Block* block = nullptr;  // A reference of ours to what holds both.
    std::size_t cost = 0;    // Of the packet that this is the last of.
    bool apart = false;
    bool asked = false;  // select_receive_buffer() has been.
    State state = State::announced;
    std::uint32_t number = 0;  // Of the payload.
    std::size_t size = 0;
    PayloadBuffer buffer;               // Of a payload that goes by itself.
    UcxOperation* operation = nullptr;  // While it is fetched.
  };
  // A packet that is next in order, and how far it has been read.
  struct Packet {
    const std::byte* data = nullptr;
    std::size_t size = 0;
    Block* block = nullptr;
    bool end = false;
    std::size_t at = 0;
  };

  void receive_arrivals();
  bool receive(ActiveMessage& message);
  bool receive_packet(ActiveMessage& message);
  void push_in_order(const ActiveMessage& message);
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

  ReceiverOwner& owner_;
  Link& link_;
  const wire::MessageLimit message_limit_;
  MessageSink* sink_ = nullptr;
  hawser::detail::ReceiveAccount* account_ = nullptr;

  std::vector<ActiveMessage> arrivals_;  // As they came.
  std::vector<ActiveMessage> receiving_;
  std::map<std::uint32_t, ActiveMessage> early_;  // Overtook others.
  std::deque<Packet> in_order_;
  std::deque<Waiting> waiting_;
  std::map<std::uint32_t, ActiveMessage> rendezvous_;  // Payloads that nobody has asked for yet.
  Operations operations_;
  std::uint32_t expected_ = 0;
  std::uint32_t payloads_announced_ = 0;
  std::uint32_t payloads_taken_ = 0;
  std::size_t ahead_ = 0;        // Announced payloads that are read.
  std::size_t ahead_bytes_ = 0;  // Of those that are fetched.
  std::uint64_t arrived_ = 0;
  bool heard_ = false;
  bool paused_ = false;
  bool processing_ = false;
  bool ended_ = false;
};

}  // namespace hawser::transport::ucx
