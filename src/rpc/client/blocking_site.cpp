#include "rpc/client/blocking_site.h"

#include <coroutine>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/decimal_text.h"
#include "base/try.h"
#include "base/what_of.h"
#include "hawser/client.h"
#include "rpc/client/pool_access.h"

namespace hawser::detail {

// A call that waits for a connection, or has waited for one.
struct ThreadCall::Waiting {
  // Forwards a stop request, which may come from any thread, to the loop.
  struct Cancel {
    std::weak_ptr<BlockingState> weak;
    BlockingSite& site;
    std::uint64_t id;
    void operator()() const {
      if (std::shared_ptr<BlockingState> state = weak.lock()) {
        site.loop().post([kept = std::move(state), &on = site, call = id] { on.cancel_waiting(call); });
      }
    }
  };

  Waiting(ThreadCall& owner, std::uint64_t number, CallOptions given)
      : call(owner), id(number), options(std::move(given)) {}
  void expire() noexcept {
    call.fail(
        Error::of_call(ErrorCode::deadline_exceeded, "no connection within the call's timeout; the call was not sent"));
  }

  ThreadCall& call;
  const std::uint64_t id;
  CallOptions options;  // With the time that remains, when the call is sent.
  Time deadline = Time::max();
  std::optional<std::list<ThreadCall*>::iterator> place;
  MemberTimer<&Waiting::expire> timer{*this};
  std::optional<std::stop_callback<Cancel>> stop;
};

ThreadCall::ThreadCall(const std::shared_ptr<BlockingState>& state) : ThreadWork(state) {}
ThreadCall::~ThreadCall() = default;

void ThreadCall::run() { site_.begin(*this); }
void ThreadTask::run() { site_.begin(*this); }

void ThreadCall::on_complete() noexcept {
  if (!std::exchange(listed_, true)) site_.end(*this);
}

void ThreadCall::start(CallChannel* channel) {
  link_.channel = channel;
  operation_->start();
  if (operation_->done_) on_complete();
}

void ThreadCall::set_error(Error error) noexcept {
  repeatable_ = false;
  operation_->error_ = std::move(error);
  operation_->done_ = true;
}

void ThreadCall::fail(Error error) noexcept {
  site_.leave(*this);
  set_error(std::move(error));
  on_complete();
}

void ThreadCall::cancel_here() noexcept {
  Error error = Error::of_call(ErrorCode::cancelled, "the caller cancelled the call");
  if (waiting_ && waiting_->place) {
    fail(std::move(error));
  } else if (operation_->in_flight_) {
    repeatable_ = false;
    operation_->channel_->cancel(operation_->id_, error);
  }
}

// The connection keeps nothing of the call after this, so that the call's thread may destroy it.
bool ThreadCall::settle() noexcept {
  operation_->withdraw();
  listed_ = false;
  const std::optional<Error>& error = operation_->error_;
  if (error && repeatable_ && !site_.closed() &&
      (error->code == ErrorCode::not_sent || error->code == ErrorCode::unavailable)) {
    repeatable_ = false;
    operation_->error_.reset();
    operation_->done_ = false;
    site_.wait(*this);
    return false;
  }
  waiting_.reset();
  return true;
}

void ThreadCall::notify() noexcept {
  const std::shared_ptr<ThreadCall> kept = std::move(shared_);
  if (kept != nullptr) call_back();
  ThreadWork::notify();
  if (kept == nullptr) return;  // Destroyed by its thread.
  std::function<void()> work;
  {
    const std::lock_guard lock(end_mutex_);
    work = std::exchange(at_end_, nullptr);
    // With the lock: the loop exists until the coroutine has gone, which then takes the lock.
    if (waiting_on_ != nullptr) {
      waiting_on_->post([kept] {
        std::unique_lock kept_lock(kept->end_mutex_);
        const std::coroutine_handle<> waiting = std::exchange(kept->coroutine_, nullptr);
        kept_lock.unlock();
        if (waiting) waiting.resume();
      });
    }
  }
  if (work) work();
}

// ---- BlockingSite ----

ClientPool& BlockingSite::pool() {
  if (!pool_) pool_ = ClientPool::create(loop_, state_.address, state_.pool);
  return *pool_;
}

void BlockingSite::begin(ThreadCall& call) {
  if (closed_) return call.fail(ThreadWork::closed_error());
  std::shared_ptr<Client> client;
  try {
    // Calls that wait are served first.
    if (waiting_.empty()) client = ClientPool::try_acquire(*pool().state_);
  } catch (const std::exception& error) {
    return call.fail(Error::of_call(
        ErrorCode::internal, std::string("the call was not sent, because opening a connection threw ") + error.what()));
  }
  if (client) {
    call.start(client->link().channel);
  } else {
    wait(call);
  }
}

void BlockingSite::wait(ThreadCall& call) {
  const std::size_t waiting_max = state_.pool.client.calls_in_flight_max;
  if (waiting_.size() >= waiting_max) {
    return call.fail(
        Error::of_call(ErrorCode::overloaded, "the queue for a connection to " + state_.address + " has " +
                                                  count_text(waiting_max, "call") +
                                                  " already (calls_in_flight_max): wait for replies, or raise it"));
  }
  try {
    const CallOptions* const given = call.options();
    auto waiting = std::make_unique<ThreadCall::Waiting>(call, next_id_++, given != nullptr ? *given : CallOptions());
    // A call that waits again has its first deadline.
    waiting->deadline = call.waiting_ ? call.waiting_->deadline
                                      : loop_.after(waiting->options.timeout.value_or(state_.pool.client.call_timeout));
    waiting->place = waiting_.insert(waiting_.end(), &call);
    call.waiting_ = std::move(waiting);
    ThreadCall::Waiting& queued = *call.waiting_;
    call.options() = &queued.options;
    if (queued.deadline != Time::max()) queued.timer.start(loop_, queued.deadline);
    if (queued.options.token.stop_possible()) {
      queued.stop.emplace(queued.options.token, ThreadCall::Waiting::Cancel{state_.weak_from_this(), *this, queued.id});
    }
    if (!std::exchange(pumping_, true)) scope_.spawn(pump());
  } catch (const std::exception& error) {
    call.fail(Error::of_call(ErrorCode::internal,
                             std::string("the call was not sent, because queueing it threw ") + error.what()));
  }
}

void BlockingSite::leave(ThreadCall& call) noexcept {
  if (!call.waiting_ || !call.waiting_->place) return;
  waiting_.erase(*std::exchange(call.waiting_->place, std::nullopt));
  call.waiting_->stop.reset();
  call.waiting_->timer.stop();
}

void BlockingSite::cancel_waiting(std::uint64_t id) noexcept {
  for (ThreadCall* const call : waiting_) {
    if (call->waiting_->id == id) return call->cancel_here();
  }
}

// Waits for connections on behalf of all calls that wait. They share the attempt and its outcome.
Task<void> BlockingSite::pump() {
  while (!waiting_.empty()) {
    const Result<CallChannel*> channel = co_await acquire();
    if (waiting_.empty()) break;
    if (!channel) {
      while (!waiting_.empty()) waiting_.front()->fail(channel.error());
      break;
    }
    ThreadCall& call = *waiting_.front();
    leave(call);
    ThreadCall::Waiting& waited = *call.waiting_;
    if (waited.deadline != Time::max()) waited.options.timeout = waited.deadline - loop_.now();
    call.start(*channel);
  }
  pumping_ = false;
}

// The channel is valid until the loop runs something else.
Task<Result<CallChannel*>> BlockingSite::acquire() {
  try {
    CO_TRY(const std::shared_ptr<Client>& client, co_await ClientPool::acquire(pool().state_));
    co_return (client)->link().channel;
  } catch (const std::exception& error) {
    co_return fail(ErrorCode::internal,
                   std::string("the call was not sent, because opening a connection threw ") + error.what());
  }
}

void BlockingSite::begin(ThreadTask& task) {
  if (closed_) {
    task.refuse(ThreadWork::closed_error());
    return end(task);
  }
  scope_.spawn(run_task(task));
}

Task<void> BlockingSite::run_task(ThreadTask& task) {
  // Also when the task is destroyed, because the client is closed.
  struct Ending {
    BlockingSite& site;
    ThreadTask& ended;
    Ending(BlockingSite& on, ThreadTask& one) : site(on), ended(one) {}
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;
    ~Ending() { site.end(ended); }
  };
  const Ending ending(*this, task);
  try {
    co_await task.begin(pool());
  } catch (const std::exception& error) {
    task.refuse(Error::of_call(ErrorCode::internal,
                               "the task did not run, because beginning it threw " + std::string(what_of(error))));
  }
}

void BlockingSite::end(ThreadWork& work) noexcept {
  (last_ended_ == nullptr ? first_ended_ : last_ended_->next_ended_) = &work;
  last_ended_ = &work;
  loop_.at_tick_end(*this);
}

// Here and not where the work ended, because the session may still use the operation there. Each work keeps this object
// until its notify().
void BlockingSite::on_tick_end() {
  last_ended_ = nullptr;
  for (ThreadWork* work = std::exchange(first_ended_, nullptr); work != nullptr;) {
    ThreadWork& ended = *std::exchange(work, work->next_ended_);
    ended.next_ended_ = nullptr;
    if (ended.settle()) ended.notify();
  }
}

void BlockingSite::close() noexcept {
  if (std::exchange(closed_, true)) return;
  while (!waiting_.empty()) waiting_.front()->fail(ThreadWork::closed_error());
  scope_.clear();
  if (pool_) PoolAccess::end(*pool_, "the BlockingClient was closed");
  pool_.reset();
}

}  // namespace hawser::detail
