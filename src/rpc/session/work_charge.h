#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "hawser/detail/receive_account.h"

namespace hawser::rpc {

// A charge for the memory of work on another thread. The account of the connection pays while the work is awaited. The
// work may go on when it is not awaited any more and the connection has ended: then the loop's budget pays until the
// work has ended. Loop's thread only, except Use.
class WorkCharge {
  // `waiting`: the work has not begun. `dropped`: it was not awaited any more before it began. `running` and
  // `abandoned`: it runs, and is awaited or not.
  enum class Phase : std::uint8_t { waiting, dropped, running, abandoned, ended };
  struct State {
    State(std::shared_ptr<std::atomic<std::size_t>> abandoned, std::size_t held) noexcept
        : total(std::move(abandoned)), bytes(held) {}
    void acquire() const noexcept { total->fetch_add(bytes, std::memory_order_relaxed); }
    void release() const noexcept { total->fetch_sub(bytes, std::memory_order_relaxed); }

    const std::shared_ptr<std::atomic<std::size_t>> total;
    const std::size_t bytes;
    std::atomic<Phase> phase{Phase::waiting};
  };

 public:
  WorkCharge() noexcept = default;
  WorkCharge(WorkCharge&&) noexcept = default;
  WorkCharge& operator=(WorkCharge&&) = delete;
  ~WorkCharge() { abandon(); }

  // Charges `bytes`. `kept` bytes more are held by the work and charged elsewhere while it is awaited. False if the
  // account has not enough left; with `always` it succeeds. Called once, and again after reset().
  bool add(detail::ReceiveAccount& account, std::size_t bytes, std::size_t kept, bool always = false) {
    detail::ReceiveCharge charge;
    if (!charge.add(account, bytes, always)) return false;
    acquire(account, std::move(charge), bytes + kept);
    return true;
  }
  // The same for a charge that exists and a total.
  void acquire(const detail::ReceiveAccount& account, detail::ReceiveCharge charge, std::size_t bytes) {
    charge_ = std::move(charge);
    if (account.bounded()) state_ = std::make_shared<State>(account.abandoned(), bytes);
  }

  // The work keeps it until its end. Any thread may destroy it.
  class Use {
   public:
    Use() noexcept = default;
    Use(Use&&) noexcept = default;
    Use& operator=(Use&&) = delete;
    // Called when the work begins. A work that was dropped before a thread was free for it usually does not begin.
    void begin() const noexcept {
      if (state_ == nullptr) return;
      Phase was = Phase::waiting;
      if (state_->phase.compare_exchange_strong(was, Phase::running)) return;
      state_->acquire();
      state_->phase.store(Phase::abandoned);
    }
    ~Use() {
      if (state_ != nullptr && state_->phase.exchange(Phase::ended) == Phase::abandoned) state_->release();
    }

   private:
    friend class WorkCharge;
    explicit Use(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
  };
  Use use() const noexcept { return Use(state_); }

  // The work has ended and was awaited, or it has not begun: nothing is charged any more.
  void reset() noexcept {
    state_.reset();
    charge_.reset();
  }
  // The work is not awaited any more.
  void abandon() noexcept {
    Phase was = Phase::waiting;
    if (state_ != nullptr && !state_->phase.compare_exchange_strong(was, Phase::dropped) && was == Phase::running) {
      state_->acquire();
      if (!state_->phase.compare_exchange_strong(was, Phase::abandoned)) state_->release();  // It has ended meanwhile.
    }
    reset();
  }

 private:
  std::shared_ptr<State> state_;
  detail::ReceiveCharge charge_;
};

}  // namespace hawser::rpc
