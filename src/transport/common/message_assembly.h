#pragma once

#include <cstddef>

#include "hawser/bytes.h"
#include "hawser/transport/connection.h"
#include "transport/common/arriving_charge.h"
#include "transport/common/payload_buffer.h"

namespace hawser::transport {

// Assembles one message whose head and payload arrive in parts that are copied. An announcement allocates no memory.
// Unless the account has plenty, the memory is at most a constant factor of the bytes that have arrived. If the account
// refuses memory, the rest is discarded, but enough of the head is kept to answer a message with Message::cut.
class MessageAssembly {
 public:
  // Memory of a head up to this size is not charged, because the number of connections bounds it.
  static constexpr std::size_t head_bytes_first = 64 * 1024;

  // Returns whether a message has begun and has not been delivered.
  bool active() const noexcept { return active_; }
  // Bytes of head and payload that have not arrived.
  std::size_t missing() const noexcept { return head_bytes_ + payload_.size() - done_; }

  // Begins a message; no message may be active. The contract of `account` is that of PayloadBuffer.
  void begin(std::size_t head_bytes, std::size_t payload_bytes, hawser::detail::ReceiveAccount* account);
  // Appends the next bytes, at most missing(). When the head is complete, it asks `sink` for the receive buffer of a
  // payload of `receive_buffer_bytes_min` or more. Returns false if the sink has ended the connection, which sets
  // `ended`.
  bool append(Bytes part, MessageSink& sink, std::size_t receive_buffer_bytes_min, const bool& ended);
  // Delivers the complete message. No message is active afterwards.
  void deliver(MessageSink& sink);
  // See Connection::revoke_receive_buffer().
  void revoke(const std::byte* memory) noexcept {
    if (active_) payload_.revoke(memory);
  }
  // Must be called if the account is destroyed before this object.
  void release_charge() noexcept {
    head_charge_.reset();
    payload_.release_charge();
  }

 private:
  Bytes append_head(Bytes part);
  bool grow_head(std::size_t needed);

  bool active_ = false;
  bool cut_ = false;       // The account has refused memory for the head. Its rest and the payload are discarded.
  bool selected_ = false;  // The receive buffer of the payload is known.
  std::size_t head_bytes_ = 0;
  std::size_t done_ = 0;  // Bytes of head and payload that have arrived.
  Buffer head_;           // Memory for the beginning of the head; it grows as bytes arrive.
  ArrivingCharge head_charge_;
  PayloadBuffer payload_;
};

}  // namespace hawser::transport
