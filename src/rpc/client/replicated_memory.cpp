#include "hawser/replicated_memory.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "exec/condition.h"
#include "hawser/client.h"
#include "hawser/scope.h"
#include "rpc/client/hedge_times.h"
#include "rpc/client/limited_wait.h"

namespace hawser {
namespace {

constexpr std::uint32_t read_method = 0;  // All reads have the same usual time.
constexpr std::size_t landings_kept = 4;
constexpr std::size_t landing_bytes_kept = std::size_t{1} << 20;
constexpr unsigned losses_allowed = 2;  // In a row.
constexpr Duration penalty_min = std::chrono::milliseconds(100);
constexpr Duration penalty_max = std::chrono::seconds(10);

// A replica, and what its reads have shown.
class ReplicaReader {
 public:
  explicit ReplicaReader(const MemoryReplica& of) noexcept : client_(of.client), region_(of.region) {}

  bool usable(Time now) const noexcept { return client_->connected() && now >= penalty_end_; }
  std::size_t reading() const noexcept { return reading_; }

  // Memory for a read of so many bytes that no earlier read uses any more.
  Result<RegisteredBuffer> take_landing(std::size_t bytes) {
    const auto fits = std::ranges::find_if(
        landings_, [bytes](const RegisteredBuffer& one) { return one.size() >= bytes && !one.in_use(); });
    if (fits == landings_.end()) return RegisteredBuffer::allocate(*client_, std::max<std::size_t>(bytes, 1));
    RegisteredBuffer taken = std::move(*fits);
    landings_.erase(fits);
    return taken;
  }
  void give_landing(RegisteredBuffer landing) {
    if (landing.size() == 0 || landing.size() > landing_bytes_kept) return;
    // A smaller one would be of less use.
    if (landings_.size() == landings_kept) landings_.erase(landings_.begin());
    landings_.push_back(std::move(landing));
  }
  void begin_read() noexcept { ++reading_; }
  void end_read() noexcept { --reading_; }
  Task<Result<void>> read(std::uint64_t offset, MutableBytes into, const RemoteOptions& options) const {
    return RemoteMemory(*client_).read(region_, offset, into, options);
  }

  void won() noexcept {
    losses_ = 0;
    penalty_ = Duration::zero();
  }
  // Another replica was faster.
  void lost(Time now) noexcept {
    if (++losses_ > losses_allowed) punish(now);
  }
  void failed(Time now) noexcept {
    losses_ = losses_allowed + 1;
    punish(now);
  }

 private:
  void punish(Time now) noexcept {
    penalty_ = std::clamp(penalty_ * 2, penalty_min, penalty_max);
    penalty_end_ = now + penalty_;
  }

  Client* const client_;
  const RemoteRegion region_;
  std::vector<RegisteredBuffer> landings_;
  std::size_t reading_ = 0;  // Reads in progress.
  unsigned losses_ = 0;      // In a row.
  Duration penalty_{};       // The last one; doubled by the next.
  Time penalty_end_{};
};

// Another replica may have what this one has not.
bool may_succeed_elsewhere(const Error& error) noexcept {
  return error.code != ErrorCode::cancelled && error.code != ErrorCode::deadline_exceeded &&
         error.code != ErrorCode::invalid_argument;
}

}  // namespace

struct ReplicatedMemory::State {
  State(std::span<const MemoryReplica> of, const HedgeOptions& with) : hedging(with) {
    replicas.reserve(of.size());
    for (const MemoryReplica& one : of) replicas.emplace_back(one);
  }

  // The replica for the next attempt of a read that has tried `tried`: one that can serve, with the fewest reads, each
  // in turn. Null: all were tried.
  ReplicaReader* choose(const std::vector<ReplicaReader*>& tried, Time now) {
    ReplicaReader* best = nullptr;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
      ReplicaReader& one = replicas[(turn + i) % replicas.size()];
      if (std::ranges::find(tried, &one) != tried.end()) continue;
      if (best == nullptr || one.usable(now) > best->usable(now) ||
          (one.usable(now) == best->usable(now) && one.reading() < best->reading())) {
        best = &one;
      }
    }
    ++turn;
    return best;
  }

