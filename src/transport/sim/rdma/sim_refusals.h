#pragma once

#include <cstdint>

namespace hawser::transport {

// The replies "receiver not ready" to the messages of one queue pair. After one, it sends nothing until the time that
// the receiver requests has passed. Then it sends the refused message again, and all behind it.
class SimRefusals {
 public:
  static constexpr unsigned endless_retries = 7;  // A value of QueuePairRoute::rnr_retries (rnr_retry of the verbs).

  // True between refuse() and resume(): nothing is sent.
  bool waiting() const noexcept { return waiting_; }
  // The number of the present attempt. Messages of earlier ones that arrive late are without effect.
  std::uint32_t epoch() const noexcept { return epoch_; }
  // The receiver has refused this message. Returns false if it has refused the message more than `retries` times.
  [[nodiscard]] bool refuse(std::uint64_t sequence, unsigned retries) noexcept {
    refusals_ = sequence == refused_ ? refusals_ + 1 : 1;
    refused_ = sequence;
    if (retries < endless_retries && refusals_ > retries) return false;
    waiting_ = true;
    ++epoch_;
    return true;
  }
  // The wait has ended. Returns the sequence number of the refused message.
  std::uint64_t resume() noexcept {
    waiting_ = false;
    return refused_;
  }

 private:
  bool waiting_ = false;
  std::uint32_t epoch_ = 0;
  std::uint64_t refused_ = 0;
  unsigned refusals_ = 0;  // The number of refusals of that message.
};

}  // namespace hawser::transport
