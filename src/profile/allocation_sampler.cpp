#include "profile/allocation_sampler.h"

#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/at_fork.h"
#include "base/kernel_random.h"
#include "base/random.h"
#include "heap/allocation_hook.h"

namespace hawser {
namespace detail::allocation_hook {

constinit std::atomic<std::uint32_t> profile{0};
constinit std::atomic<Operators> operators{Operators::absent};

}  // namespace detail::allocation_hook

namespace {

constexpr std::size_t interval_max = std::size_t{1} << 30;
constexpr std::size_t live_limit = std::size_t{4} << 20;
constexpr std::size_t stacks_limit = std::size_t{256} << 10;
// Frames of the sampler and of operator new, at most.
constexpr std::size_t inner_frames_max = 8;
// Room of a report for stacks that are recorded while its memory is made. With more, it begins again.
constexpr std::size_t stacks_added_meanwhile = 64;

struct Recorded {
  std::uint64_t hash;
  std::size_t depth;
  std::array<const void*, AllocationSampler::frames_max> frames;
  AllocationSampler::Totals totals;
};

struct Live {
  void* memory;  // Null: the place is free.
  std::uint64_t bytes;
  std::uint32_t stack;
};

// Memory that the allocators under observation do not provide, so that using it records nothing.
template <class T>
std::span<T> map_array(std::size_t count) noexcept {
  void* const at =
      ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? std::span<T>() : std::span<T>(static_cast<T*>(at), count);
}

template <class T>
void unmap(std::span<T>& array) noexcept {
  if (!array.empty()) ::munmap(array.data(), array.size_bytes());
  array = {};
}

std::size_t hash_of(const void* memory) noexcept {
  return (reinterpret_cast<std::uintptr_t>(memory) >> 4) * 0x9e3779b97f4a7c15U >> 20;
}

// The number of allocations for which one that was recorded stands.
double weight_of(std::uint64_t bytes, std::size_t interval) noexcept {
  return -1 / std::expm1(-static_cast<double>(bytes) / static_cast<double>(interval));
}

// Everything about the sampler, for the life of the process. It has no destructor, because memory is freed until the
// end of the process.
struct State {
  void drop_tables() noexcept;
  std::uint32_t stack_of(std::span<const void* const> frames) noexcept;
  void add_live(void* memory, std::uint64_t bytes, std::uint32_t stack) noexcept;
  void remove_live(void* memory) noexcept;
  std::size_t place_of(const void* memory) const noexcept;

