#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/path_proof.h"

namespace hawser::transport {

// The number of a message on a signed or sealed path, from 0, and the generation of the keys that protect it. A message
// carries them as 48 and 16 bits (docs/wire-format.md, "Messages of a signed or sealed path"). Nonces have the whole
// number.
struct PathNumber {
  static constexpr int message_bits = 48;
  static constexpr std::uint64_t message_mask = (std::uint64_t{1} << message_bits) - 1;

  std::uint16_t generation = 0;
  std::uint64_t message = 0;

  constexpr std::uint64_t encoded() const noexcept {
    return std::uint64_t{generation} << message_bits | (message & message_mask);
  }
};

// Numbers the messages that this side sends, and begins a new generation of its keys when the present one has protected
// as many bytes or messages as it may.
class SentNumbers {
 public:
  SentNumbers(std::uint64_t generation_bytes, std::uint64_t generation_messages) noexcept
      : generation_bytes_(generation_bytes), generation_messages_(generation_messages) {}

  // Returns the number of the next message, which `cipher` must protect. Throws as PathCipher::begin_generation() does,
  // and changes nothing then.
  PathNumber next(PathCipher& cipher) {
    if (used_bytes_ >= generation_bytes_ || used_messages_ >= generation_messages_) {
      cipher.begin_generation();
      ++next_.generation;
      used_bytes_ = 0;
      used_messages_ = 0;
    }
    return next_;
  }
  // The message with that number has been protected. It has so many bytes.
  void sent(std::size_t bytes) noexcept {
    ++next_.message;
    ++used_messages_;
    used_bytes_ += bytes;
  }

 private:
  const std::uint64_t generation_bytes_;
  const std::uint64_t generation_messages_;
  PathNumber next_;
  std::uint64_t used_bytes_ = 0;  // In this generation.
  std::uint64_t used_messages_ = 0;
};

// Checks the numbers of the messages that the peer sends.
class ReceivedNumbers {
 public:
  enum class Order : std::uint8_t {
    next,      // It is the peer's next message.
    ahead,     // The message before it has not been delivered.
    repeated,  // A message of this number has been delivered.
  };

  // The number of the peer's next message.
  std::uint64_t next() const noexcept { return next_; }
  // Decodes PathNumber::encoded(). The message's number is next() or one of the 2^48 - 1 after it.
  PathNumber decode(std::uint64_t encoded) const noexcept {
    return {.generation = static_cast<std::uint16_t>(encoded >> PathNumber::message_bits),
            .message = next_ + ((encoded - next_) & PathNumber::message_mask)};
  }
  // Returns true if this side has the keys of the generation. The peer changes its keys once at most before a message
  // that has not been delivered yet.
  bool has_keys(std::uint16_t generation) const noexcept {
    return generation == generation_ || generation == static_cast<std::uint16_t>(generation_ + 1);
  }
  // `number` is a result of decode(). One that is more than half of the numbers ahead belongs to an earlier message.
  Order order(const PathNumber& number) const noexcept {
    if (number.message == next_) return Order::next;
    return number.message - next_ > (PathNumber::message_mask >> 1) + 1 ? Order::repeated : Order::ahead;
  }
  // The peer's next message, whose generation has_keys(), is authentic. Begins the generation in `cipher` if it is new.
  void received(std::uint16_t generation, PathCipher& cipher) noexcept {
    if (generation != generation_) {
      cipher.begin_peer_generation();
      generation_ = generation;
    }
    ++next_;
  }

 private:
  std::uint64_t next_ = 0;
  std::uint16_t generation_ = 0;
};

}  // namespace hawser::transport
