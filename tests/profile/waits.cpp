// Profiles of the waits of threads.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <link.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exec/idle_functions.h"
#include "profile/frame_rules.h"
#include "profile/symbols.h"
#include "profile/wait_sampler.h"
#include "tests/profile/profile_testing.h"

namespace hawser::profile_test {

using namespace testing_tools;
using testing::HasSubstr;
using testing::Not;

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
constexpr bool thread_sanitizer = true;
#else
constexpr bool thread_sanitizer = false;
#endif

// Things to wait for, until the end of the test.
class Blockers {
 public:
  Blockers() { EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Blockers() { release(); }

  void release() {
    if (ends_[1] >= 0) close(std::exchange(ends_[1], -1));
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    if (held_.owns_lock()) held_.unlock();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  void run(std::function<void()> work) { threads_.emplace_back(std::move(work)); }

  [[gnu::noinline]] void wait_on_condition() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    STAY_IN_STACK();
  }
  [[gnu::noinline]] void wait_for_mutex() {
    const std::lock_guard lock(taken_);
    STAY_IN_STACK();
  }
  // Without read(): that of the address sanitizer has no frame, so that its caller is left out of the stack.
  [[gnu::noinline]] void wait_in_read() {
    char byte = 0;
    EXPECT_EQ(syscall(SYS_read, ends_[0], &byte, 1), 0);
    STAY_IN_STACK();
  }
  [[gnu::noinline]] void wait_in_poll() {
    pollfd end{.fd = ends_[0], .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&end, 1, -1), 1);
    STAY_IN_STACK();
  }
  [[gnu::noinline]] void wait_asleep() {
    while (!done()) std::this_thread::sleep_for(50ms);
    STAY_IN_STACK();
  }
  bool done() {
    const std::lock_guard lock(mutex_);
    return done_;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::mutex taken_;
  std::unique_lock<std::mutex> held_{taken_};
  std::vector<std::thread> threads_;
};

// The time of the stacks with a function of this name.
std::uint64_t waited(const WaitSampler& sampler, std::string_view function) {
  Symbols symbols;
  std::uint64_t sum = 0;
  for (const WaitSampler::Stack& stack : sampler.stacks()) {
    const bool has = std::ranges::any_of(stack.frames, [&](const void* frame) {
      return symbols.name(static_cast<const char*>(frame) - 1).find(function) != std::string::npos;
    });
    if (has) sum += stack.nanoseconds;
  }
  return sum;
}

TEST(FrameRules, FunctionsHaveRulesAndDataHasNone) {
  const auto function = reinterpret_cast<std::uintptr_t>(&decode_pprof);
  const std::optional<FrameRules> rules = frame_rules(function);
  ASSERT_TRUE(rules);
  EXPECT_EQ(rules->function, function);
  EXPECT_FALSE(rules->signal);
  // Before the first instruction, the return address lies at the stack pointer.
  EXPECT_EQ(rules->frame_register, stack_pointer_register);
  EXPECT_EQ(rules->frame_offset, 8);
  EXPECT_EQ(rules->registers[return_address_register].kind, FrameRules::Kind::at_offset);
  EXPECT_EQ(rules->registers[return_address_register].number, -8);
  const int data = 0;
  EXPECT_FALSE(frame_rules(reinterpret_cast<std::uintptr_t>(&data)));
  EXPECT_FALSE(is_in_function(0));
}

TEST(WaitSampler, SeesWhereEachThreadWaitsAndForHowLong) {
  Blockers blockers;
  blockers.run([&] { blockers.wait_on_condition(); });
  blockers.run([&] { blockers.wait_for_mutex(); });
  blockers.run([&] { blockers.wait_in_read(); });
  blockers.run([&] { blockers.wait_in_poll(); });
  blockers.run([&] { blockers.wait_asleep(); });
  std::this_thread::sleep_for(50ms);  // They have begun to wait, or else the next loop tries again.
  std::array<std::uint64_t, 5> times{};
  bool all = false;
  for (const auto end = std::chrono::steady_clock::now() + patience; !all && std::chrono::steady_clock::now() < end;) {
    const auto began = std::chrono::steady_clock::now();
    auto sampler = WaitSampler::begin(500, {});
    ASSERT_TRUE(sampler) << error_of(sampler);
    std::this_thread::sleep_for(300ms);
    (*sampler)->stop();
    const auto passed = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - began).count());
    const std::array names{"wait_on_condition", "wait_for_mutex", "wait_in_read", "wait_in_poll", "wait_asleep"};
    for (std::size_t i = 0; i < names.size(); ++i) {
      times[i] = waited(**sampler, names[i]);
      // A wait is not longer than the profile.
      EXPECT_LE(times[i], passed) << names[i];
    }
    all = std::ranges::all_of(times, [&](std::uint64_t time) { return time >= passed / 2; });
    for (const WaitSampler::Stack& stack : (*sampler)->stacks()) {
      EXPECT_EQ((*sampler)->lost_nanoseconds(), 0U);
      EXPECT_LE(stack.frames.size(), 64U);
    }
  }
  EXPECT_TRUE(all) << testing::PrintToString(times);
}

