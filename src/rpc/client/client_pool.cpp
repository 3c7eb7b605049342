#include "hawser/client_pool.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "base/random.h"
#include "exec/condition.h"
#include "hawser/detail/loop_access.h"
#include "hawser/scope.h"
#include "rpc/client/client_access.h"
#include "rpc/client/pool_access.h"
#include "transport/network.h"

namespace hawser {
namespace {

// Waiting calls that are resumed at the same time, if so many places are free.
constexpr std::size_t woken_at_once = 32;

}  // namespace

struct ClientPool::State final : detail::LoopUser {
  State(Loop& on, std::shared_ptr<transport::Network> over, std::string to, PoolOptions with)
      : loop(on),
        network(std::move(over)),
        address(std::move(to)),
        options(std::move(with)),
        random(options.backoff_seed != 0 ? options.backoff_seed : detail::LoopAccess::random(on)),
        changed(on),
        reaper(*this) {}

  ~State() {
    if (uses_loop) detail::LoopAccess::remove_user(loop, *this);
  }
  class Wait;
  // Ends the wait of a call whose token was stopped.
  void wake(std::uint64_t wait) noexcept;
  // Resumes the first `count` of the calls that wait. Those that find no place wait again, in the same order.
  void wake_first(std::size_t count = 1) noexcept;
  // Ends the pool, if it has not ended: no connection is opened any more, and all calls end with `why`.
  void end(const char* why);
  void on_loop_end() noexcept override {
    uses_loop = false;
    end("the loop of this pool has ended, as the one of sync_wait() does when that returns: use a Loop that lives "
        "longer");
  }
  static bool usable(const Client& client) { return client.connected() && !client.going_away(); }
  std::shared_ptr<Client> least_loaded() const;
  std::shared_ptr<Client> try_acquire();
  std::size_t usable_clients() const;
  // The address or the options are wrong: another attempt would fail in the same way.
  bool attempts_are_vain() const { return failures != 0 && last_error->code == ErrorCode::invalid_argument; }
  Time deadline_of(const Limits& limits) const noexcept;
  // The error of a call that must not wait for a connection any longer, or not begin to wait.
  std::optional<Error> ended_by(const Limits& limits, Time wait_end) const;
  std::optional<Error> too_many_wait() const;
  // The error of a call after as many failed attempts to connect.
  std::optional<Error> given_up(std::uint64_t failed) const;
  // Drops the clients without calls for which `matches(client)`.
  void drop_if(const auto& matches);
  void drop_dead();
  void reap();
  Task<void> open_one();
  Duration pause_after(unsigned failures);

