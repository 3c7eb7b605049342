#pragma once

#include <optional>
#include <stop_token>
#include <utility>

#include "base/alive.h"
#include "exec/condition.h"
#include "hawser/detail/loop_access.h"
#include "hawser/loop.h"
#include "hawser/timer.h"

namespace hawser::rpc {

// Waits for a notification of `condition`, the deadline, or a stop of the token, which any thread may request. It lives
// in the coroutine that waits, which then checks why it was resumed:
//   LimitedWait wait(loop, condition, deadline, token);
//   co_await wait.end();
class LimitedWait final : detail::LoopUser {
 public:
  // Time::max(): no deadline.
  LimitedWait(Loop& loop, exec::Condition& condition, Time deadline, const std::stop_token& token)
      : loop_(loop), waiter_(condition.wait()) {
    detail::LoopAccess::add_user(loop, *this);
    if (deadline != Time::max()) timer_.start(loop, deadline);
    if (token.stop_possible()) stop_.emplace(token, Stop{&loop, alive_.watch()});
  }
  LimitedWait(const LimitedWait&) = delete;
  LimitedWait& operator=(const LimitedWait&) = delete;
  ~LimitedWait() {
    if (user_) detail::LoopAccess::remove_user(loop_, *this);
  }

  exec::Condition::Waiter& end() noexcept { return waiter_; }

 private:
  // Forwards a stop request to the loop.
  struct Stop {
    Loop* loop;
    Watch<LimitedWait> waiting;
    void operator()() const {
      loop->post([wait = waiting] {
        if (LimitedWait* const one = wait.get()) one->wake();
      });
    }
  };

  void wake() noexcept { waiter_.wake(); }
  void on_loop_end() noexcept override {
    user_ = false;
    timer_.stop();
    stop_.reset();
  }

  Loop& loop_;
  bool user_ = true;
  exec::Condition::Waiter waiter_;
  MemberTimer<&LimitedWait::wake> timer_{*this};
  Alive<LimitedWait> alive_{*this};
  std::optional<std::stop_callback<Stop>> stop_;
};

}  // namespace hawser::rpc