  const HedgeOptions hedging;
  std::vector<ReplicaReader> replicas;
  rpc::HedgeTimes times;
  std::size_t turn = 0;
  ReplicatedReads counts;
};

namespace {

// One read at one replica. It lives until the whole read has its result.
class ReplicaAttempt {
 public:
  enum class Kind : std::uint8_t { first, copy, failover };
  ReplicaAttempt(ReplicaReader& at, RegisteredBuffer into, Kind with, Time now) noexcept
      : replica(at), kind(with), began(now), landing_(std::move(into)) {
    replica.begin_read();
  }
  ReplicaAttempt(const ReplicaAttempt&) = delete;
  ReplicaAttempt& operator=(const ReplicaAttempt&) = delete;
  ~ReplicaAttempt() {
    replica.end_read();
    replica.give_landing(std::move(landing_));
  }

  // An exception of this task would end the process.
  Task<void> run(std::uint64_t offset, std::size_t bytes, RemoteOptions options, exec::Condition& changed) {
    try {
      result_ = co_await replica.read(offset, landing_.memory().first(bytes), options);
    } catch (const std::bad_alloc&) {
      result_ = fail(Error::of_call(ErrorCode::overloaded, "no memory"));
    }
    changed.notify_all();
  }
  bool running() const noexcept { return !result_.has_value(); }
  // The result, once. Null: it has none yet, or it was taken.
  Result<void>* take_result() noexcept { return result_ && !std::exchange(taken_, true) ? &*result_ : nullptr; }
  Bytes landed(std::size_t bytes) const noexcept { return landing_.memory().first(bytes); }

  ReplicaReader& replica;
  const Kind kind;
  const Time began;

 private:
  RegisteredBuffer landing_;
  std::optional<Result<void>> result_;
  bool taken_ = false;
};

}  // namespace

// One read. The coroutine of ReplicatedMemory::read() has it.
class ReplicatedMemory::Reading {
 public:
  Reading(State& state, Loop& loop, std::uint64_t offset, MutableBytes into, const RemoteOptions& options)
      : state_(state),
        loop_(loop),
        offset_(offset),
        into_(into),
        options_(options),
        end_(options.timeout < Time::max() - loop.now() ? loop.now() + options.timeout : Time::max()),
        delay_(state.times.begin_call(state.hedging, read_method, loop.now())),
        changed_(loop) {
    if (delay_) next_copy_ = loop.now() + *delay_;
  }

  Task<Result<void>> run() {
    CO_TRY(begin(ReplicaAttempt::Kind::first));
    for (;;) {
      // A failure begins further attempts, some of which may have ended already.
      for (std::size_t i = 0; i < attempts_.size(); ++i) {
        ReplicaAttempt& one = *attempts_[i];
        Result<void>* const result = one.take_result();
        if (result == nullptr) continue;
        if (*result) co_return succeed(one);
        if (!may_succeed_elsewhere(result->error())) co_return std::move(*result);
        one.replica.failed(loop_.now());
        failure_ = std::move(result->error());
        CO_TRY(const bool begun, begin(ReplicaAttempt::Kind::failover));
        if (begun) ++state_.counts.failovers;
      }
      if (std::ranges::none_of(attempts_, &ReplicaAttempt::running, [](const auto& one) -> auto& { return *one; })) {
        failure_->text += "; each of " + std::to_string(attempts_.size()) + " replicas has failed";
        co_return fail(std::move(*failure_));
      }
      if (loop_.now() >= next_copy_) {
        CO_TRY(copy());
        continue;
      }
      rpc::LimitedWait wait(loop_, changed_, next_copy_, {});
      co_await wait.end();
    }
  }

