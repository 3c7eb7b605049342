#pragma once

#include <cstddef>

#include "hawser/bytes.h"
#include "hawser/transport/connection.h"
#include "transport/common/arriving_charge.h"
#include "transport/common/payload_buffer.h"

namespace hawser::transport {

// Assembles one message whose head and payload arrive in parts that are copied. An announcement takes no memory; what
// has arrived takes at most a constant factor of itself, unless the account has plenty. The rest of what the account
// refuses is discarded: of a head so much stays that Message::cut can be answered.
class MessageAssembly {
 public:
  // Memory of a head up to here is not charged: it is bounded by the number of connections.
  static constexpr std::size_t head_bytes_first = 64 * 1024;

  // A message has begun and has not been delivered.
  bool active() const noexcept { return active_; }
  // Bytes of head and payload that have not arrived.
  std::size_t missing() const noexcept { return head_bytes_ + payload_.size() - done_; }

  // Only while no message is active. The account is as that of PayloadBuffer.
  void begin(std::size_t head_bytes, std::size_t payload_bytes, hawser::detail::ReceiveAccount* account);
  // The next bytes, at most missing(). When the head is complete, asks `sink` where to receive a payload of at least
  // `receive_buffer_bytes_min`. False if `ended` is true afterwards: the sink has ended the connection.
  bool append(Bytes part, MessageSink& sink, std::size_t receive_buffer_bytes_min, const bool& ended);
  // Delivers the message, which is complete. It is not active any more.
  void deliver(MessageSink& sink);
  // Connection::revoke_receive_buffer().
  void revoke(const std::byte* memory) noexcept {
    if (active_) payload_.revoke(memory);
  }
  // The account ends before this does.
  void release_charge() noexcept {
    head_charge_.reset();
    payload_.release_charge();
  }

 private:
  Bytes append_head(Bytes part);
  bool grow_head(std::size_t needed);

  bool active_ = false;
  bool cut_ = false;       // The account has refused more of the head: its rest and the payload are discarded.
  bool selected_ = false;  // It is known where the payload goes.
  std::size_t head_bytes_ = 0;
  std::size_t done_ = 0;  // Of head and payload.
  Buffer head_;           // What there is room for.
  ArrivingCharge head_charge_;
  PayloadBuffer payload_;
};

}  // namespace hawser::transport
