#include "rpc/server/server_loop.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "heap/idle_memory.h"
#include "rpc/port/spread_age.h"

namespace hawser::rpc {
namespace {

// A stopping server ends a session without a call that was silent in so many successive checks: its client does not
// answer GOAWAY. A handshake ends in the check of that number at the latest. Checks are counted instead of time, so
// that a pause of this process counts as one check.
constexpr unsigned silent_checks_max = 4;

// Interval of the checks whether all clients know that they connect to another process.
constexpr Duration leave_check = std::chrono::milliseconds(10);

// Limits of the interval of the checks for connections that are too old, which is a part of the age.
constexpr Duration age_check_min = std::chrono::milliseconds(1);
constexpr Duration age_check_max = std::chrono::seconds(1);

// The time behind the grace in which an old connection sends what has been answered.
constexpr Duration age_rest_max = std::chrono::seconds(1);

}  // namespace

ServerLoop::~ServerLoop() {
  detail::LoopAccess::forget_work(loop_);
  background_.clear();
  // Calls are destroyed first, because their coroutines use the sessions.
  for (const auto& session : sessions_) session->destroy_calls(SIZE_MAX);
  // Offloaded functions that run cannot be ended. Their results arrive in the loop's mailbox.
  for (const auto& session : sessions_) {
    while (session->active_calls() != 0) {
      loop_.run_posted();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  host_.methods.stop_timing(loop_);
  shared_.connections.fetch_sub(sessions_.size(), std::memory_order_relaxed);
}

bool ServerLoop::handles(const void* frame) const noexcept {
  return frame != nullptr &&
         std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& session) { return session->handles(frame); });
}

void ServerLoop::prepare_if_possible() noexcept {
  try {
    prepare();
  } catch (const std::exception&) {
    loop_.log(LogLevel::warning, "rpc", "transports beside the stream could not be prepared: out of memory?");
  }
}

void ServerLoop::adopt(std::unique_ptr<transport::Stream> stream) {
  host_.counters.connections_accepted.add(1);
  if (stop_.serving()) handshakes_.adopt(std::move(stream));
}

// ---- Sessions ----

std::optional<Error> ServerLoop::refusal() const {
  if (shared_.connections.load(std::memory_order_relaxed) >= options_.connections_max) {
    return Error::of_connection(
        ErrorCode::overloaded,
        "the server has connections_max (" + std::to_string(options_.connections_max) + ") connections already");
  }
  if (!stop_.serving()) return Error::of_connection(ErrorCode::unavailable, "the server is stopping");
  return std::nullopt;
}

std::unique_ptr<detail::Posted> ServerLoop::add(std::unique_ptr<PortSession> session) {
  struct End final : detail::Posted {
    explicit End(ServerLoop& of) : watch(of.alive_.watch()) {}
    void run() override {
      if (ServerLoop* const loop = watch.get()) loop->remove(session);
    }
    const Watch<ServerLoop> watch;
    SessionList::iterator session;
  };
  host_.counters.count_opened(shared_.protocol_number(session->protocol()));
  auto end = std::make_unique<End>(*this);
  sessions_.push_back(std::move(session));
  end->session = std::prev(sessions_.end());
  return end;
}

void ServerLoop::start(PortSession& session, std::unique_ptr<detail::Posted> end) {
  shared_.connections.fetch_add(1, std::memory_order_relaxed);
  try {
    session.start(std::move(end), !stop_.serving());
  } catch (const std::exception& error) {
    handshakes_.log_dropped(error);
    session.abort(stopped_);
  }
  if (!sweep_.running()) start_sweep();
  if (!age_timer_.running()) start_age_check();
}

void ServerLoop::on_no_handshakes() noexcept {
  if (stop_.serving()) return;
  try {
    inspect([](ServerLoop& self) { self.continue_shut_down(false); });
  } catch (const std::bad_alloc&) {
    // stop_timer_ looks again.
  }
}

void ServerLoop::start_sweep() {
  if (options_.receive_rate_min == 0 || options_.receive_window <= Duration::zero() ||
      options_.receive_window == forever) {
    return;
  }
  sweep_due_ = loop_.after(options_.receive_window);
  sweep_.start(loop_, sweep_due_);
}

// If the loop itself did not run for a while, data that arrived meanwhile has not been received: a new window begins.
void ServerLoop::sweep() {
  const ServerOptions& options = options_;
  const bool late = loop_.now() - sweep_due_ > options.receive_window / 8;
  const auto window_ms =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(options.receive_window).count());
  const std::uint64_t rate =
      std::min<std::uint64_t>(options.receive_rate_min, UINT64_MAX / std::max<std::uint64_t>(window_ms, 1));
  const std::uint64_t bytes = late ? 0 : std::max<std::uint64_t>(1, rate * window_ms / 1000);
  for (const auto& session : sessions_) session->end_if_slow(bytes);
  if (!sessions_.empty()) return start_sweep();
  release_all_idle_memory();  // Once after the end of the last connection.
}

void ServerLoop::remove(SessionList::iterator session) {
  sessions_.erase(session);
  shared_.connections.fetch_sub(1, std::memory_order_relaxed);
  if (!stop_.serving()) continue_shut_down(false);
}

