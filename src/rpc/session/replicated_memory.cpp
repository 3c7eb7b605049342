#include "hawser/replicated_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "base/decimal_text.h"
#include "base/try.h"
#include "exec/condition.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "rpc/client/hedge_times.h"
#include "rpc/client/limited_wait.h"
#include "rpc/session/landing_zones.h"
#include "rpc/session/remote_access.h"

namespace hawser {

struct ReplicatedMemory::State {
  static constexpr std::size_t owners_max = 64;
  static constexpr unsigned losses_max = 3;  // In a row.

  struct Owner {
    // Reads that have a choice begin at an owner of the least rank.
    enum class Rank : std::uint8_t { usable, suspended, unreachable };
    Rank rank(Time now) const noexcept {
      if (stale || !client->connected()) return Rank::unreachable;
      const bool tried_again = pause == Duration::zero() || (now >= suspended_until && in_progress == 0);
      return tried_again ? Rank::usable : Rank::suspended;
    }

    Client* client;
    RemoteMemory memory;
    RemoteRegion region;
    detail::LandingZones zones;
    ReplicaState counters = {};
    unsigned losses = 0;                // In a row.
    std::size_t in_progress = 0;        // Accesses.
    unsigned regions = 0;               // Number of set_region().
    bool stale = false;                 // Until set_region(): over RDMA, each access would end the connection.
    Duration pause = Duration::zero();  // The last one. Zero: not suspended since the last success.
    Time suspended_until = {};
  };

  // Accesses that fail together are one failure.
  void suspend(Owner& owner, Time began, Time now) const noexcept {
    if (owner.pause != Duration::zero() && began < owner.suspended_until) return;
    owner.pause = std::clamp(2 * owner.pause, options.suspend_min, options.suspend_max);
    owner.suspended_until = now + owner.pause;
    owner.losses = 0;
  }
  // The owner was too slow for a read.
  void late(Owner& owner, Time began, Time now) const noexcept {
    ++owner.counters.losses;
    if (++owner.losses >= losses_max || owner.pause != Duration::zero()) suspend(owner, began, now);
  }

  ReplicaOptions options;
  std::vector<Owner> owners;
  rpc::HedgeTimes times;
  std::uint64_t copies = 0;
};

// One read in progress.
struct ReplicatedMemory::Run {
  struct Attempt {
    std::size_t owner;
    Time began;
    unsigned region;  // The number of its region, as Owner::regions.
    bool ended = false;
  };