  Loop& loop;
  const std::shared_ptr<transport::Network> network;
  const std::string address;
  const PoolOptions options;
  Random random;
  std::vector<std::shared_ptr<Client>> clients;  // Connected, or lost and not dropped yet.
  std::size_t opening = 0;                       // Attempts in progress, each of which may become a connection.
  unsigned failures = 0;                         // Failed attempts in a row.
  std::uint64_t attempts_failed = 0;
  std::optional<Error> last_error;
  exec::Condition changed;  // Notified when the pool has ended, and when an attempt to connect has failed.
  // Calls that wait for a connection, by their number and so in the order in which they came. The first one waits for a
  // place or for the end of an attempt; the others wait until they are the first.
  std::map<std::uint64_t, Wait*> waits;
  std::uint64_t next_wait = 0;
  const char* ended = nullptr;       // The reason, once the pool has ended.
  bool uses_loop = false;            // The loop knows that this pool uses it.
  MemberTimer<&State::reap> reaper;  // Closes idle connections; runs only while there are connections.
  Scope scope;
};

// The place of a call among those that wait. The pool resumes the call, and so do the end of its time and a stop of its
// token. It lives in the coroutine that waits. Without `limits`, only the pool resumes it.
class ClientPool::State::Wait {
 public:
  Wait(const std::shared_ptr<State>& pool, const Limits* limits, Time end)
      : state_(*pool), id_(pool->next_wait++), place_(pool->waits.emplace_hint(pool->waits.end(), id_, this)) {
    if (end != Time::max()) timer_.start(pool->loop, end);
    if (limits != nullptr && limits->options.token.stop_possible()) {
      stop_.emplace(limits->options.token, Stop{pool, pool->loop, id_});
    }
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  // It may have been resumed for a place that it has not used.
  ~Wait() {
    state_.waits.erase(place_);
    state_.wake_first();
  }

  bool first() const noexcept { return place_ == state_.waits.begin(); }
  exec::Condition::Waiter& changed() noexcept { return waiter_; }
  void wake() noexcept { waiter_.wake(); }
  // The loop may end before the coroutine.
  void detach() noexcept {
    timer_.stop();
    stop_.reset();
  }

 private:
  // Forwards a stop request, which may come from any thread, to the loop.
  struct Stop {
    std::weak_ptr<State> weak;
    Loop& loop;
    std::uint64_t id;
    void operator()() const {
      loop.post([pool = weak, wait = id] {
        if (const std::shared_ptr<State> state = pool.lock()) state->wake(wait);
      });
    }
  };

  State& state_;
  const std::uint64_t id_;
  const std::map<std::uint64_t, Wait*>::iterator place_;
  exec::Condition::Waiter waiter_ = state_.changed.wait();
  MemberTimer<&Wait::wake> timer_{*this};
  std::optional<std::stop_callback<Stop>> stop_;
};

void ClientPool::State::wake(std::uint64_t wait) noexcept {
  if (const auto found = waits.find(wait); found != waits.end()) found->second->wake();
}

void ClientPool::State::wake_first(std::size_t count) noexcept {
  for (auto at = waits.begin(); at != waits.end() && count != 0; ++at, --count) at->second->wake();
}

ClientPool::ClientPool(std::shared_ptr<State> state) : state_(std::move(state)) {}
ClientPool::~ClientPool() {
  destruction_.send();
  state_->end("the pool was destroyed");
}

void ClientPool::State::end(const char* why) {
  if (ended != nullptr) return;
  detail::LoopAccess::check_thread(loop);
  ended = why;
  reaper.stop();
  scope.clear();
  // Calls keep their clients until they are resumed.
  for (const std::shared_ptr<Client>& client : std::exchange(clients, {})) {
    detail::ClientAccess::at_place(*client, nullptr);
    if (uses_loop) detail::ClientAccess::close(*client, why);
  }
  for (const auto& [id, wait] : waits) wait->detach();
  changed.notify_all();
}

std::shared_ptr<ClientPool> ClientPool::create(Loop& loop, std::shared_ptr<transport::Network> network,
                                               std::string address, PoolOptions options) {
  return std::shared_ptr<ClientPool>(
      new ClientPool(std::make_shared<State>(loop, std::move(network), std::move(address), std::move(options))));
}

std::size_t ClientPool::connections() const noexcept {
  return static_cast<std::size_t>(std::count_if(state_->clients.begin(), state_->clients.end(),
                                                [](const auto& client) { return client->connected(); }));
}

std::size_t ClientPool::calls_in_flight() const noexcept {
  std::size_t sum = 0;
  for (const auto& client : state_->clients) sum += client->calls_in_flight();
  return sum;
}

std::shared_ptr<Client> ClientPool::State::least_loaded() const {
  std::shared_ptr<Client> best;
  for (const auto& client : clients) {
    if (!usable(*client) || detail::ClientAccess::full(*client)) continue;
    if (!best || client->calls_in_flight() < best->calls_in_flight()) best = client;
  }
  return best;
}

// Connections to a stopping server do not count against connections_max: they only finish their last calls.
std::size_t ClientPool::State::usable_clients() const {
  return static_cast<std::size_t>(
      std::count_if(clients.begin(), clients.end(), [](const auto& client) { return usable(*client); }));
}

void ClientPool::State::drop_if(const auto& matches) {
  std::erase_if(clients, [&](const auto& client) {
    if (client->calls_in_flight() != 0 || !matches(*client)) return false;
    detail::ClientAccess::at_place(*client, nullptr);  // Another owner may keep it for longer than this pool lives.
    return true;
  });
}

// Drops lost connections, and connections to a stopping server, once their calls have ended. A client that has lost its
// connection may have calls on the one that it used before a failback.
void ClientPool::State::drop_dead() {
  drop_if([](const Client& client) { return !usable(client); });
}

void ClientPool::State::reap() {
  drop_dead();
  const Time now = loop.now();
  drop_if([&](const Client& client) { return now - client.last_used() >= options.idle_timeout; });
  if (!clients.empty()) reaper.start(loop, loop.after(options.idle_timeout / 2));
}

Duration ClientPool::State::pause_after(unsigned failed) {
  const std::int64_t doublings = std::int64_t{1} << std::min(failed - 1, 20U);
  const Duration whole =
      options.backoff_min < options.backoff_max / doublings ? options.backoff_min * doublings : options.backoff_max;
  return whole / 2 +
         Duration(static_cast<Duration::rep>(random.below(static_cast<std::uint64_t>(whole.count() / 2 + 1))));
}

// An exception of this task would end the process, and an attempt that it left unfinished would be the pool's last one.
Task<void> ClientPool::State::open_one() {
  ++opening;
  std::optional<Error> failure;
  try {
    if (failures != 0) co_await loop.sleep(pause_after(failures));
    auto client = std::shared_ptr<Client>(new Client(&loop, network, options.client));
    Result<void> outcome = co_await client->connect(address);
    if (outcome) {
      clients.push_back(client);
      detail::ClientAccess::at_place(*client, [this] { wake_first(); });
    } else {
      failure = std::move(outcome.error());
    }
  } catch (const std::bad_alloc&) {
    failure = Error::of_connection(ErrorCode::unavailable, "no memory");  // A text that needs none.
  }
  --opening;
  if (!failure) {
    failures = 0;
    if (!reaper.running()) reaper.start(loop, loop.after(options.idle_timeout / 2));
    wake_first();
  } else {
    ++failures;
    ++attempts_failed;
    last_error = std::move(*failure);
    changed.notify_all();
  }
}

// Returns a client that accepts another call, or null: all connections are full, or there is none. Opens another
// connection if that is useful.
std::shared_ptr<Client> ClientPool::State::try_acquire() {
  if (!std::exchange(uses_loop, true)) detail::LoopAccess::add_user(loop, *this);
  for (;;) {
    drop_dead();
    std::shared_ptr<Client> client = least_loaded();
    const bool wants_more = !client || client->calls_in_flight() >= options.calls_per_connection;
    // A busy connection serves the caller while another one is being opened.
    if (!wants_more || opening != 0 || attempts_are_vain() || usable_clients() >= options.connections_max)
      return client;
    scope.spawn(open_one());  // The attempt may succeed at once.
  }
}

// The first one that waits tries again: it may open a connection that nobody needed before.
std::shared_ptr<Client> ClientPool::try_acquire(State& state) {
  if (state.waits.empty()) return state.try_acquire();
  state.wake_first();
  return nullptr;
}

Time ClientPool::State::deadline_of(const Limits& limits) const noexcept {
  const Duration timeout = limits.options.timeout.value_or(limits.streams ? forever : options.client.call_timeout);
  return timeout < Time::max() - loop.now() ? loop.now() + timeout : Time::max();
}

std::optional<Error> ClientPool::State::ended_by(const Limits& limits, Time wait_end) const {
  if (limits.options.token.stop_requested()) {
    return Error::of_call(ErrorCode::cancelled, "the caller cancelled the call");
  }
  if (loop.now() >= *limits.deadline) {
    return Error::of_call(ErrorCode::deadline_exceeded,
                          "no connection within the call's timeout; the call was not sent");
  }
  if (loop.now() < wait_end) return std::nullopt;
  const auto wait_ms = std::chrono::duration_cast<std::chrono::milliseconds>(options.wait_max).count();
  if (usable_clients() == 0) {
    return Error::of_call(ErrorCode::unavailable, "no connection to " + address + " within " + std::to_string(wait_ms) +
                                                      " ms (PoolOptions::wait_max)" +
                                                      (last_error ? "; the last attempt: " + last_error->text : ""));
  }
  return Error::of_call(ErrorCode::overloaded,
                        "no connection to " + address + " took the call within " + std::to_string(wait_ms) +
                            " ms (PoolOptions::wait_max); " + std::to_string(usable_clients()) + " of " +
                            count_text(options.connections_max, "connection") +
                            " (connections_max) open: send fewer calls at a time, or raise " +
                            "connections_max, ClientOptions::calls_in_flight_max or the server's "
                            "calls_per_connection_max");
}

std::optional<Error> ClientPool::State::too_many_wait() const {
  if (waits.size() < options.calls_waiting_max) return std::nullopt;
  return Error::of_call(ErrorCode::overloaded,
                        "the queue for a connection to " + address + " has " + count_text(waits.size(), "call") +
                            " already (PoolOptions::calls_waiting_max is " + std::to_string(options.calls_waiting_max) +
                            "): send fewer calls at a time, or raise calls_waiting_max or connections_max");
}

std::optional<Error> ClientPool::State::given_up(std::uint64_t failed) const {
  if (attempts_are_vain()) return last_error;
  if (failed == 0 || failed < options.connect_attempts_max) return std::nullopt;
  Error error = *last_error;
  error.code = ErrorCode::unavailable;
  error.text = "no connection to " + address + " after " + count_text(options.connect_attempts_max, "attempt") +
               "; the last: " + error.text;
  return error;
}

Task<Result<std::shared_ptr<Client>>> ClientPool::acquire(std::shared_ptr<State> pool, Limits* limits) {
  State& state = *pool;
  Loop* const here = Loop::current();
  if (state.ended == nullptr && here == nullptr) detail::LoopAccess::check_thread(state.loop);
  if (state.ended == nullptr && here != nullptr && here != &state.loop) {
    co_return fail(
        ErrorCode::invalid_argument,
        "this pool belongs to another loop than the one that runs here: use it on its own loop, or make another "
        "pool here");
  }
  std::uint64_t failed_before = state.attempts_failed;
  Time wait_end = Time::max();
  std::optional<State::Wait> wait;
  for (;;) {
    if (state.ended != nullptr) co_return fail(Error::of_connection(ErrorCode::unavailable, state.ended));
    const bool begins = limits != nullptr && !limits->deadline;
    if (begins) limits->deadline = state.deadline_of(*limits);
    std::shared_ptr<Client> client;
    if (!wait) {
      client = try_acquire(state);
    } else if (wait->first()) {
      client = state.try_acquire();
    }
    if (client) {
      if (limits != nullptr && *limits->deadline != Time::max()) {
        limits->options.timeout = std::max(*limits->deadline - state.loop.now(), Duration::zero());
      }
      // This call uses one of the places. The next ones run when it was sent.
      if (wait) state.wake_first(std::min(detail::ClientAccess::free_places(*client), woken_at_once));
      co_return client;
    }
    if (!wait && limits != nullptr) {
      wait_end = state.loop.after(state.options.wait_max);
      if (begins) limits->deadline = state.deadline_of(*limits);  // after() has set the time if the turn was long.
    }
    if (limits != nullptr) {
      if (std::optional<Error> over = state.ended_by(*limits, wait_end)) co_return fail(std::move(*over));
    }
    // A connection that is full serves the call later: a server may accept fewer connections than connections_max.
    if (state.usable_clients() != 0) failed_before = state.attempts_failed;
    if (std::optional<Error> over = state.given_up(state.attempts_failed - failed_before)) {
      co_return fail(std::move(*over));
    }
    if (!wait) {
      if (std::optional<Error> over = limits == nullptr ? std::nullopt : state.too_many_wait()) {
        co_return fail(std::move(*over));
      }
      wait.emplace(pool, limits, limits == nullptr ? Time::max() : std::min(wait_end, *limits->deadline));
    }
    co_await wait->changed();
  }
}

std::shared_ptr<Client> detail::PoolAccess::try_acquire(ClientPool& pool) {
  return pool.state_->ended == nullptr ? ClientPool::try_acquire(*pool.state_) : nullptr;
}

Task<Result<std::shared_ptr<Client>>> detail::PoolAccess::acquire(ClientPool& pool,
                                                                  std::optional<CallOptions> options) {
  if (!options) co_return co_await ClientPool::acquire(pool.state_);
  ClientPool::Limits limits{.options = std::move(*options)};
  co_return co_await ClientPool::acquire(pool.state_, &limits);
}

void detail::PoolAccess::end(ClientPool& pool, const char* why) { pool.state_->end(why); }

std::size_t detail::PoolAccess::usable(const ClientPool& pool) noexcept { return pool.state_->usable_clients(); }

}  // namespace hawser