[[gnu::noinline]] void wait_long() {
  std::this_thread::sleep_for(30ms);
  STAY_IN_STACK();
}
[[gnu::noinline]] void wait_short() {
  std::this_thread::sleep_for(3ms);
  STAY_IN_STACK();
}

TEST(WaitSampler, WaitsWeighByTheirTime) {
  std::atomic<bool> stop{false};
  std::thread waiting([&] {
    while (!stop.load()) {
      wait_long();
      wait_short();
    }
  });
  // On a slow machine a second has few samples.
  bool longer = false;
  for (int round = 0; round < 10 && !longer; ++round) {
    auto sampler = WaitSampler::begin(500, {});
    if (!sampler) ADD_FAILURE() << error_of(sampler);
    if (!sampler) break;
    std::this_thread::sleep_for(1s);
    (*sampler)->stop();
    longer = waited(**sampler, "wait_long") > waited(**sampler, "wait_short") && (*sampler)->passes() > 1;
  }
  stop.store(true);
  waiting.join();
  EXPECT_TRUE(longer);
}

// Each wait that a signal would end early ends at its time, and not with EINTR.
void expect_no_wait_ends_early(std::uint64_t& passes) {
  auto sampler = WaitSampler::begin(1000, {});
  ASSERT_TRUE(sampler) << error_of(sampler);
  std::atomic<int> early{0};
  const auto check = [&](auto wait) {
    for (int i = 0; i < 5; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      if (!wait() || std::chrono::steady_clock::now() - begin < 40ms) early.fetch_add(1);
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back(check, [] { return poll(nullptr, 0, 41) == 0; });
  threads.emplace_back(check, [] {
    const timespec time{0, 41'000'000};
    return nanosleep(&time, nullptr) == 0;
  });
  threads.emplace_back(check, [] {
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    const bool good = epoll_wait(epoll, &event, 1, 41) == 0;
    close(epoll);
    return good;
  });
  threads.emplace_back(check, [] {
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 41'000'000;
    until.tv_sec += until.tv_nsec / 1'000'000'000;
    until.tv_nsec %= 1'000'000'000;
    return sem_timedwait(&semaphore, &until) == -1 && errno == ETIMEDOUT;
  });
  for (std::thread& thread : threads) thread.join();
  (*sampler)->stop();
  EXPECT_EQ(early.load(), 0);
  passes = (*sampler)->passes();
}

TEST(WaitSampler, NoWaitEndsEarly) {
  // On a busy machine the sampler may have taken the last sample only.
  std::uint64_t passes = 0;
  EXPECT_TRUE(soon([&] {
    expect_no_wait_ends_early(passes);
    return passes > 1 || testing::Test::HasFailure();
  }));
}

TEST(WaitSampler, TheDeadlinesOfALoopAreKept) {
  // On a busy machine the sampler may have seen nothing.
  EXPECT_TRUE(soon([] {
    auto sampler = WaitSampler::begin(1000, exec::idle_functions());
    EXPECT_TRUE(sampler) << error_of(sampler);
    if (!sampler) return true;
    sync_wait([]() -> Task<void> {
      Loop& loop = *Loop::current();
      for (int i = 0; i < 10; ++i) {
        const Time until = loop.after(20ms);
        co_await loop.sleep(20ms);
        EXPECT_GE(loop.now(), until);
      }
    }());
    (*sampler)->stop();
    return std::ranges::any_of((*sampler)->stacks(), &WaitSampler::Stack::idle);
  }));
}

// A loop that waits in its poller is idle, and one that a handler blocks is not.
TEST(WaitSampler, IdleLoopsAreToldApart) {
  for (const PollerKind kind : {PollerKind::epoll, PollerKind::io_uring}) {
    for (const bool blocked : {false, true}) {
      Blockers blockers;
      LoopOptions options;
      options.poller = kind;
      Loop loop(options);
      if (blocked) loop.post([&] { blockers.wait_in_read(); });
      std::thread thread([&] {
        pthread_setname_np(pthread_self(), "looked at");
        loop.run();
      });
      const auto idle_time = [&](bool idle) {
        auto sampler = WaitSampler::begin(500, exec::idle_functions());
        EXPECT_TRUE(sampler) << error_of(sampler);
        std::this_thread::sleep_for(50ms);
        (*sampler)->stop();
        std::uint64_t sum = 0;
        for (const WaitSampler::Stack& stack : (*sampler)->stacks()) {
          const bool waits = stack.thread == "looked at" && stack.call != WaitSampler::no_processor;
          if (waits && stack.idle == idle) sum += stack.nanoseconds;
        }
        return sum;
      };
      // The loop has begun to wait at some time.
      EXPECT_TRUE(soon([&] { return idle_time(!blocked) > 0; })) << "blocked: " << blocked;
      EXPECT_EQ(idle_time(blocked), 0U) << "blocked: " << blocked;
      blockers.release();
      loop.stop();
      thread.join();
    }
  }
}

// Waits and two idle threads: a thread of the offload pool, and a loop.
TEST(WaitSampler, ThreadsForOffloadedWorkAreIdleToo) {
  Loop loop;
  bool idle = false;
  loop.run([](Loop& on, bool& found) -> Task<void> {
    static_cast<void>(co_await on.offload([] { return 1; }));
    const auto look = [&] {
      auto sampler = WaitSampler::begin(500, exec::idle_functions());
      std::this_thread::sleep_for(20ms);
      (*sampler)->stop();
      Symbols symbols;
      for (const WaitSampler::Stack& stack : (*sampler)->stacks()) {
        found = found || (stack.idle && std::ranges::any_of(stack.frames, [&](const void* frame) {
                            return symbols.name(frame).find("OffloadPool") != std::string::npos;
                          }));
      }
      return found;
    };
    EXPECT_TRUE(soon(look));
  }(loop, idle));
}

TEST(WaitSampler, OneExistsAtATime) {
  auto first = WaitSampler::begin(99, {});
  ASSERT_TRUE(first) << error_of(first);
  EXPECT_TRUE(is_error(WaitSampler::begin(99, {}), ErrorCode::overloaded, "is being taken"));
  first->reset();
  EXPECT_TRUE(WaitSampler::begin(99, {}));
}

TEST(WaitSampler, AChildProcessTakesAProfileOfItsOwn) {
  auto sampler = WaitSampler::begin(1000, {});
  ASSERT_TRUE(sampler) << error_of(sampler);
  const pid_t child = fork();
  if (child == 0) {
    sampler->reset();  // The copy does not wait for the thread, which does not exist here.
    // The thread sanitizer ends a child process that starts a thread.
    const bool good = thread_sanitizer || WaitSampler::begin(99, {}).has_value();
    _exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  (*sampler)->stop();
}

TEST(WaitSampler, ThreadsMayBeginAndEndMeanwhile) {
  auto sampler = WaitSampler::begin(1000, {});
  ASSERT_TRUE(sampler) << error_of(sampler);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([] { std::this_thread::sleep_for(100us); });
    for (std::thread& thread : threads) thread.join();
  }
  (*sampler)->stop();
  EXPECT_LE((*sampler)->stacks().size(), WaitSampler::stacks_max + WaitSampler::threads_max);
}

// The dynamic linker's lock, which the sampler's thread holds during a sample, is free in a child process.
TEST(WaitSampler, AChildProcessMayLookAtItsFiles) {
  std::atomic<bool> end{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 100; ++i) {
    threads.emplace_back([&] {
      while (!end.load()) std::this_thread::sleep_for(1ms);
    });
  }
  auto sampler = WaitSampler::begin(1000, {});
  ASSERT_TRUE(sampler) << error_of(sampler);
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);  // Ends it if it waits for ever.
      dl_iterate_phdr([](dl_phdr_info*, std::size_t, void*) { return 1; }, nullptr);
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << " at " << i;
    std::this_thread::sleep_for(1ms);
  }
  (*sampler)->stop();
  end.store(true);
  for (std::thread& thread : threads) thread.join();
}