  Run(State& of, std::uint64_t at, std::size_t count, const ReplicaReadOptions& with, Loop& on)
      : state(of),
        loop(on),
        offset(at),
        bytes(count),
        options(with),
        hedging(of.options.hedging),
        changed(on),
        size_class(static_cast<std::uint32_t>(std::bit_width(std::max(count, detail::LandingZones::zone_bytes_min)))) {
    const Time now = loop.now();
    if (options.access.timeout < forever) deadline = loop.after(options.access.timeout);
    delay = state.times.begin_call(hedging, size_class, now);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  // The loop may have ended before.
  ~Run() {
    for (const Attempt& attempt : attempts) {
      if (attempt.ended) continue;
      --state.owners[attempt.owner].in_progress;
      if (result_at) lose(attempt, *result_at);
    }
  }

  static Task<void> access(Run& run, std::size_t index);
  // Returns the index of the attempt that begins now, if any.
  std::optional<std::size_t> next(Time now);
  // Why the read ends without a result, whatever the owners do. Empty: it goes on.
  std::optional<Error> stopped(Time now);
  Error all_failed() const;
  void succeed(const Attempt& attempt, Buffer received);
  void fail_with(const Attempt& attempt, Error error);
  void lose(const Attempt& attempt, Time now) const noexcept;

  State& state;
  Loop& loop;
  const std::uint64_t offset;
  const std::size_t bytes;
  const ReplicaReadOptions& options;
  const HedgeOptions hedging;
  Time deadline = Time::max();
  exec::Condition changed;         // An attempt ended.
  const std::uint32_t size_class;  // Reads of the same class have the same usual time.
  std::optional<Duration> delay;   // Until another owner is read too. Empty: none is because of the time.
  Time next_at = Time::max();
  std::vector<Attempt> attempts;  // Each at another owner.
  std::size_t running = 0;
  unsigned copies = 0;         // Attempts that began because of the time.
  bool wanted = true;          // Another owner is to be read at once.
  bool copy_refused = false;   // By the budget.
  bool copied_always = false;  // The first owner is tried again after a suspension: the copy is not counted.
  std::vector<std::pair<std::size_t, Error>> failures;
  std::exception_ptr thrown;
  std::optional<ReplicaRead> result;
  std::optional<Time> result_at;
  std::size_t winner = 0;  // Index of its attempt.
};

// ---- Choice of the owner ----

std::optional<std::size_t> ReplicatedMemory::Run::next(Time now) {
  const bool late = now >= next_at;
  if (!wanted && !late) return std::nullopt;
  const bool allowed = wanted || copied_always || state.times.may_copy();
  copy_refused = copy_refused || !allowed;
  std::optional<std::size_t> chosen;
  auto best = State::Owner::Rank::unreachable;
  for (std::size_t i = 0; i < state.owners.size() && allowed; ++i) {
    if (std::ranges::any_of(attempts, [&](const Attempt& one) { return one.owner == i; })) continue;
    const auto rank = state.owners[i].rank(now);
    // An unreachable owner refuses at once.
    if (!wanted && rank == State::Owner::Rank::unreachable) continue;
    if (chosen && rank >= best) continue;
    chosen = i;
    best = rank;
  }
  if (chosen && !wanted) {
    ++copies;
    ++state.copies;
    if (!copied_always) state.times.begin_copy();
  }
  if (chosen && attempts.empty()) {
    copied_always = best == State::Owner::Rank::usable && state.owners[*chosen].pause != Duration::zero();
  }
  wanted = false;
  const bool more = delay && copies + 1 < hedging.attempts_max && attempts.size() + 1 < state.owners.size();
  if (more) {
    // A refused copy is tried again later, and not in each turn.
    next_at = now + (chosen ? *delay : std::max<Duration>(*delay, std::chrono::milliseconds(1)));
  } else {
    next_at = Time::max();
  }
  if (!chosen) return std::nullopt;
  attempts.push_back({.owner = *chosen, .began = now, .region = state.owners[*chosen].regions});
  ++state.owners[*chosen].in_progress;
  ++running;
  return attempts.size() - 1;
}

// ---- Ends ----

std::optional<Error> ReplicatedMemory::Run::stopped(Time now) {
  const std::stop_token* const token = options.access.token;
  if (token != nullptr && token->stop_requested()) {
    return Error::of_call(ErrorCode::cancelled, "the read of replicated memory was cancelled");
  }
  if (now < deadline) return std::nullopt;
  for (const Attempt& attempt : attempts) {
    if (!attempt.ended) state.late(state.owners[attempt.owner], attempt.began, now);
  }
  return Error::of_call(ErrorCode::deadline_exceeded,
                        "none of the " + count_text(attempts.size(), "owner") +
                            " that were asked delivered the bytes within RemoteOptions::timeout");
}

Error ReplicatedMemory::Run::all_failed() const {
  Error all = failures.back().second;
  all.scope = ErrorScope::call;
  std::string text = "none of the " + count_text(state.owners.size(), "owner") + " delivered the bytes:";
  for (const auto& [owner, error] : failures) {
    text += " [owner " + std::to_string(owner) + ": " + error.text + "]";
    if (error.code != all.code) all.code = ErrorCode::unavailable;
  }
  all.text = std::move(text);
  return all;
}

void ReplicatedMemory::Run::succeed(const Attempt& attempt, Buffer received) {
  if (result) return;
  const Time now = loop.now();
  State::Owner& owner = state.owners[attempt.owner];
  if (copy_refused && &attempt == &attempts.front()) {
    // No other owner has shown whether it would have been faster.
    state.late(owner, attempt.began, now);
  } else {
    owner.losses = 0;
    owner.pause = Duration::zero();
  }
  if (options.accept && !options.accept(received.bytes())) {
    ++owner.counters.refused;
    failures.emplace_back(attempt.owner,
                          Error::of_call(ErrorCode::unavailable, "ReplicaReadOptions::accept refused its bytes"));
    wanted = true;
    return;
  }
  ++owner.counters.reads;
  state.times.observe(size_class, now - attempt.began, now);
  result = {std::move(received), attempt.owner};
  result_at = now;
  winner = static_cast<std::size_t>(&attempt - attempts.data());
}

void ReplicatedMemory::Run::fail_with(const Attempt& attempt, Error error) {
  if (result) return;
  State::Owner& owner = state.owners[attempt.owner];
  if (error.code == ErrorCode::deadline_exceeded &&
      loop.now() >= deadline) {  // The read has the same deadline and ends now.
    state.late(owner, attempt.began, loop.now());
    return;
  }
  ++owner.counters.failures;
  switch (error.code) {
    case ErrorCode::stale_handle: owner.stale = attempt.region == owner.regions; break;
    case ErrorCode::not_sent:        // There is no connection, which connected() says too.
    case ErrorCode::limit_exceeded:  // The owner was not asked.
    case ErrorCode::overloaded: break;
    default: state.suspend(owner, attempt.began, loop.now());
  }
  failures.emplace_back(attempt.owner, std::move(error));
  wanted = true;
}

// Another owner was faster. The read would have taken longer here than until now.
void ReplicatedMemory::Run::lose(const Attempt& attempt, Time now) const noexcept {
  if (attempt.began >= attempts[winner].began) return;
  state.times.observe(size_class, now - attempt.began, now);
  state.late(state.owners[attempt.owner], attempt.began, now);
}

// ---- Reads ----

Task<void> ReplicatedMemory::Run::access(Run& run, std::size_t index) {
  try {
    State::Owner& owner = run.state.owners[run.attempts[index].owner];
    RemoteOptions with = run.options.access;
    with.token = nullptr;  // The read itself watches it.
    if (run.deadline != Time::max()) with.timeout = run.deadline - run.loop.now();
    Result<detail::LandingZones::Zone> zone = owner.zones.acquire(*owner.client, run.bytes);
    Result<void> outcome;
    if (owner.stale) {
      outcome = fail(ErrorCode::stale_handle, "its region is not exposed any more: call set_region() with a new one");
    } else if (!zone) {
      outcome = fail(zone.error());
    } else {
      outcome = co_await owner.memory.read(owner.region, run.offset, zone->memory, with);
    }
    --run.running;
    --owner.in_progress;
    Attempt& attempt = run.attempts[index];
    attempt.ended = true;
    if (outcome) {
      run.succeed(attempt, std::move(zone->bytes));
    } else {
      run.fail_with(attempt, std::move(outcome.error()));
    }
  } catch (...) {  // For example one of the caller's check. The read throws it.
    run.thrown = std::current_exception();
  }
  run.changed.notify_all();
}

Task<Result<ReplicaRead>> ReplicatedMemory::run(std::shared_ptr<State> state, std::uint64_t offset, std::size_t bytes,
                                                ReplicaReadOptions options) {
  if (std::string wrong = detail::mistake({.action = wire::MemoryAction::read,
                                           .region = state->owners.front().region,
                                           .single = {nullptr, offset, bytes}});
      !wrong.empty()) {
    co_return fail(ErrorCode::invalid_argument, std::move(wrong));
  }
  static const std::stop_token none;
  const std::stop_token& token = options.access.token != nullptr ? *options.access.token : none;
  Run run(*state, offset, bytes, options, *Loop::current());
  Scope scope;
  while (!run.result) {
    if (run.thrown) std::rethrow_exception(run.thrown);
    const Time now = run.loop.now();
    if (std::optional<Error> reason = run.stopped(now)) co_return fail(std::move(*reason));
    if (const std::optional<std::size_t> begun = run.next(now)) {
      scope.spawn(Run::access(run, *begun));
      continue;
    }
    if (run.running == 0) co_return fail(run.all_failed());
    rpc::LimitedWait wait(run.loop, run.changed, std::min(run.next_at, run.deadline), token);
    co_await wait.end();
  }
  scope.clear();  // The accesses of the others are abandoned.
  co_return std::move(*run.result);
}

Task<Result<void>> ReplicatedMemory::run_into(std::shared_ptr<State> state, std::uint64_t offset, MutableBytes into,
                                              ReplicaReadOptions options) {
  CO_TRY(const ReplicaRead& read, co_await run(std::move(state), offset, into.size(), std::move(options)));
  if (!into.empty()) std::memcpy(into.data(), read.bytes.data(), into.size());
  co_return Result<void>();
}

Task<Result<ReplicaRead>> ReplicatedMemory::read(std::uint64_t offset, std::size_t bytes, ReplicaReadOptions options) {
  return run(state_, offset, bytes, std::move(options));
}

Task<Result<void>> ReplicatedMemory::read_into(std::uint64_t offset, MutableBytes into, ReplicaReadOptions options) {
  return run_into(state_, offset, into, std::move(options));
}

// ---- Owners ----

Result<ReplicatedMemory> ReplicatedMemory::create(std::span<const MemoryReplica> owners,
                                                  const ReplicaOptions& options) {
  if (owners.empty() || owners.size() > State::owners_max) {
    return fail(ErrorCode::invalid_argument, "replicated memory has 1 to " + std::to_string(State::owners_max) +
                                                 " owners, and not " + std::to_string(owners.size()));
  }
  auto state = std::make_shared<State>();
  state->options = options;
  ReplicaOptions& kept = state->options;
  kept.suspend_min = std::clamp<Duration>(options.suspend_min, std::chrono::milliseconds(1), std::chrono::hours(1));
  kept.suspend_max = std::clamp<Duration>(options.suspend_max, kept.suspend_min, std::chrono::hours(1));
  kept.hedging.percentile = std::clamp(options.hedging.percentile, 0.5, 0.999);
  kept.hedging.budget = std::clamp(options.hedging.budget, 0.0, 1.0);
  for (const MemoryReplica& owner : owners) {
    if (owner.client == nullptr) {
      return fail(ErrorCode::invalid_argument, "the client of an owner of replicated memory is null");
    }
    if (!owner.region.readable) {
      return fail(ErrorCode::invalid_argument, "a region of replicated memory was not exposed to be read");
    }
    if (owner.region.bytes != owners.front().region.bytes) {
      return fail(ErrorCode::invalid_argument, "the regions of replicated memory have different sizes: " +
                                                   std::to_string(owners.front().region.bytes) + " and " +
                                                   std::to_string(owner.region.bytes));
    }
    state->owners.push_back({.client = owner.client,
                             .memory = RemoteMemory(*owner.client, options.priority),
                             .region = owner.region,
                             .zones = detail::LandingZones(options.landing_bytes_max)});
  }
  return ReplicatedMemory(std::move(state));
}

Result<void> ReplicatedMemory::set_region(std::size_t owner, const RemoteRegion& region) {
  if (owner >= state_->owners.size()) {
    return fail(ErrorCode::invalid_argument, "there are " + count_text(state_->owners.size(), "owner") +
                                                 ", and none has index " + std::to_string(owner));
  }
  State::Owner& replaced = state_->owners[owner];
  if (region.bytes != replaced.region.bytes) {
    return fail(ErrorCode::invalid_argument, "the new region has " + count_text(region.bytes, "byte") +
                                                 ", and those of the other owners have " +
                                                 std::to_string(replaced.region.bytes));
  }
  replaced.region = region;
  replaced.pause = Duration::zero();
  replaced.losses = 0;
  replaced.stale = false;
  ++replaced.regions;
  return {};
}

std::vector<ReplicaState> ReplicatedMemory::owners() const {
  const Loop* const loop = Loop::current();
  std::vector<ReplicaState> all;
  for (const State::Owner& owner : state_->owners) {
    ReplicaState& one = all.emplace_back(owner.counters);
    one.connected = owner.client->connected();
    one.suspended =
        owner.stale || (owner.pause != Duration::zero() && (loop == nullptr || loop->now() < owner.suspended_until));
  }
  return all;
}

std::uint64_t ReplicatedMemory::copies() const noexcept { return state_->copies; }

}  // namespace hawser
