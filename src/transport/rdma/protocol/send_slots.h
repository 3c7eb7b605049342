#pragma once

#include <cstddef>
#include <cstdint>

namespace hawser::transport::rdma {

// Counts the work requests of a send queue. Their ids increase by one and complete in order, so checking for completion
// is one comparison. Only some requests ask for a completion, which also covers all before. No I/O.
class SendSlots {
 public:
  // Slots that are kept from data, for control and for reads.
  static constexpr std::size_t reserved = 4;

  SendSlots(std::size_t slots, unsigned signal_every) noexcept : slots_(slots), signal_every_(signal_every) {}

  std::size_t all() const noexcept { return slots_; }
  std::size_t free() const noexcept { return slots_ - static_cast<std::size_t>(next_ - 1 - completed_); }
  bool may_post_data() const noexcept { return free() > reserved; }
  bool may_post_control() const noexcept { return free() > 0; }

  // Returns the id of the next request; ids start at 1. It asks for a completion (Posted::signalled) if `must_signal`
  // or if the count requires it.
  struct Posted {
    std::uint64_t id;
    bool signalled;
  };
  Posted post(bool must_signal) noexcept {
    ++unsignalled_;
    // The last free slots are signalled too. Otherwise the queue could fill up without a completion that frees it.
    const bool signalled = must_signal || unsignalled_ >= signal_every_ || free() <= reserved + 1;
    if (signalled) {
      unsignalled_ = 0;
      signalled_ = next_;
    }
    return {next_++, signalled};
  }
  // False if no such request is outstanding.
  [[nodiscard]] bool complete(std::uint64_t id) noexcept {
    if (id <= completed_ || id >= next_) return false;
    completed_ = id;
    return true;
  }
  bool is_done(std::uint64_t id) const noexcept { return id <= completed_; }
  // True if a completion that covers all requests so far will arrive without further action.
  bool last_is_signalled() const noexcept { return signalled_ + 1 == next_; }
  bool idle() const noexcept { return completed_ + 1 == next_; }
  std::uint64_t last() const noexcept { return next_ - 1; }

 private:
  const std::size_t slots_;
  const unsigned signal_every_;
  std::uint64_t next_ = 1;
  std::uint64_t completed_ = 0;
  std::uint64_t signalled_ = 0;
  unsigned unsignalled_ = 0;
};

}  // namespace hawser::transport::rdma
