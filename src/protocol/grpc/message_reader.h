#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"

namespace hawser::protocol::grpc {

// Finds messages in the bytes of one direction of a call: u8 compressed, u32 length (big endian), message. Borders of
// DATA frames mean nothing. No I/O.
class MessageReader {
 public:
  static constexpr std::size_t prefix_bytes = 5;
  // Memory for a message that has not arrived completely is allocated in steps of this factor, until it is worth
  // its memory (rpc/port/announced_memory.h).
  static constexpr std::size_t step_factor = 2;
  // The factor without an account. The memory is at most so many times what has arrived.
  static constexpr std::size_t uncounted_step_factor = 16;
  static constexpr std::size_t first_step_bytes = 16 * 1024;

  enum class Step : std::uint8_t { more, message, too_large, bad_flag, no_memory };

  // `room`: bytes that are left free in front of each message, so that something can be put there. A message with room
  // is always copied.
  void set_room(std::size_t room) noexcept { room_ = room; }
  std::size_t room() const noexcept { return room_; }

  // Takes bytes from the front of `in`, which lie in `block` if it is not null. If it returns `message`, the message's
  // bytes are available until the next call.
  Step next(Bytes& in, Block* block, std::size_t message_bytes_max, detail::ReceiveAccount* account);

  // The message that next() found.
  bool compressed() const noexcept { return (prefix_[0] & std::byte{1}) != std::byte{}; }
  Bytes message() const noexcept { return message_; }
  // The block in which the message lies, or null if its memory is reused.
  Block* block() const noexcept { return block_; }
  // The memory that was allocated for the message, which begins with room() free bytes; empty if it lies in `in`.
  Buffer& memory() noexcept { return memory_; }

  // Forgets the message that next() found, and its memory, which others may use.
  void drop_message() noexcept {
    message_ = {};
    block_ = nullptr;
    memory_ = {};
  }
  // True if a message has begun and is not complete.
  bool begun() const noexcept { return prefix_have_ != 0 && !found_; }
  // The charge for memory(). The caller pays from now on.
  detail::ReceiveCharge take_charge() noexcept {
    charged_ = 0;
    return std::move(charge_);
  }
  // Length of the message that has begun, once it is known, or else 0.
  std::size_t length() const noexcept { return length_; }
  void reset() noexcept;

 private:
  bool grow(std::size_t needed, detail::ReceiveAccount* account);

  std::array<std::byte, prefix_bytes> prefix_{};
  std::size_t prefix_have_ = 0;
  std::size_t length_ = 0;
  std::size_t done_ = 0;
  std::size_t room_ = 0;
  bool found_ = false;  // The last call found a message.
  Bytes message_;
  Block* block_ = nullptr;
  Buffer memory_;
  detail::ReceiveCharge charge_;
  std::size_t charged_ = 0;
};

}  // namespace hawser::protocol::grpc
