#include <coroutine>
#include <stop_token>
#include <utility>

#include "hawser/loop.h"

namespace hawser {
namespace {

// Resumes a sleeper early when a stop is requested on the loop's thread.
struct StoppableSleep {
  StoppableSleep(Loop& owner, Time end) noexcept : loop(owner), when(end) {}
  ~StoppableSleep() {
    if (queued && !resumed) loop.forget(waiting);
  }
  bool await_ready() const noexcept { return queued; }  // A stop was requested meanwhile.
  void await_suspend(std::coroutine_handle<> handle) noexcept {
    waiting = handle;
    timer.start(loop, when);
  }
  void await_resume() noexcept { resumed = true; }
  void finish() noexcept {
    if (std::exchange(queued, true) || !waiting) return;
    timer.stop();
    loop.resume_soon(waiting);
  }

  Loop& loop;
  Time when;
  std::coroutine_handle<> waiting;
  bool queued = false;
  bool resumed = false;
  MemberTimer<&StoppableSleep::finish> timer{*this};
};

}  // namespace

Task<Result<void>> Loop::sleep(Duration duration, std::stop_token token) {
  if (!token.stop_requested()) {
    StoppableSleep sleeping(*this, after(duration));
    const std::stop_callback wake(token, [&] { sleeping.finish(); });
    co_await sleeping;
  }
  if (token.stop_requested()) co_return fail(ErrorCode::cancelled, "a stop was requested while sleeping");
  co_return Result<void>{};
}

}  // namespace hawser
