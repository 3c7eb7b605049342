#pragma once

#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>

#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/task.h"

namespace hawser::exec {
struct LoopStatistics;
class WorkTimer;
}  // namespace hawser::exec

namespace hawser::detail {

// The parts of a Loop that only the library uses. Loop's thread only, except for check_thread().
struct LoopAccess {
  // Calls LoopUser::on_loop_end() of `user` when the loop ends.
  static void add_user(Loop& loop, LoopUser& user) { loop.add_user(user); }
  static void remove_user(Loop& loop, LoopUser& user) noexcept { loop.remove_user(user); }
  // The coroutine that the loop has resumed and that has not returned to it; null if there is none.
  static const void* resumed_frame(const Loop& loop) noexcept { return loop.resumed_frame(); }
  // Names the work that begins, for LoopOptions::blocked_max. Valid until the end of the next tick or forget_work().
  static void set_work(Loop& loop, const std::string& name) noexcept { loop.work_ = &name; }
  static void forget_work(Loop& loop) noexcept { loop.work_ = nullptr; }
  // Calls WorkTimer::on_clock() once, when the loop reads its clock next. Must not be called again before that.
  static void time_work(Loop& loop, exec::WorkTimer& timer) noexcept;
  static void stop_timing(Loop& loop, exec::WorkTimer& timer) noexcept;
  static void give_way(Loop& loop) noexcept;  // Sleeps next without spinning: another thread needs the processor.
  static exec::LoopStatistics statistics(const Loop& loop);  // Any thread, while the loop exists.
  // Ends the process with a message if another thread runs the loop.
  static void check_thread(const Loop& loop) noexcept { loop.check_thread(); }
  // The time at which the current tick began, also if after() has set Loop::now() forward since.
  static Time tick_begin(const Loop& loop) noexcept { return loop.now_ - loop.advanced_; }
  // Time for which the loop did not run before it was last started; zero if it was started before `when`.
  static Duration pause_since(const Loop& loop, Time when) noexcept;
  static std::uint64_t random(Loop& loop) noexcept;  // In a simulation, it follows from the seed.
  template <class F>
  static Task<Result<std::invoke_result_t<F&>>> offload_for(Loop& loop, const void* client, std::stop_token token,
                                                            F work) {
    return loop.offload_for(client, std::move(token), std::move(work));
  }
};

}  // namespace hawser::detail
