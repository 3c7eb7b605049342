#pragma once

#include <cstddef>
#include <cstdint>

namespace hawser::transport::rdma {

// Counts the work requests of a send queue. Their ids grow by one, and are completed in order, so that waiting for one
// is a comparison. Only some ask for a completion, which speaks for all before. Without I/O.
class SendSlots {
 public:
  // Slots that data leaves to control, and to reads.
  static constexpr std::size_t reserved = 4;

  SendSlots(std::size_t slots, unsigned signal_every) noexcept : slots_(slots), signal_every_(signal_every) {}

  std::size_t free() const noexcept { return slots_ - static_cast<std::size_t>(next_ - 1 - completed_); }
  bool may_post_data() const noexcept { return free() > reserved; }
  bool may_post_control() const noexcept { return free() > 0; }

  // The next request's id, from 1. `must_signal`, or by count: ask Posted::signalled.
  struct Posted {
    std::uint64_t id;
    bool signalled;
  };
  Posted post(bool must_signal) noexcept {
    ++unsignalled_;
    // The last free slots are signalled too: without, the queue could fill up with nothing to tell that it is done.
    const bool signalled = must_signal || unsignalled_ >= signal_every_ || free() <= reserved + 1;
    if (signalled) {
      unsignalled_ = 0;
      signalled_ = next_;
    }
    return {next_++, signalled};
  }
  // False if such a request is not outstanding.
  [[nodiscard]] bool complete(std::uint64_t id) noexcept {
    if (id <= completed_ || id >= next_) return false;
    completed_ = id;
    return true;
  }
  bool is_done(std::uint64_t id) const noexcept { return id <= completed_; }
  // Whether a completion will come by itself that speaks for all requests so far.
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
