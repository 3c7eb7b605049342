// Profiles of allocations.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/at_fork.h"
#include "base/random.h"
#include "hawser/heap_profile.h"
#include "heap/allocation_hook.h"
#include "heap/page_memory.h"
#include "observe/profile_sources.h"
#include "profile/allocation_sampler.h"
#include "profile/symbols.h"
#include "tests/profile/profile_testing.h"

namespace hawser::profile_test {

using namespace testing_tools;
using detail::allocation_hook::Operators;
using testing::HasSubstr;

// An allocator that is observed, as operator new and delete are. The sanitizers replace those.
[[gnu::noinline]] void* take(std::size_t bytes) {
  void* const memory = std::malloc(bytes);
  detail::allocation_hook::allocated(memory, bytes, __builtin_return_address(0));
  return memory;
}
[[gnu::noinline]] void give_back(void* memory) {
  detail::allocation_hook::freed(memory);
  std::free(memory);
}

// Sums over the stacks that contain a function of this name.
AllocationSampler::Totals totals_of(std::string_view function) {
  Symbols symbols;
  AllocationSampler::Totals sum;
  for (const AllocationSampler::Stack& stack : AllocationSampler::report().stacks) {
    const bool has = std::ranges::any_of(stack.frames, [&](const void* frame) {
      return symbols.name(static_cast<const char*>(frame) - 1).find(function) != std::string::npos;
    });
    if (!has) continue;
    sum.allocated_objects += stack.totals.allocated_objects;
    sum.allocated_bytes += stack.totals.allocated_bytes;
    sum.live_objects += stack.totals.live_objects;
    sum.live_bytes += stack.totals.live_bytes;
    sum.samples += stack.totals.samples;
  }
  return sum;
}

std::uint64_t samples_of(const AllocationSampler::Report& report) {
  std::uint64_t samples = 0;
  for (const AllocationSampler::Stack& stack : report.stacks) samples += stack.totals.samples;
  return samples;
}

std::unique_ptr<AllocationSampler> begin(const AllocationSampler::Options& options) {
  auto sampler = AllocationSampler::begin(options);
  EXPECT_TRUE(sampler) << error_of(sampler);
  return sampler ? std::move(*sampler) : nullptr;
}

[[gnu::noinline]] void take_small_ones(std::vector<void*>& taken) {
  for (void*& one : taken) one = take(100);
}
[[gnu::noinline]] void take_large_ones(std::vector<void*>& taken) {
  for (void*& one : taken) one = take(20'000);
}

TEST(AllocationSampler, EstimatesWhatWasAllocatedAndWhatIsLive) {
  // About 1000 samples of each kind: the standard deviation is 3 %, and the bounds are five of them.
  std::vector<void*> small(100'000);
  std::vector<void*> large(500);
  const auto sampler = begin({.interval_bytes = 10'000, .seed = 7});
  take_small_ones(small);
  take_large_ones(large);
  const AllocationSampler::Totals of_small = totals_of("take_small_ones");
  EXPECT_NEAR(of_small.allocated_bytes, 10e6, 1.6e6);
  EXPECT_NEAR(of_small.allocated_objects, 100'000, 16'000);
  EXPECT_NEAR(of_small.live_bytes, of_small.allocated_bytes, 1);
  EXPECT_GT(of_small.samples, 500U);
  const AllocationSampler::Totals of_large = totals_of("take_large_ones");
  EXPECT_NEAR(of_large.allocated_bytes, 10e6, 1.6e6);
  EXPECT_NEAR(of_large.allocated_objects, 500, 80);

  for (void* const one : large) give_back(one);
  EXPECT_EQ(totals_of("take_large_ones").live_bytes, 0);
  EXPECT_EQ(totals_of("take_large_ones").live_objects, 0);
  EXPECT_NEAR(totals_of("take_large_ones").allocated_bytes, of_large.allocated_bytes, 1);
  for (std::size_t i = 0; i < small.size() / 2; ++i) give_back(small[i]);
  EXPECT_NEAR(totals_of("take_small_ones").live_bytes, 5e6, 1.2e6);
  for (std::size_t i = small.size() / 2; i < small.size(); ++i) give_back(small[i]);
  EXPECT_EQ(totals_of("take_small_ones").live_bytes, 0);
}

TEST(AllocationSampler, TheSeedChoosesTheSamples) {
  const auto samples = [](std::uint64_t seed) {
    const auto sampler = begin({.interval_bytes = 1'000, .seed = seed});
    // Addresses and other allocations of this thread have no part in it.
    static std::array<char, 2'000> memory;
    for (char& one : memory) detail::allocation_hook::allocated(&one, 10, nullptr);
    std::uint64_t sum = 0;
    for (const AllocationSampler::Stack& stack : AllocationSampler::report().stacks) sum += stack.totals.samples;
    return sum;
  };
  EXPECT_EQ(samples(1), samples(1));
  std::vector<std::uint64_t> several;
  for (std::uint64_t seed = 1; seed < 20; ++seed) several.push_back(samples(seed));
  std::ranges::sort(several);
  EXPECT_NE(several.front(), several.back());
}

TEST(AllocationSampler, IsBounded) {
  EXPECT_ERROR(AllocationSampler::begin({.interval_bytes = 0}), invalid_argument, "1 byte to 1 GiB");
  EXPECT_ERROR(AllocationSampler::begin({.live_max = 0}), invalid_argument, "live_max");
  EXPECT_ERROR(AllocationSampler::begin({.stacks_max = 300'000}), invalid_argument, "262144; these are");
  const auto sampler = begin({.interval_bytes = 1, .live_max = 10, .stacks_max = 1, .seed = 3});
  EXPECT_ERROR(AllocationSampler::begin({}), overloaded, "is being taken");
  std::vector<void*> taken;
  for (int i = 0; i < 20; ++i) taken.push_back(take(1'000));
  for (int i = 0; i < 20; ++i) taken.push_back(take(1'000));
  const AllocationSampler::Report report = AllocationSampler::report();
  ASSERT_LE(report.stacks.size(), 2U);  // The one for which there was room, and the sum of the others.
  EXPECT_GE(report.without_stack, 20U);
  EXPECT_GE(report.not_followed, 30U);
  double live = 0;
  double allocated = 0;
  for (const AllocationSampler::Stack& stack : report.stacks) {
    live += stack.totals.live_objects;
    allocated += stack.totals.allocated_objects;
  }
  EXPECT_LE(live, 10.5);
  EXPECT_GE(allocated, 40);
  for (void* const one : taken) give_back(one);
}

TEST(AllocationSampler, AnAddressThatIsUsedAgainCountsOnce) {
  const auto sampler = begin({.interval_bytes = 1, .seed = 3});
  std::array<char, 64> memory{};
  for (int i = 0; i < 100; ++i) detail::allocation_hook::allocated(memory.data(), 1'000, nullptr);
  double live = 0;
  for (const AllocationSampler::Stack& stack : AllocationSampler::report().stacks) live += stack.totals.live_bytes;
  EXPECT_LT(live, 50'000);  // 1000 and what the test itself uses.
}

// Many threads allocate, free what others have allocated, end, and take reports, while profiles begin and end.
// As a signed number it would be negative, and the thread would record nothing for a long time.
TEST(AllocationSampler, ASizeOfNearlyTwoToThe64IsRecorded) {
  const auto sampler = begin({.interval_bytes = 1 << 30, .seed = 3});
  int object = 0;
  for (const std::size_t bytes : {std::numeric_limits<std::size_t>::max(), std::size_t{1} << 63}) {
    const std::uint64_t before = samples_of(AllocationSampler::report());
    detail::allocation_hook::allocated(&object, bytes, nullptr);
    EXPECT_EQ(samples_of(AllocationSampler::report()), before + 1) << bytes;
    // The next samples are as far apart as before.
    for (int i = 0; i < 1000; ++i) give_back(take(100));
    EXPECT_EQ(samples_of(AllocationSampler::report()), before + 1) << bytes;
  }
}

// pprof has signed numbers of 64 bits.
TEST(AllocationSampler, ValuesBeyondTheRangeOfPprofAreItsLargest) {
  AllocationSampler::Report report{.profile = 1, .seconds = 1, .interval_bytes = 1};
  static const char place = 0;
  for (const double bytes : {9.3e18, 1.8446744073709552e19, 1e30}) {  // Above 2^63, 2^64, and beyond.
    report.stacks = {{.frames = {&place}, .totals = {1, bytes, 1, bytes, 1}}};
    // Two stacks whose functions have the same names are one.
    report.stacks.push_back(report.stacks[0]);
    observe::Profile profile = observe::allocation_profile({}, report, observe::AllocationView::allocated);
    profile.begin = std::chrono::system_clock::now();
    ASSERT_EQ(profile.stacks.size(), 1U);
    EXPECT_EQ(profile.stacks[0].values,
              (std::vector<std::uint64_t>{2, observe::profile_value_max, 2, observe::profile_value_max}));
    const DecodedProfile decoded = decode_pprof(observe::pprof_bytes(profile));
    ASSERT_EQ(decoded.samples.size(), 1U);
    EXPECT_EQ(decoded.samples[0].values[1], std::numeric_limits<std::int64_t>::max());
  }
}

TEST(AllocationSampler, ReportsAreMadeWhileStacksAreAddedAndTheSamplerEnds) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&stop] {
      while (!stop.load()) {
        std::vector<void*> taken(50);
        take_small_ones(taken);
        for (void* const one : taken) give_back(one);
      }
    });
  }
  threads.emplace_back([&stop] {
    while (!stop.load()) {
      for (const AllocationSampler::Stack& stack : AllocationSampler::report().stacks) {
        EXPECT_GT(stack.totals.samples, 0U);
        for (const void* const frame : stack.frames) EXPECT_NE(frame, nullptr);
      }
    }
  });
  for (int i = 0; i < 50; ++i) {
    const auto sampler = begin({.interval_bytes = 500, .stacks_max = 64});
    std::this_thread::sleep_for(1ms);
    EXPECT_EQ(AllocationSampler::report().interval_bytes, 500U);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(AllocationSampler::report().profile, 0U);
}

TEST(AllocationSampler, ManyThreadsAllocateAndFree) {
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::vector<void*> shared;
  const auto work = [&](std::uint64_t seed) {
    Random random(seed);
    std::vector<void*> own;
    while (!stop.load()) {
      own.push_back(take(1 + random.below(2'000)));
      if (random.chance(0.3)) {
        const std::lock_guard lock(mutex);
        shared.push_back(own.back());
        own.pop_back();
        std::swap(shared.back(), shared[random.below(shared.size())]);
        if (random.chance(0.9)) {
          give_back(shared.back());
          shared.pop_back();
        }
      }
      if (own.size() > 100) {
        for (void* const one : own) give_back(one);
        own.clear();
      }
    }
    for (void* const one : own) give_back(one);
  };
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (int round = 0; round < 20; ++round) {
    const auto sampler = begin({.interval_bytes = 500, .live_max = 2'000});
    for (int i = 0; i < 5; ++i) {
      static_cast<void>(AllocationSampler::report());
      std::this_thread::sleep_for(1ms);
    }
  }
  auto sampler = begin({.interval_bytes = 500});
  std::this_thread::sleep_for(20ms);
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  for (void* const one : shared) give_back(one);
  EXPECT_EQ(totals_of("take").live_bytes, 0);
  EXPECT_GT(totals_of("ManyThreads").allocated_bytes + totals_of("_M_run").allocated_bytes + 1, 0);
}

// The lock is free in the child process, and its allocations are not recorded.
// A child would hang if the busy thread held a lock of the sanitizer within its backtrace().
#ifndef HAWSER_SANITIZED
TEST(AllocationSampler, AChildProcessTakesAProfileOfItsOwn) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop.load()) give_back(take(100));
  });
  auto sampler = begin({.interval_bytes = 1});
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      void* const memory = take(1'000);
      bool good = AllocationSampler::report().stacks.empty();
      sampler.reset();
      {
        const auto own = AllocationSampler::begin({.interval_bytes = 1});
        give_back(memory);
        give_back(take(1'000));
        good = good && own.has_value() && !AllocationSampler::report().stacks.empty();
      }
      _exit(good ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop.store(true);
  busy.join();
  EXPECT_FALSE(AllocationSampler::report().stacks.empty());
}
#endif

TEST(AllocationSampler, MappingsOfTheLibraryAreSeen) {
  const auto sampler = begin({.interval_bytes = 1'000, .seed = 2});
  {
    const PageMemory memory = PageMemory::allocate(std::size_t{4} << 20);
    ASSERT_FALSE(memory.empty());
    double live = 0;
    for (const AllocationSampler::Stack& stack : AllocationSampler::report().stacks) {
      live = std::max(live, stack.totals.live_bytes);
    }
    EXPECT_NEAR(live, 4.0 * (1 << 20), 1);
  }
  double live = 0;
  for (const AllocationSampler::Stack& stack : AllocationSampler::report().stacks) {
    live = std::max(live, stack.totals.live_bytes);
  }
  EXPECT_LT(live, 1 << 20);
}

// ---- The operators of the component ----

bool sanitized() { return detail::allocation_hook::operators.load() == Operators::sanitized; }

struct alignas(128) Aligned {
  std::array<char, 256> bytes{};
};

// Each form of operator new is recorded, and each form of operator delete is noticed.
[[gnu::noinline]] void use_each_form(std::vector<void (*)()>& deletes) {
  static std::array<void*, 8> memory;
  constexpr std::align_val_t alignment{64};
  const std::nothrow_t& nothrow = std::nothrow;
  memory = {::operator new(100),
            ::operator new[](100),
            ::operator new(100, nothrow),
            ::operator new[](100, nothrow),
            ::operator new(100, alignment),
            ::operator new[](100, alignment),
            ::operator new(100, alignment, nothrow),
            ::operator new[](100, alignment, nothrow)};
  for (std::size_t i = 4; i < 8; ++i) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory[i]) % 64, 0U);
  deletes = {[] { ::operator delete(memory[0]); },
             [] { ::operator delete[](memory[1], std::size_t{100}); },
             [] { ::operator delete(memory[2], std::nothrow); },
             [] { ::operator delete[](memory[3], std::nothrow); },
             [] { ::operator delete(memory[4], std::size_t{100}, alignment); },
             [] { ::operator delete[](memory[5], alignment); },
             [] { ::operator delete(memory[6], alignment, std::nothrow); },
             [] { ::operator delete[](memory[7], std::size_t{100}, alignment); }};
  STAY_IN_STACK();
}

TEST(HeapProfile, EachFormOfNewAndDeleteIsSeen) {
  auto profile = HeapProfile::begin({.interval_bytes = 1, .seed = 5});
  if (sanitized()) {
    EXPECT_ERROR(profile, unavailable, "sanitizer");
    return;
  }
  ASSERT_TRUE(profile) << error_of(profile);
  std::vector<void (*)()> deletes(8);
  use_each_form(deletes);
  const double objects = totals_of("use_each_form").live_objects;
  EXPECT_NEAR(objects, 8, 0.01);
  for (std::size_t i = 0; i < deletes.size(); ++i) {
    deletes[i]();
    EXPECT_NEAR(totals_of("use_each_form").live_objects, objects - static_cast<double>(i + 1), 0.01) << i;
  }
}

[[gnu::noinline]] std::string failure_of(bool aligned) {
  // Kept from the compiler, which knows that no object is so large.
  std::atomic<std::size_t> bytes{std::numeric_limits<std::size_t>::max() / 2};
  try {
    void* const memory = aligned ? ::operator new(bytes.load(), std::align_val_t{64}) : ::operator new(bytes.load());
    ::operator delete(memory);
  } catch (const std::bad_alloc&) {
    return "bad_alloc";
  }
  return "memory";
}

TEST(HeapProfile, FailuresAreThoseOfTheStandardLibrary) {
  if (sanitized()) return;  // The sanitizer ends the process.
  EXPECT_EQ(failure_of(false), "bad_alloc");
  EXPECT_EQ(failure_of(true), "bad_alloc");
  std::atomic<std::size_t> bytes{std::numeric_limits<std::size_t>::max() - 10};
  EXPECT_EQ(::operator new(bytes.load(), std::nothrow), nullptr);
  EXPECT_EQ(::operator new(bytes.load(), std::align_val_t{64}, std::nothrow), nullptr);
  // The handler runs until it gives up.
  static int calls = 0;
  const std::new_handler before = std::set_new_handler([] {
    if (++calls == 3) std::set_new_handler(nullptr);
  });
  EXPECT_EQ(failure_of(false), "bad_alloc");
  EXPECT_EQ(calls, 3);
  std::set_new_handler([] { throw std::bad_alloc(); });
  EXPECT_EQ(::operator new(bytes.load(), std::nothrow), nullptr);
  std::set_new_handler(before);
  // 0 bytes are memory of their own.
  void* const first = ::operator new(0);
  void* const second = ::operator new(0);
  EXPECT_NE(first, second);
  ::operator delete(first);
  ::operator delete(second);
}

TEST(HeapProfile, ThreadsThatEndAreSeen) {
  const auto profile = HeapProfile::begin({.interval_bytes = 1, .seed = 5});
  if (sanitized()) return;
  ASSERT_TRUE(profile) << error_of(profile);
  struct AtEnd {
    ~AtEnd() { std::string(1'000, 'x').swap(text); }
    std::string text;
  };
  std::thread([] {
    static thread_local AtEnd object;
    object.text = "begun";
  }).join();
  EXPECT_GT(totals_of("AtEnd").allocated_bytes, 900);
  EXPECT_LT(totals_of("AtEnd").live_bytes, 100);
}

// ---- Pages ----

[[gnu::noinline]] void keep_memory(std::vector<std::unique_ptr<char[]>>& kept, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) kept.push_back(std::make_unique<char[]>(std::size_t{64} << 10));
}

TEST(HeapPage, ShowsWhatAProgramAllocatesAndKeeps) {
  if (sanitized()) {
    for (const char* const path : {"/profile/heap", "/profile/allocations"}) {
      const HttpClientResponse response = get({path});
      EXPECT_EQ(response.status, 501);
      EXPECT_THAT(response.body, HasSubstr("sanitizer"));
    }
    return;
  }
  const auto profile = HeapProfile::begin({.interval_bytes = 32 << 10, .seed = 11});
  ASSERT_TRUE(profile) << error_of(profile);
  std::vector<std::unique_ptr<char[]>> kept;
  keep_memory(kept, 400);
  const DecodedProfile heap = decode_pprof(get({"/profile/heap?format=pprof"}).body);
  EXPECT_EQ(heap.types, (std::vector<std::string>{"alloc_objects/count", "alloc_space/bytes", "inuse_objects/count",
                                                  "inuse_space/bytes"}));
  EXPECT_EQ(heap.default_type, "inuse_space");
  EXPECT_EQ(heap.period_type, "space/bytes");
  EXPECT_EQ(heap.period, 32 << 10);
  // 26.2 MB. About 350 of the 400 are samples, and the weights of 64 KiB are nearly 1.
  const Folded live = folded_of(get({"/profile/heap?format=folded"}).body, "keep_memory");
  EXPECT_NEAR(static_cast<double>(live.value), 400.0 * (64 << 10), 400.0 * (64 << 10) * 0.2);
  kept.resize(100);
  const Folded after = folded_of(get({"/profile/heap?format=folded"}).body, "keep_memory");
  EXPECT_LT(after.value, live.value / 2);
  kept.clear();
  EXPECT_EQ(folded_of(get({"/profile/heap?format=folded"}).body, "keep_memory").value, 0U);
  // The allocations before this page are not part of it.
  const HttpClientResponse allocations = get({"/profile/allocations?seconds=1&format=folded"});
  EXPECT_EQ(allocations.status, 200) << allocations.body;
  EXPECT_EQ(folded_of(allocations.body, "keep_memory").value, 0U);
  EXPECT_EQ(get({"/profile/allocations?seconds=1&interval=65536"}).status, 400);
}

// The samples of a profile are subtracted from those of the same one alone.
TEST(HeapPage, AProfileThatEndedMeanwhileIsToldAbout) {
  AllocationSampler::Report before;
  {
    const auto first = begin({.interval_bytes = 1});
    for (int i = 0; i < 100; ++i) give_back(take(100));
    before = AllocationSampler::report();
  }
  const observe::Profile ended =
      observe::allocation_profile(before, AllocationSampler::report(), observe::AllocationView::allocated);
  EXPECT_THAT(ended.caption, HasSubstr(", 0 samples"));
  EXPECT_THAT(ended.caption, HasSubstr("ended its profile meanwhile"));
  const auto second = begin({.interval_bytes = 1});
  for (int i = 0; i < 10; ++i) give_back(take(100));
  const AllocationSampler::Report after = AllocationSampler::report();
  const observe::Profile other = observe::allocation_profile(before, after, observe::AllocationView::allocated);
  EXPECT_GE(other.seconds, 0);
  EXPECT_THAT(other.caption, HasSubstr("ended its profile meanwhile"));
  EXPECT_THAT(other.caption, HasSubstr(", " + std::to_string(samples_of(after)) + " samples"));
}

// The page says since when the memory is in use.
TEST(HeapPage, TheTimeOfAProfileIsThatOfItsSamples) {
  if (sanitized()) return;
  const auto profile = HeapProfile::begin();
  ASSERT_TRUE(profile) << error_of(profile);
  std::this_thread::sleep_for(200ms);
  EXPECT_GE(decode_pprof(get({"/profile/heap?format=pprof"}).body).duration_ns, 200'000'000);
}

TEST(HeapPage, TakesAProfileOfItsOwn) {
  if (sanitized()) return;
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop.load()) {
      std::vector<std::unique_ptr<char[]>> kept;
      keep_memory(kept, 10);
      std::this_thread::sleep_for(1ms);
    }
  });
  const HttpClientResponse folded = get({"/profile/allocations?seconds=1&interval=65536&format=folded"});
  EXPECT_EQ(folded.status, 200) << folded.body;
  EXPECT_GT(folded_of(folded.body, "keep_memory").value, 1'000'000U);
  const DecodedProfile pprof = decode_pprof(get({"/profile/allocations?seconds=1&format=pprof"}).body);
  EXPECT_EQ(pprof.default_type, "alloc_space");
  EXPECT_EQ(pprof.period, 512 << 10);
  EXPECT_GT(pprof.total(1), pprof.total(3));
  const HttpClientResponse html = get({.path = "/profile/heap?seconds=1", .accept = "text/html"});
  EXPECT_THAT(html.body, HasSubstr("still in use of what was allocated in"));
  stop.store(true);
  busy.join();
  EXPECT_EQ(detail::allocation_hook::profile.load(), 0U);
  PagesOptions wrong;
  wrong.heap_profile_live_max = 0;
  const HttpClientResponse refused = get({"/profile/heap?seconds=1"}, wrong);
  EXPECT_EQ(refused.status, 500);
  EXPECT_THAT(refused.body, HasSubstr("live_max"));
}

// fork() holds the lock of the samples while its handlers run. This one was registered before that of the sampler, so
// it runs within it.
struct PausedFork {
  static void pause() {
    if (!wanted.load()) return;
    reached = true;
    while (wanted.load()) std::this_thread::sleep_for(1ms);
  }
  static inline std::atomic<bool> wanted{false};
  static inline std::atomic<bool> reached{false};
  static inline const bool registered = (at_fork(pause, nullptr, nullptr), true);
};

TEST(HeapPage, ALoopDoesNotWaitForTheReport) {
  if (sanitized()) return;
  Server server({.threads = 1});
  enable_pages(server, {.pages = PageAccess::all, .changes = PageAccess::all});
  ASSERT_TRUE(PausedFork::registered && server.start());
  // With this seed, none of the first 32 threads records anything before it has allocated 80 MiB. Who records waits
  // for the lock too.
  auto profile = HeapProfile::begin({.interval_bytes = std::size_t{1} << 30, .seed = 172});
  ASSERT_TRUE(profile) << error_of(profile);
  const std::string base = "http://" + server.address();
  const auto ask = [&base](std::string path, Duration time) -> Task<Result<HttpClientResponse>> {
    HttpClientOptions options;
    options.request_timeout = time;
    HttpClient http(*Loop::current(), options);
    auto response = co_await http.get(base + path);
    co_return response;
  };
  sync_wait([](auto& use) -> Task<void> {
    auto warmed = co_await use("/profile/heap?format=folded", patience);
    EXPECT_OK(warmed);
  }(ask));
  PausedFork::wanted = true;
  std::thread forking([] {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  });
  ASSERT_TRUE(soon([] { return PausedFork::reached.load(); }));
  sync_wait([](auto& use) -> Task<void> {
    int status = 0;
    Scope scope;
    scope.spawn([](auto& asking, int& got) -> Task<void> {
      auto response = co_await asking("/profile/allocations?seconds=1&format=folded", patience);
      EXPECT_OK(response);
      if (response) got = response->status;
    }(use, status));
    co_await Loop::current()->sleep(100ms);
    auto other = co_await use("/health", 10s);
    EXPECT_OK(other);
    EXPECT_EQ(status, 0);
    PausedFork::wanted = false;
    co_await scope.join();
    EXPECT_EQ(status, 200);
  }(ask));
  forking.join();
}

TEST(HeapPage, LimitsAreChecked) {
  for (const char* const query :
       {"seconds=0", "seconds=61", "seconds=18446744073709551615", "seconds=18446744073709551617", "interval=1023",
        "interval=1073741825", "interval=18446744073709551615", "format=exe"}) {
    EXPECT_EQ(get({std::string("/profile/allocations?") + query}).status, 400) << query;
    EXPECT_EQ(get({std::string("/profile/heap?") + query}).status, 400) << query;
  }
  EXPECT_EQ(get({"/profile/heap?seconds=1", "X-Forwarded-For"}).status, 403);
  EXPECT_EQ(get({"/profile/allocations?seconds=1", "Origin"}).status, 403);
  if (sanitized()) return;
  const auto first = begin({});
  EXPECT_EQ(get({"/profile/heap?seconds=1"}).status, 409);
}

}  // namespace hawser::profile_test
