#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "hawser/time.h"
#include "hawser/transport/poller.h"

namespace hawser::transport::rdma {

// The limit of the bytes of bulk operations that are on their way. While messages are sent beside them, each message
// waits for these bytes, so there are as few as keep the rate of the bulk operations. The least number depends on the
// device's rate and on the latency of the network, so it is measured.
//
// Rounds of at least round_time are measured. The first one, with bytes_max, gives the reference. Then the window is
// halved as long as the rate stays at rate_kept of the reference. If it does not, the window is doubled, and stays
// until the next trial. From time to time, and soon after the rate has fallen, the reference is measured again.
class BulkWindow {
 public:
  static constexpr std::size_t quiet_bytes = std::size_t{1} << 20;  // While no messages are sent.
  static constexpr std::size_t bytes_max = std::size_t{256} << 10;  // While messages are sent.
  static constexpr std::size_t bytes_min = std::size_t{8} << 10;
  static constexpr std::size_t part_bytes_min = std::size_t{4} << 10;
  static constexpr double rate_kept = 0.85;
  static constexpr double rate_lost = 0.75;  // Below this part of it, the reference is measured again.
  static constexpr std::size_t round_windows = 16;
  static constexpr Duration round_time = std::chrono::milliseconds(10);
  static constexpr Duration trial_time = std::chrono::milliseconds(500);   // From one trial to the next.
  static constexpr Duration reference_time = std::chrono::seconds(20);     // From one reference to the next,
  static constexpr Duration reference_time_min = std::chrono::seconds(1);  // if the rate has fallen.
  static constexpr Duration quiet_time = std::chrono::milliseconds(20);    // Messages are expected for this time.

  // Without a clock, the window beside messages is bytes_max.
  explicit BulkWindow(const exec::Poller* clock) noexcept : clock_(clock) {}

  std::size_t bytes() const noexcept {
    if (!beside_messages_) return quiet_bytes;
    return state_ == State::reference ? bytes_max : bytes_;
  }
  // Limit of one work request.
  std::size_t part_bytes() const noexcept { return std::max(bytes() / 4, part_bytes_min); }

  // `messages`: number of messages that were sent until now.
  void on_messages(std::uint64_t messages) noexcept {
    if (messages == messages_) return;
    messages_ = messages;
    message_in_round_ = true;
    if (!std::exchange(beside_messages_, true)) begin_round();
  }
  // Bytes of bulk operations have been confirmed. `waiting`: more wait for the window.
  void on_confirmed(std::size_t bytes, bool waiting) noexcept {
    if (clock_ == nullptr) return;
    if (measuring_) confirmed_ += bytes;
    if (measuring_ && waiting && confirmed_ < check_at_) return;
    const Time now = clock_->now();
    if (measuring_) elapsed_ += now - std::exchange(begin_, now);
    // While none wait, the application determines the rate.
    if (!std::exchange(measuring_, waiting)) begin_ = now;
    if (confirmed_ < check_at_) return check_quiet(now);
    if (elapsed_ < round_time) {
      check_at_ = confirmed_ + round_windows * this->bytes();
      return;
    }
    if (beside_messages_)
      end_round(static_cast<double>(confirmed_) / std::chrono::duration<double>(elapsed_).count(), now);
    check_quiet(now);
    begin_round();
    measuring_ = waiting;
  }

 private:
  enum class State : std::uint8_t { reference, shrinking, growing, steady };

  void begin_round() noexcept {
    measuring_ = false;
    confirmed_ = 0;
    elapsed_ = {};
    check_at_ = round_windows * bytes();
  }
  void check_quiet(Time now) noexcept {
    if (std::exchange(message_in_round_, false)) last_message_ = now;
    if (beside_messages_ && now - last_message_ >= quiet_time) {
      beside_messages_ = false;
      begin_round();
    }
  }
  void end_round(double rate, Time now) noexcept {
    const bool kept = rate >= rate_kept * reference_;
    if (state_ == State::reference) {
      reference_ = rate;
      reference_at_ = now;
      state_ = State::shrinking;
      return;
    }
    reference_ = std::max(reference_, rate);
    if (state_ == State::steady) {
      const Duration age = now - reference_at_;
      if (age >= reference_time || (age >= reference_time_min && rate < rate_lost * reference_)) {
        state_ = State::reference;
        return;
      }
      if (now < next_trial_) return;
      state_ = kept ? State::shrinking : State::growing;
    }
    if (!kept) state_ = State::growing;
    if (state_ == State::shrinking && bytes_ > bytes_min) {
      bytes_ /= 2;
    } else if (!kept && bytes_ < bytes_max) {
      bytes_ *= 2;
    } else {
      state_ = State::steady;
      next_trial_ = now + trial_time;
    }
  }

  const exec::Poller* clock_;
  std::size_t bytes_ = bytes_max;
  State state_ = State::reference;
  double reference_ = 0;  // Bytes a second.
  Time reference_at_{};
  Time next_trial_{};
  bool measuring_ = false;
  Time begin_{};
  Duration elapsed_{};         // Time of this round that was measured until begin_,
  std::size_t confirmed_ = 0;  // and the bytes.
  std::size_t check_at_ = round_windows * quiet_bytes;
  std::uint64_t messages_ = 0;
  bool beside_messages_ = false;
  bool message_in_round_ = false;
  Time last_message_{};
};

}  // namespace hawser::transport::rdma