std::atomic<int> handled{0};

// Handlers of signals run on threads of the application.
TEST(WaitSampler, ItsThreadHandlesNoSignals) {
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = [](int) { handled.fetch_add(1); };
  ASSERT_EQ(sigaction(SIGUSR2, &action, &before), 0);
  auto sampler = WaitSampler::begin(99, {});
  ASSERT_TRUE(sampler) << error_of(sampler);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, nullptr), 0);
  kill(getpid(), SIGUSR2);
  std::this_thread::sleep_for(20ms);
  (*sampler)->stop();
  EXPECT_EQ(handled.load(), 0);
  ASSERT_EQ(pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr), 0);
  EXPECT_TRUE(soon([] { return handled.load() == 1; }));
  sigaction(SIGUSR2, &before, nullptr);
}

// Threads that begin and end need no more room than their names.
TEST(WaitSampler, ThreadsWithOneNameAreOne) {
  Blockers blockers;
  std::atomic<int> named{0};
  for (int i = 0; i < 20; ++i) {
    blockers.run([&] {
      pthread_setname_np(pthread_self(), "one of many");
      named.fetch_add(1);
      blockers.wait_in_read();
    });
  }
  ASSERT_TRUE(soon([&] { return named.load() == 20; }));
  EXPECT_TRUE(soon([] {
    auto sampler = WaitSampler::begin(500, {});
    EXPECT_TRUE(sampler) << error_of(sampler);
    std::this_thread::sleep_for(20ms);
    (*sampler)->stop();
    EXPECT_GE((*sampler)->threads(), 21U);
    const auto reads = [](const WaitSampler::Stack& stack) { return stack.thread == "one of many" && stack.call == 0; };
    const auto count = std::ranges::count_if((*sampler)->stacks(), reads);
    EXPECT_LE(count, 1);
    return count == 1 && std::ranges::find_if((*sampler)->stacks(), reads)->samples >= 20;
  }));
}

