#pragma once

#include "hawser/detail/call_channel.h"
#include "hawser/timer.h"

namespace hawser::detail {

// The calls of a session that have the same timeout, in the order in which they began, which is that of their
// deadlines. One timer serves them all. It runs until the deadline of a call that may have ended long before: the loop
// then wakes once for nothing, and no call starts or stops a timer. A timeout that begins in a long turn of the loop
// counts from the end of the turn. Loop's thread only.
class CallDeadlines {
 public:
  CallDeadlines(Loop& loop, Duration timeout) noexcept : loop_(loop), timeout_(timeout) {}
  CallDeadlines(const CallDeadlines&) = delete;
  CallDeadlines& operator=(const CallDeadlines&) = delete;
  ~CallDeadlines() {
    while (first_ != nullptr) remove(*first_);
  }

  // No call in the list has a later deadline than `call`.
  void add(CallOperation& call) noexcept {
    call.deadlines_ = this;
    call.earlier_ = last_;
    (last_ == nullptr ? first_ : last_->later_) = &call;
    last_ = &call;
    if (!timer_.running()) [[unlikely]]
      timer_.start(loop_, call.deadline());
  }
  void remove(CallOperation& call) noexcept {
    (call.earlier_ == nullptr ? first_ : call.earlier_->later_) = call.later_;
    (call.later_ == nullptr ? last_ : call.later_->earlier_) = call.earlier_;
    call.earlier_ = call.later_ = nullptr;
    call.deadlines_ = nullptr;
  }

 private:
  void on_time() noexcept;
  Time end_of(const CallOperation& call) const noexcept;

  Loop& loop_;
  const Duration timeout_;
  CallOperation* first_ = nullptr;
  CallOperation* last_ = nullptr;
  MemberTimer<&CallDeadlines::on_time> timer_{*this};
};

}  // namespace hawser::detail
