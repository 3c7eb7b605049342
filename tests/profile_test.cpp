// Profiles of the processor time of this process.
#include "observe/profile.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/http_client.h"
#include "hawser/pages.h"
#include "observe/profile_sources.h"
#include "profile/cpu_sampler.h"
#include "profile/symbols.h"
#include "tests/profile/profile_testing.h"
#include "tests/raw_peer.h"
#include "tests/testing.h"

namespace hawser::profile_test {

using namespace testing_tools;
using observe::Profile;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Uses processor time until it is stopped.
[[gnu::noinline]] void burn_processor_time(const std::atomic<bool>& stop) {
  std::atomic<std::uint64_t> sum = 0;
  while (!stop.load()) {
    for (int i = 0; i < 1000; ++i) sum.fetch_add(1, std::memory_order_relaxed);
    static_cast<void>(std::chrono::steady_clock::now());
  }
}

class Burning {
 public:
  Burning() = default;
  ~Burning() {
    stop_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_{[this] { burn_processor_time(stop_); }};
};

Profile sample() {
  Profile profile;
  profile.kinds = {{"samples", "count"}, {"cpu", "nanoseconds"}};
  profile.period_kind = {"cpu", "nanoseconds"};
  profile.period = 10'000'000;
  profile.begin = std::chrono::system_clock::now();
  profile.seconds = 2;
  profile.caption = "of <time>";
  profile.stacks = {{"loop", {"main", "shop::order(int)"}, {6, 60'000'000}},
                    {"loop", {"main"}, {2, 20'000'000}},
                    {"a;b", {"<script>&\"\x1b\xff"}, {2, 20'000'000}}};
  return profile;
}

TEST(Profile, FoldedHasALineForEachStack) {
  EXPECT_EQ(folded_text(sample()), "loop;main;shop::order(int) 6\nloop;main 2\na:b;<script>&\"?? 2\n");
  EXPECT_EQ(folded_text(Profile()), "");
}

TEST(Profile, TheFlameGraphShowsPartsAndEscapesNames) {
  const std::string svg = flame_svg(sample());
  EXPECT_THAT(svg, StartsWith("<svg xmlns"));
  EXPECT_THAT(svg, HasSubstr("<title>shop::order(int): 6 samples, 60.0 %</title><rect x="));
  EXPECT_THAT(svg, HasSubstr("width=\"720.0\""));
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;&amp;&quot;??"));
  // 240 pixels have room for 35 characters.
  Profile narrow = sample();
  narrow.stacks.push_back({"loop", {std::string(100, 'x')}, {2, 0}});
  narrow.stacks[0].values[0] = 4;
  EXPECT_THAT(flame_svg(narrow), HasSubstr(">" + std::string(32, 'x') + "...</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, Not(HasSubstr("style")));
  EXPECT_THAT(flame_svg(Profile()), HasSubstr("0 samples"));
}

TEST(Profile, TheFlameGraphIsBounded) {
  Profile profile;
  profile.kinds = {{"samples", "count"}};
  for (int i = 0; i < 5'000; ++i) {
    Profile::Stack stack{"loop", {}, {1}};
    for (int frame = 0; frame < 64; ++frame)
      stack.frames.push_back("f" + std::to_string(i) + "_" + std::to_string(frame));
    profile.stacks.push_back(std::move(stack));
  }
  EXPECT_LT(flame_svg(profile).size(), 100'000U);
}

TEST(Profile, TheShownKindHasItsUnit) {
  Profile profile = sample();
  profile.stacks.back().group = "idle";
  profile.shown = 1;
  EXPECT_THAT(folded_text(profile), HasSubstr("idle;a:b;<script>&\"?? 20000000\n"));
  EXPECT_THAT(flame_svg(profile), HasSubstr("100.00 ms of &lt;time&gt;</text>"));
  EXPECT_THAT(flame_svg(profile), HasSubstr("<title>idle: 20.00 ms, 20.0 %</title>"));
  EXPECT_EQ(observe::value_text(1'500'000'000, "nanoseconds"), "1.50 s");
  EXPECT_EQ(observe::value_text(12, "bytes"), "12 B");
  EXPECT_EQ(observe::value_text(3 << 19, "bytes"), "1.5 MiB");
  EXPECT_EQ(observe::value_text(7, "count"), "7 samples");
}

TEST(Profile, PprofHasItsStacks) {
  Profile given = sample();
  given.stacks.back().group = "idle";
  const DecodedProfile profile = decode_pprof(pprof_bytes(given));
  EXPECT_EQ(profile.types, (std::vector<std::string>{"samples/count", "cpu/nanoseconds"}));
  EXPECT_EQ(profile.period_type, "cpu/nanoseconds");
  EXPECT_EQ(profile.period, 10'000'000);
  EXPECT_EQ(profile.duration_ns, 2'000'000'000);
  EXPECT_EQ(profile.comments, std::vector<std::string>{"of <time>"});
  EXPECT_EQ(profile.default_type, "samples");
  ASSERT_EQ(profile.samples.size(), 3U);
  EXPECT_EQ(profile.samples[0].frames, (std::vector<std::string>{"shop::order(int)", "main"}));
  EXPECT_EQ(profile.samples[0].values, (std::vector<std::int64_t>{6, 60'000'000}));
  EXPECT_EQ(profile.samples[0].labels, (std::map<std::string, std::string>{{"thread", "loop"}}));
  EXPECT_EQ(profile.samples[2].frames.back(), "idle");
  EXPECT_EQ(profile.total(0), 10);
}

TEST(Symbols, FunctionsOfTheProgramAndOfLibrariesHaveNames) {
  Symbols symbols;
  EXPECT_THAT(symbols.name(reinterpret_cast<const void*>(&burn_processor_time)), HasSubstr("burn_processor_time"));
  const int local = 0;
  EXPECT_EQ(symbols.name(&local), "[unknown]");
  EXPECT_EQ(symbols.name(nullptr), "[unknown]");
}

TEST(CpuSampler, SeesTheFunctionThatUsesTime) {
  const Burning burning;
  Symbols symbols;
  // A busy machine may give the thread no time for a while.
  bool found = false;
  for (const auto end = std::chrono::steady_clock::now() + patience;
       !found && std::chrono::steady_clock::now() < end;) {
    auto sampler = CpuSampler::begin(1000);
    ASSERT_TRUE(sampler) << error_of(sampler);
    EXPECT_GE((*sampler)->threads(), 2U);
    std::this_thread::sleep_for(20ms);
    (*sampler)->stop();
    for (const CpuSampler::Sample& one : (*sampler)->samples()) {
      EXPECT_LE(one.depth, CpuSampler::frames_max);
      for (std::uint32_t i = 0; i < one.depth; ++i) {
        found = found || symbols.name(one.frames[i]).find("burn_processor_time") != std::string::npos;
      }
    }
  }
  EXPECT_TRUE(found);
}

// A child process has no part in the profile of its parent, and may take one itself.
TEST(CpuSampler, AChildProcessTakesAProfileOfItsOwn) {
  auto sampler = CpuSampler::begin(99);
  ASSERT_TRUE(sampler) << error_of(sampler);
  const pid_t child = fork();
  if (child == 0) {
    bool good = CpuSampler::begin(99).has_value();
    sampler->reset();  // The copy does not disturb the next one.
    good = good && CpuSampler::begin(99).has_value();
    _exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(is_error(CpuSampler::begin(99), ErrorCode::overloaded, "a profile"));
}

TEST(CpuSampler, OneExistsAtATime) {
  auto first = CpuSampler::begin(99);
  ASSERT_TRUE(first) << error_of(first);
  const auto second = CpuSampler::begin(99);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::overloaded);
  first->reset();
  EXPECT_TRUE(CpuSampler::begin(99));
}

TEST(CpuSampler, ThreadsMayBeginAndEndMeanwhile) {
  auto sampler = CpuSampler::begin(1000);
  ASSERT_TRUE(sampler) << error_of(sampler);
  for (int i = 0; i < 50; ++i) const Burning burning;
  (*sampler)->stop();
  EXPECT_LE((*sampler)->samples().size(), CpuSampler::samples_max);
}

TEST(CpuSampler, ThreadsBeyondTheLimitAreCounted) {
  constexpr std::size_t more = 30;
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < CpuSampler::threads_max + more; ++i) threads.emplace_back([ended] { ended.wait(); });
  auto sampler = CpuSampler::begin(99);
  ASSERT_TRUE(sampler) << error_of(sampler);
  (*sampler)->stop();
  end.set_value();
  EXPECT_EQ((*sampler)->threads(), CpuSampler::threads_max);
  EXPECT_GT((*sampler)->threads_left_out(), more);  // This thread is sampled.
  EXPECT_THAT(observe::cpu_profile(**sampler, 99, 1).caption,
              HasSubstr("; without " + std::to_string((*sampler)->threads_left_out()) + " further threads"));
}

TEST(ProfilePage, GivesEachFormat) {
  const Burning burning;
  const HttpClientResponse svg = get({"/profile/cpu?seconds=1"});
  EXPECT_EQ(svg.status, 200) << svg.body;
  EXPECT_EQ(svg.header("content-type"), "image/svg+xml");
  EXPECT_THAT(svg.body, StartsWith("<svg "));
  const HttpClientResponse folded = get({"/profile/cpu?seconds=1&format=folded&hertz=500"});
  EXPECT_EQ(folded.status, 200) << folded.body;
  EXPECT_EQ(folded.header("content-type"), "text/plain; charset=utf-8");
  const HttpClientResponse pprof = get({"/profile/cpu?seconds=1&format=pprof"});
  EXPECT_EQ(pprof.status, 200);
  const DecodedProfile decoded = decode_pprof(pprof.body);
  EXPECT_EQ(decoded.types, (std::vector<std::string>{"samples/count", "cpu/nanoseconds"}));
  EXPECT_EQ(decoded.default_type, "samples");
  const HttpClientResponse html = get({.path = "/profile/cpu?seconds=1", .accept = "text/html"});
  EXPECT_EQ(html.header("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(html.body, HasSubstr("burn_processor_time"));
  EXPECT_THAT(html.body, HasSubstr("<div class=\"graph\"><svg xmlns"));
}

// With thousands of threads, a profile takes tens of milliseconds to begin. The only thread that may block is busy.
TEST(ProfilePage, ALoopDoesNotBeginTheProfile) {
  std::atomic<bool> busy{false};
  std::atomic<bool> released{false};
  ServerOptions options;
  options.loop.offload_threads_max = 1;
  Server server(options);
  enable_pages(server);
  ASSERT_TRUE(server.spawn([&]() -> Task<void> {
    static_cast<void>(co_await Loop::current()->offload([&] {
      busy = true;
      soon([&] { return released.load(); });
    }));
  }));
  const Result<void> started = server.start();
  ASSERT_TRUE(started) << error_of(started);
  ASSERT_TRUE(soon([&] { return busy.load(); }));
  RawSocket socket = RawSocket::connected_to(server.address());
  socket.send(as_bytes("GET /profile/cpu?seconds=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"));
  EXPECT_TRUE(soon([&] { return server.counters().calls_in_flight == 1; }));
  EXPECT_OK(CpuSampler::begin(99));  // No other one exists.
  released = true;
  EXPECT_THAT(socket.receive_all(), StartsWith("HTTP/1.1 200"));
}

TEST(ProfilePage, IsForClientsOfThisMachineAlone) {
  EXPECT_EQ(get({"/profile/cpu?seconds=1", "X-Forwarded-For"}).status, 403);
  EXPECT_EQ(get({"/profile/cpu?seconds=1", "Origin"}).status, 403);
}

TEST(ProfilePage, LimitsAreChecked) {
  for (const char* const query : {"seconds=0", "seconds=61", "seconds=-1", "seconds=1.5", "seconds=1s", "hertz=0",
                                  "hertz=1001", "hertz=x", "format=exe"}) {
    EXPECT_EQ(get({std::string("/profile/cpu?") + query}).status, 400) << query;
  }
}

TEST(ProfilePage, ASecondProfileIsRefused) {
  const auto first = CpuSampler::begin(99);
  ASSERT_TRUE(first) << error_of(first);
  const HttpClientResponse second = get({"/profile/cpu?seconds=1"});
  EXPECT_EQ(second.status, 409);
  EXPECT_THAT(second.body, HasSubstr("a profile of this process is being taken"));
}

}  // namespace hawser::profile_test