  std::mutex tables;  // Held while the tables are made and unmapped, and by readers of `stacks`. Locked first.
  std::mutex mutex;   // Guards all members. It is held for a short time, because allocations wait for it.
  bool used = false;
  std::uint32_t number = 0;
  std::chrono::steady_clock::time_point begin{};
  std::uint64_t threads = 0;
  std::uint64_t seed = 0;
  AllocationSampler::Options options;
  std::span<Live> live;              // A hash table with linear probing.
  std::span<std::uint32_t> by_hash;  // One more than the number of a stack; 0: the place is free.
  // The last one has the allocations without a stack. Of the others, stack_count are used; only their totals change.
  std::span<Recorded> stacks;
  std::size_t live_count = 0;
  std::size_t stack_count = 0;
  std::uint64_t without_stack = 0;
  std::uint64_t not_followed = 0;
};

constinit State state;
constinit std::atomic<bool> continuous_now{false};

// Counts the recorded allocations that are live, by the hash of their addresses, so that forget() needs no lock for
// nearly all others. Written with the lock. A count that has reached 255 stays.
constexpr std::size_t filter_places = std::size_t{1} << 18;
constinit std::array<std::uint8_t, filter_places> filter{};

std::atomic_ref<std::uint8_t> filter_of(const void* memory) noexcept {
  return std::atomic_ref(filter[hash_of(memory) % filter_places]);
}

struct Thread {
  std::uint32_t profile = 0;
  bool inside = false;    // The thread is in the sampler, and does not record its own allocations.
  std::int64_t left = 0;  // Bytes until the next recorded one.
  std::uint64_t random = 0;
};
constinit thread_local Thread here;

// While it exists, allocations of the thread are not recorded: the thread holds the lock.
class Inside {
 public:
  Inside() noexcept { here.inside = true; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { here.inside = false; }
};

// Draws the distance to the next recorded byte, which has an exponential distribution.
std::int64_t draw(Thread& thread, std::size_t interval) noexcept {
  Random random(thread.random);
  const double chance = (static_cast<double>(random.next() >> 11) + 0.5) * 0x1.0p-53;  // Between 0 and 1.
  thread.random += 0x9e3779b97f4a7c15U;
  return static_cast<std::int64_t>(-std::log(chance) * static_cast<double>(interval)) + 1;
}

void State::drop_tables() noexcept {
  unmap(live);
  unmap(by_hash);
  unmap(stacks);
}

std::uint32_t State::stack_of(std::span<const void* const> frames) noexcept {
  std::uint64_t hash = 0;
  for (const void* const frame : frames) hash = Random(hash ^ reinterpret_cast<std::uintptr_t>(frame)).next();
  const std::size_t mask = by_hash.size() - 1;
  std::size_t at = hash & mask;
  for (; by_hash[at] != 0; at = (at + 1) & mask) {
    const Recorded& one = stacks[by_hash[at] - 1];
    if (one.hash == hash && std::ranges::equal(std::span(one.frames).first(one.depth), frames)) return by_hash[at] - 1;
  }
  if (stack_count == options.stacks_max) {
    ++without_stack;
    return static_cast<std::uint32_t>(options.stacks_max);
  }
  Recorded& added = stacks[stack_count];
  added.hash = hash;
  added.depth = frames.size();
  std::ranges::copy(frames, added.frames.begin());
  by_hash[at] = static_cast<std::uint32_t>(++stack_count);
  return by_hash[at] - 1;
}

// The place of `memory`, or the free one where it would be.
std::size_t State::place_of(const void* memory) const noexcept {
  std::size_t at = hash_of(memory) & (live.size() - 1);
  while (live[at].memory != nullptr && live[at].memory != memory) at = (at + 1) & (live.size() - 1);
  return at;
}

void State::add_live(void* memory, std::uint64_t bytes, std::uint32_t stack) noexcept {
  remove_live(memory);  // It was freed in a way that is not observed.
  if (live_count == options.live_max) {
    ++not_followed;
    return;
  }
  live[place_of(memory)] = {memory, bytes, stack};
  ++live_count;
  AllocationSampler::Totals& totals = stacks[stack].totals;
  const double weight = weight_of(bytes, options.interval_bytes);
  totals.live_objects += weight;
  totals.live_bytes += weight * static_cast<double>(bytes);
  const std::atomic_ref<std::uint8_t> count = filter_of(memory);
  if (const std::uint8_t before = count.load(std::memory_order_relaxed); before != 255) {
    count.store(static_cast<std::uint8_t>(before + 1), std::memory_order_relaxed);
  }
}

void State::remove_live(void* memory) noexcept {
  std::size_t hole = place_of(memory);
  if (live[hole].memory == nullptr) return;
  const Live gone = live[hole];
  // The entries behind move up, so that none is cut off from the place that its hash names.
  const std::size_t mask = live.size() - 1;
  for (std::size_t at = (hole + 1) & mask; live[at].memory != nullptr; at = (at + 1) & mask) {
    const std::size_t home = hash_of(live[at].memory) & mask;
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    live[hole] = live[at];
    hole = at;
  }
  live[hole].memory = nullptr;
  --live_count;
  AllocationSampler::Totals& totals = stacks[gone.stack].totals;
  const double weight = weight_of(gone.bytes, options.interval_bytes);
  totals.live_objects -= weight;
  totals.live_bytes -= weight * static_cast<double>(gone.bytes);
  const std::atomic_ref<std::uint8_t> count = filter_of(memory);
  if (const std::uint8_t before = count.load(std::memory_order_relaxed); before != 255) {
    count.store(static_cast<std::uint8_t>(before - 1), std::memory_order_relaxed);
  }
}

// Begins the part of a thread in the profile. Returns false if there is none any more.
bool join_profile(Thread& thread) noexcept {
  const std::lock_guard lock(state.mutex);
  if (detail::allocation_hook::profile.load(std::memory_order_relaxed) == 0) return false;
  thread.profile = state.number;
  thread.random = Random(state.seed + ++state.threads).next();
  thread.left = draw(thread, state.options.interval_bytes);
  return true;
}

[[gnu::noinline]] void record(Thread& thread, void* memory, std::size_t bytes, const void* caller) noexcept {
  std::array<void*, AllocationSampler::frames_max + inner_frames_max> frames;
  const auto depth = static_cast<std::size_t>(std::max(backtrace(frames.data(), static_cast<int>(frames.size())), 0));
  const auto inner = std::span(frames).first(std::min(depth, inner_frames_max));
  const auto found = std::ranges::find(inner, caller);
  const auto begin = static_cast<std::size_t>((found == inner.end() ? inner.begin() : found) - inner.begin());
  std::array<const void*, AllocationSampler::frames_max> kept{};
  const std::size_t count = std::min(depth - begin, kept.size());
  std::copy_n(frames.begin() + static_cast<std::ptrdiff_t>(begin), count, kept.begin());

  const std::lock_guard lock(state.mutex);
  if (thread.profile != state.number || state.live.empty()) return;
  thread.left = draw(thread, state.options.interval_bytes);
  const std::uint32_t stack = state.stack_of(std::span(kept).first(count));
  const std::uint64_t size = std::max<std::size_t>(bytes, 1);
  AllocationSampler::Totals& totals = state.stacks[stack].totals;
  const double weight = weight_of(size, state.options.interval_bytes);
  totals.allocated_objects += weight;
  totals.allocated_bytes += weight * static_cast<double>(size);
  ++totals.samples;
  state.add_live(memory, size, stack);
}

void before_fork() {
  here.inside = true;  // Handlers of others may allocate while the lock is held.
  state.tables.lock();
  state.mutex.lock();
}

void after_fork() {
  state.mutex.unlock();
  state.tables.unlock();
  here.inside = false;
}

void in_child() {
  detail::allocation_hook::profile.store(0);
  continuous_now.store(false);
  state.used = false;
  state.drop_tables();
  after_fork();
}

}  // namespace

void detail::allocation_hook::count(void* memory, std::size_t bytes, const void* caller) noexcept {
  Thread& thread = here;
  if (thread.inside || memory == nullptr) return;
  if (thread.profile != profile.load(std::memory_order_acquire) && !join_profile(thread)) return;
  thread.left -= static_cast<std::int64_t>(std::min(std::max<std::size_t>(bytes, 1), std::size_t{1} << 40));
  if (thread.left > 0) return;
  const Inside inside;
  record(thread, memory, bytes, caller);
}

void detail::allocation_hook::forget(void* memory) noexcept {
  if (memory == nullptr || filter_of(memory).load(std::memory_order_relaxed) == 0 || here.inside) return;
  const std::lock_guard lock(state.mutex);
  if (!state.live.empty()) state.remove_live(memory);
}

void AllocationSampler::prepare_forks() {
  static const bool done = (at_fork(before_fork, after_fork, in_child), true);
  static_cast<void>(done);
}

Result<std::unique_ptr<AllocationSampler>> AllocationSampler::begin(const Options& options) {
  if (options.interval_bytes == 0 || options.interval_bytes > interval_max || options.live_max == 0 ||
      options.live_max > live_limit || options.stacks_max == 0 || options.stacks_max > stacks_limit) {
    return fail(ErrorCode::invalid_argument,
                "a profile of allocations has an interval of 1 byte to 1 GiB, live_max of 1 to 4194304 and stacks_max "
                "of 1 to 262144; these are " +
                    std::to_string(options.interval_bytes) + ", " + std::to_string(options.live_max) + " and " +
                    std::to_string(options.stacks_max));
  }
  std::array<void*, 2> unused;
  backtrace(unused.data(), static_cast<int>(unused.size()));  // Loads the unwinder.
  const std::uint64_t seed = options.seed != 0 ? options.seed : kernel_random();
  prepare_forks();
  const Inside inside;
  std::unique_ptr<AllocationSampler> sampler(new AllocationSampler);  // It does nothing until process_ is set.
  const std::lock_guard tables(state.tables);
  const std::lock_guard lock(state.mutex);
  if (state.used) {
    return fail(ErrorCode::overloaded,
                "a profile of allocations of this process is being taken: wait until it has ended");
  }
  state.live = map_array<Live>(std::bit_ceil(2 * options.live_max));
  state.by_hash = map_array<std::uint32_t>(std::bit_ceil(2 * options.stacks_max));
  state.stacks = map_array<Recorded>(options.stacks_max + 1);
  if (state.live.empty() || state.by_hash.empty() || state.stacks.empty()) {
    state.drop_tables();
    return fail(Error::of_call(ErrorCode::unavailable,
                               "there is not enough address space for the samples of allocations: lower live_max or "
                               "stacks_max"));
  }
  for (std::uint8_t& count : filter) std::atomic_ref(count).store(0, std::memory_order_relaxed);
  state.used = true;
  state.options = options;
  state.seed = seed;
  state.threads = state.without_stack = state.not_followed = 0;
  state.live_count = state.stack_count = 0;
  if (++state.number == 0) ++state.number;
  state.begin = std::chrono::steady_clock::now();
  sampler->process_ = ::getpid();
  continuous_now.store(options.continuous);
  detail::allocation_hook::profile.store(state.number, std::memory_order_release);
  return sampler;
}

AllocationSampler::~AllocationSampler() {
  if (process_ != ::getpid()) return;  // It did not begin, or is the copy in a child process.
  const std::lock_guard tables(state.tables);
  const std::lock_guard lock(state.mutex);
  detail::allocation_hook::profile.store(0);
  continuous_now.store(false);
  state.used = false;
  state.drop_tables();
}

AllocationSampler::Report AllocationSampler::report() {
  Report report;
  const std::lock_guard tables(state.tables);
  // Allocations wait for the other lock, so only the totals are copied under it. Their memory is made before.
  std::vector<Totals> totals;
  std::size_t count = 0;
  for (bool room = false; !room;) {
    totals.resize(count);
    const Inside inside;
    const std::lock_guard lock(state.mutex);
    if (state.live.empty()) return report;
    room = state.stack_count + 1 <= totals.size();
    count = state.stack_count + 1 + (room ? 0 : stacks_added_meanwhile);
    if (!room) continue;
    report.profile = state.number;
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - state.begin).count();
    report.interval_bytes = state.options.interval_bytes;
    report.without_stack = state.without_stack;
    report.not_followed = state.not_followed;
    for (std::size_t i = 0; i < state.stack_count; ++i) totals[i] = state.stacks[i].totals;
    totals[state.stack_count] = state.stacks[state.options.stacks_max].totals;
  }
  totals.resize(count);
  // The frames of a stack do not change while the tables exist.
  for (std::size_t i = 0; i < count; ++i) {
    if (totals[i].samples == 0) continue;
    Stack stack{.totals = totals[i]};
    if (i + 1 < count) {
      const Recorded& one = state.stacks[i];
      stack.frames.assign(one.frames.begin(), one.frames.begin() + static_cast<std::ptrdiff_t>(one.depth));
    }
    // Sums of rounded numbers may miss 0.
    if (stack.totals.live_objects < 0.01) stack.totals.live_objects = stack.totals.live_bytes = 0;
    report.stacks.push_back(std::move(stack));
  }
  return report;
}

bool AllocationSampler::continuous() noexcept { return continuous_now.load(); }

}  // namespace hawser
