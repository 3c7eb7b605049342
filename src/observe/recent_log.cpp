#include "hawser/recent_log.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "hawser/structured_log.h"

namespace hawser {

struct RecentLog::State {
  LogSink next;
  std::atomic<LogLevel> least;
  std::size_t lines_max;
  std::mutex lock;  // Guards the next two members.
  std::deque<Line> lines;
  std::uint64_t dropped = 0;
};

RecentLog::RecentLog(LogSink next, LogLevel least, std::size_t lines_max) : state_(std::make_shared<State>()) {
  state_->next = std::move(next);
  state_->least.store(least);
  state_->lines_max = std::max<std::size_t>(lines_max, 1);
}

LogSink RecentLog::sink() const {
  return [state = state_](LogLevel level, std::string_view component, std::string_view text) {
    const LogLevel least = state->least.load(std::memory_order_relaxed);
    if (level >= std::min(least, LogLevel::info)) {
      Line line{std::chrono::system_clock::now(), level, std::string(component),
                std::string(text.substr(0, line_bytes_max))};
      if (const TraceContext* const trace = trace_of_line()) line.trace_id = trace->trace_id_text();
      const std::lock_guard guard(state->lock);
      state->lines.push_back(std::move(line));
      if (state->lines.size() > state->lines_max) {
        state->lines.pop_front();
        ++state->dropped;
      }
    }
    if (level >= least) state->next(level, component, text);
  };
}

LogLevel RecentLog::level() const noexcept { return state_->least.load(std::memory_order_relaxed); }
void RecentLog::set_level(LogLevel least) noexcept { state_->least.store(least, std::memory_order_relaxed); }

std::vector<RecentLog::Line> RecentLog::lines(std::size_t count_max) const {
  const std::lock_guard guard(state_->lock);
  const std::size_t count = std::min(count_max, state_->lines.size());
  return {state_->lines.rbegin(), state_->lines.rbegin() + static_cast<std::ptrdiff_t>(count)};
}

std::uint64_t RecentLog::dropped() const {
  const std::lock_guard guard(state_->lock);
  return state_->dropped;
}

}  // namespace hawser