 private:
  // False: all replicas were tried.
  Result<bool> begin(ReplicaAttempt::Kind kind) {
    ReplicaReader* const at = state_.choose(tried_, loop_.now());
    if (at == nullptr) return false;
    tried_.push_back(at);
    TRY(RegisteredBuffer landing, at->take_landing(into_.size()));
    attempts_.push_back(std::make_unique<ReplicaAttempt>(*at, std::move(landing), kind, loop_.now()));
    RemoteOptions with = options_;
    if (end_ != Time::max()) with.timeout = std::max(end_ - loop_.now(), Duration::zero());
    scope_.spawn(attempts_.back()->run(offset_, into_.size(), with, changed_));
    return true;
  }
  // The usual time has passed.
  Result<void> copy() {
    next_copy_ = Time::max();
    if (copies_ + 1 >= state_.hedging.attempts_max || !state_.times.may_copy()) return {};
    TRY(const bool begun, begin(ReplicaAttempt::Kind::copy));
    if (!begun) return {};
    ++copies_;
    ++state_.counts.copies;
    state_.times.begin_copy();
    next_copy_ = loop_.now() + std::max(*delay_, state_.hedging.delay_min);
    return {};
  }
  Result<void> succeed(const ReplicaAttempt& winner) {
    const Time now = loop_.now();
    for (const auto& one : attempts_) {
      // The others would have taken longer than until now.
      if (one.get() != &winner && !one->running()) continue;
      if (!state_.hedging.delay) state_.times.observe(read_method, now - one->began, now);
      if (one.get() != &winner && one->began <= winner.began) one->replica.lost(now);
    }
    winner.replica.won();
    if (winner.kind == ReplicaAttempt::Kind::copy) ++state_.counts.copies_used;
    if (!into_.empty()) std::memcpy(into_.data(), winner.landed(into_.size()).data(), into_.size());
    return {};
  }

  State& state_;
  Loop& loop_;
  const std::uint64_t offset_;
  const MutableBytes into_;
  const RemoteOptions options_;
  const Time end_;
  const std::optional<Duration> delay_;  // Until a copy is made. Empty: none is made because of the time.
  Time next_copy_ = Time::max();
  unsigned copies_ = 0;
  std::optional<Error> failure_;  // The last one.
  exec::Condition changed_;       // Notified when an attempt has ended.
  std::vector<ReplicaReader*> tried_;
  std::vector<std::unique_ptr<ReplicaAttempt>> attempts_;
  Scope scope_;  // Declared last: the attempts end before what they use.
};

ReplicatedMemory::ReplicatedMemory(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

Result<ReplicatedMemory> ReplicatedMemory::create(std::span<const MemoryReplica> replicas,
                                                  const HedgeOptions& hedging) {
  TRY(rpc::check_hedging(hedging));
  if (replicas.empty()) {
    return fail(ErrorCode::invalid_argument, "a ReplicatedMemory has 0 replicas: it needs at least one");
  }
  for (const MemoryReplica& one : replicas) {
    if (one.client == nullptr) return fail(ErrorCode::invalid_argument, "the client of a MemoryReplica is null");
    if (one.region.bytes == replicas.front().region.bytes) continue;
    return fail(ErrorCode::invalid_argument,
                "the regions of a ReplicatedMemory have " + std::to_string(replicas.front().region.bytes) + " and " +
                    std::to_string(one.region.bytes) + " bytes: expose as many bytes at each peer");
  }
  return ReplicatedMemory(std::make_shared<State>(replicas, hedging));
}

Task<Result<void>> ReplicatedMemory::read(std::uint64_t offset, MutableBytes into, RemoteOptions options) const {
  return run(state_, offset, into, options);
}

Task<Result<void>> ReplicatedMemory::run(std::shared_ptr<State> state, std::uint64_t offset, MutableBytes into,
                                         RemoteOptions options) {
  Reading reading(*state, *Loop::current(), offset, into, options);
  Result<void> result = co_await reading.run();
  ++state->counts.reads;
  co_return result;
}

ReplicatedReads ReplicatedMemory::counts() const noexcept { return state_->counts; }

}  // namespace hawser