TEST(WaitSampler, WhatIsNotLookedAtIsCounted) {
  Blockers blockers;
  for (std::size_t i = 0; i < WaitSampler::threads_max + 10; ++i) blockers.run([&] { blockers.wait_in_read(); });
  auto sampler = WaitSampler::begin(99, {});
  ASSERT_TRUE(sampler) << error_of(sampler);
  (*sampler)->stop();
  EXPECT_GE((*sampler)->threads_left_out(), 10U);
  EXPECT_EQ((*sampler)->failed_passes(), 0U);
  sampler->reset();
  blockers.release();

  auto without_files = WaitSampler::begin(99, {});
  ASSERT_TRUE(without_files) << error_of(without_files);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  (*without_files)->stop();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_GE((*without_files)->failed_passes(), 1U);
}

// The thread of the sampler ends before somebody waits for it.
TEST(WaitSampler, EndsWithoutBeingWaitedFor) {
  auto sampler = WaitSampler::begin(99, {});
  ASSERT_TRUE(sampler) << error_of(sampler);
  const auto threads = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  const auto with_it = threads();
  (*sampler)->end();
  EXPECT_TRUE(soon([&] { return threads() < with_it; }));
  (*sampler)->stop();
  EXPECT_GE((*sampler)->passes(), 1U);
}