// ---- Background work ----

void ServerLoop::spawn(std::unique_ptr<detail::BackgroundWork> work) {
  loop_.post([watch = alive_.watch(), held = std::move(work)]() mutable {
    ServerLoop* const self = watch.get();
    if (self != nullptr && self->stop_.serving()) self->background_.begin(std::move(held));
  });
}

void ServerLoop::on_background_end() {
  if (!stop_.serving()) continue_shut_down(false);
}

// ---- Leaving ----

void ServerLoop::leave(Duration limit, std::shared_ptr<void> left) {
  if (!stop_.serving()) return;
  left_ = std::move(left);
  leave_end_ = loop_.after(limit);
  check_leaving();
}

// Returns true if the session has no request on its way any more.
bool ServerLoop::leave(PortSession& session) noexcept {
  try {
    return session.leave();
  } catch (const std::bad_alloc&) {
    session.abort(stopped_);
    return true;
  }
}

void ServerLoop::start_age_check() {
  const Duration max = shared_.age.max;
  if (max == forever) return;
  age_timer_.start(loop_, loop_.after(std::clamp<Duration>(max / 16, age_check_min, age_check_max)));
}

void ServerLoop::check_ages() {
  if (!stop_.serving()) return;
  for (const auto& session : sessions_) end_if_old(*session);
  if (!sessions_.empty()) start_age_check();
}

void ServerLoop::end_if_old(PortSession& session) noexcept {
  const auto [max, grace] = shared_.age;
  const std::uint64_t began = static_cast<std::uint64_t>(session.opened().time_since_epoch().count()) + session.slot();
  const Duration beyond = loop_.now() - session.opened() - spread_age(max, began);
  if (beyond < Duration::zero()) return;
  const bool over = beyond >= grace;
  if (over && beyond - grace >= age_rest_max) return session.abort(too_old_);
  try {
    // Behind the grace as in a stop: a busy connection sends the answers of what it has executed.
    if (session.leave() || over) session.go_away();
  } catch (const std::bad_alloc&) {
    session.abort(too_old_);
  }
}

void ServerLoop::check_leaving() {
  bool waits = !handshakes_.empty();
  for (const auto& session : sessions_) waits = !leave(*session) || waits;
  if (waits && loop_.now() < leave_end_) return leave_timer_.start(loop_, loop_.after(leave_check));
  left_.reset();
}

// ---- Stopping ----

Task<void> ServerLoop::shut_down(Duration grace) {
  begin_shut_down(grace, nullptr);
  while (!stop_.stopped()) {
    co_await changed_.wait();
  }
}

void ServerLoop::begin_shut_down(Duration grace, Stopped* listener) {
  if (listener != nullptr) stop_listener_ = listener;
  if (stop_.begin(loop_.now(), grace, loop_.after(grace))) {
    leave_timer_.stop();
    left_.reset();
    for (const auto& session : sessions_) {
      try {
        session->go_away();
      } catch (const std::bad_alloc&) {
        session->abort(stopped_);
      }
    }
  }
  {
    const StopsTokens stops(host_);
    host_.stopping.request_stop();
  }
  continue_shut_down(false);
}

// `due`: the timer calls. Only then calls are cancelled and ended, since a handler may have requested the stop.
void ServerLoop::continue_shut_down(bool due) {
  if (stop_.stopped()) return;
  if (idle()) return finish_shut_down();
  const Time now = loop_.now();
  if (due && stop_.cancels(now)) cancel_all();
  if (due && stop_.ends(now)) end_all();
  if (stop_.phase() == StopSchedule::Phase::ending) {
    if (due && !destroy_calls()) return stop_timer_.start(loop_, now);
    if (idle()) finish_shut_down();
    return;  // Only offloaded functions are left otherwise; they cannot be ended.
  }
  if (due) {
    for (const auto& session : sessions_) {
      if (session->silent_checks() >= silent_checks_max) session->abort(stopped_);
    }
    handshakes_.close_old(silent_checks_max);
    if (idle()) return finish_shut_down();
    stop_.checked(now);
  }
  stop_timer_.start(loop_, stop_.next());
}

void ServerLoop::finish_shut_down() noexcept {
  stop_.stop();
  stop_timer_.stop();
  changed_.notify_all();
  if (stop_listener_ != nullptr) stop_listener_->on_stopped();
}

void ServerLoop::cancel_all() noexcept {
  const StopsTokens stops(host_);
  background_.cancel();
  for (const auto& session : sessions_) {
    try {
      session->cancel_calls(stopped_);
    } catch (const std::bad_alloc&) {
      // The end of this phase ends these calls.
    }
  }
}

void ServerLoop::end_all() noexcept {
  background_.clear();
  handshakes_.clear();
  for (const auto& session : sessions_) session->abort(stopped_);
}

// Destroys the calls of a portion. True if none are left.
bool ServerLoop::destroy_calls() noexcept {
  std::size_t left = CallCancelling::calls_tick_max;
  for (const auto& session : sessions_) {
    left -= session->destroy_calls(left);
    if (left == 0) return false;
  }
  return true;
}

}  // namespace hawser::rpc