TEST(WaitPage, GivesEachFormat) {
  Blockers blockers;
  blockers.run([&] { blockers.wait_in_read(); });
  const HttpClientResponse folded = get({"/profile/offcpu?seconds=1&format=folded&hertz=200"});
  EXPECT_EQ(folded.status, 200) << folded.body;
  EXPECT_EQ(folded_of(folded.body, "wait_in_read").lines, 1U) << folded.body;
  // The loops of the server and of the client wait for most of the time.
  EXPECT_GE(folded_of(folded.body, "idle;").lines, 1U) << folded.body;
  EXPECT_THAT(folded.body, HasSubstr("sleep_in_"));

  const DecodedProfile pprof = decode_pprof(get({"/profile/offcpu?seconds=1&format=pprof"}).body);
  EXPECT_EQ(pprof.types, (std::vector<std::string>{"samples/count", "delay/nanoseconds"}));
  EXPECT_EQ(pprof.default_type, "delay");
  const auto reads = std::ranges::count_if(pprof.samples, [](const DecodedProfile::Sample& sample) {
    return sample.frames.front() == "[read]" && sample.labels.contains("thread") && sample.values[1] > 0;
  });
  EXPECT_GE(reads, 1);

  const HttpClientResponse without = get({"/profile/offcpu?seconds=1&format=folded&idle=0"});
  EXPECT_EQ(folded_of(without.body, "idle;").lines, 0U) << without.body;
  EXPECT_EQ(folded_of(without.body, "wait_in_read").lines, 1U) << without.body;

  const HttpClientResponse html = get({.path = "/profile/offcpu?seconds=1&idle=0", .accept = "text/html"});
  EXPECT_EQ(html.header("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(html.body, HasSubstr("<svg xmlns"));
  EXPECT_THAT(html.body, HasSubstr("idle are left out"));
  EXPECT_THAT(html.body, HasSubstr("?format=pprof&amp;seconds=1&amp;hertz=99&amp;idle=0"));
  EXPECT_THAT(std::string(html.header("content-security-policy").value_or("")), HasSubstr("default-src 'none'"));
}

TEST(WaitPage, LimitsAreChecked) {
  for (const char* const query :
       {"seconds=0", "seconds=61", "hertz=0", "hertz=1001", "idle=2", "idle=x", "format=exe"}) {
    EXPECT_EQ(get({std::string("/profile/offcpu?") + query}).status, 400) << query;
  }
  EXPECT_EQ(get({"/profile/offcpu?seconds=1", "X-Forwarded-For"}).status, 403);
  EXPECT_EQ(get({"/profile/offcpu?seconds=1", "Origin"}).status, 403);
  const auto first = WaitSampler::begin(99, {});
  ASSERT_TRUE(first) << error_of(first);
  const HttpClientResponse second = get({"/profile/offcpu?seconds=1"});
  EXPECT_EQ(second.status, 409);
  EXPECT_THAT(second.body, HasSubstr("a profile of waits of this process is being taken"));
}

}  // namespace hawser::profile_test
