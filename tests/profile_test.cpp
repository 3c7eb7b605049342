// Profiles of the processor time of this process.
#include "observe/profile.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/cpu_sampler.h"
#include "base/symbols.h"
#include "hawser/hawser.h"
#include "hawser/http_client.h"
#include "hawser/pages.h"
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
  profile.seconds = 2;
  profile.hertz = 100;
  profile.stacks = {
      {"loop", {"main", "shop::order(int)"}, 6}, {"loop", {"main"}, 2}, {"a;b", {"<script>&\"\x1b\xff"}, 2}};
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
  narrow.stacks.push_back({"loop", {std::string(100, 'x')}, 2});
  narrow.stacks[0].samples = 4;
  EXPECT_THAT(flame_svg(narrow), HasSubstr(">" + std::string(32, 'x') + "...</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, Not(HasSubstr("style")));
  EXPECT_THAT(flame_svg(Profile()), HasSubstr("0 samples"));
}

TEST(Profile, TheFlameGraphIsBounded) {
  Profile profile;
  profile.hertz = 100;
  for (int i = 0; i < 5'000; ++i) {
    Profile::Stack stack{"loop", {}, 1};
    for (int frame = 0; frame < 64; ++frame)
      stack.frames.push_back("f" + std::to_string(i) + "_" + std::to_string(frame));
    profile.stacks.push_back(std::move(stack));
  }
  EXPECT_LT(flame_svg(profile).size(), 100'000U);
}

TEST(Profile, PprofBeginsWithItsSampleTypes) {
  const std::string bytes = pprof_bytes(sample());
  // sample_type: samples in count, cpu in nanoseconds. These are the strings 1 to 4.
  EXPECT_THAT(bytes, StartsWith(std::string("\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04", 12)));
  EXPECT_THAT(bytes, HasSubstr("shop::order(int)"));
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

class ProfilePage : public ::testing::Test {
 protected:
  // Asks a server with pages for `path`.
  HttpClientResponse get(std::string path, std::string field = {}) {
    Server server;
    PagesOptions pages;
    pages.pages = pages.changes = PageAccess::all;
    enable_pages(server, std::move(pages));
    EXPECT_OK(server.start());
    return sync_wait([](std::string url, std::string name) -> Task<HttpClientResponse> {
      HttpClientOptions options;
      options.request_timeout = patience;
      HttpClient http(*Loop::current(), options);
      HttpClientRequest request;
      request.url = std::move(url);
      if (!name.empty()) request.headers = {{name, "http://other.example"}};
      AWAIT(response, http.send(std::move(request)));
      EXPECT_OK(response);
      co_return response ? std::move(*response) : HttpClientResponse();
    }("http://" + server.address() + path, std::move(field)));
  }
};

TEST_F(ProfilePage, GivesEachFormat) {
  const Burning burning;
  const HttpClientResponse svg = get("/profile/cpu?seconds=1");
  EXPECT_EQ(svg.status, 200) << svg.body;
  EXPECT_EQ(svg.header("content-type"), "image/svg+xml");
  EXPECT_THAT(svg.body, StartsWith("<svg "));
  const HttpClientResponse folded = get("/profile/cpu?seconds=1&format=folded&hertz=500");
  EXPECT_EQ(folded.status, 200) << folded.body;
  EXPECT_EQ(folded.header("content-type"), "text/plain; charset=utf-8");
  const HttpClientResponse pprof = get("/profile/cpu?seconds=1&format=pprof");
  EXPECT_EQ(pprof.status, 200);
  EXPECT_THAT(pprof.body, StartsWith("\x0a\x04"));
}

TEST_F(ProfilePage, IsForClientsOfThisMachineAlone) {
  EXPECT_EQ(get("/profile/cpu?seconds=1", "X-Forwarded-For").status, 403);
  EXPECT_EQ(get("/profile/cpu?seconds=1", "Origin").status, 403);
}

TEST_F(ProfilePage, LimitsAreChecked) {
  for (const char* const query : {"seconds=0", "seconds=61", "seconds=-1", "seconds=1.5", "seconds=1s", "hertz=0",
                                  "hertz=1001", "hertz=x", "format=exe"}) {
    EXPECT_EQ(get(std::string("/profile/cpu?") + query).status, 400) << query;
  }
}

TEST_F(ProfilePage, ASecondProfileIsRefused) {
  const auto first = CpuSampler::begin(99);
  ASSERT_TRUE(first) << error_of(first);
  const HttpClientResponse second = get("/profile/cpu?seconds=1");
  EXPECT_EQ(second.status, 409);
  EXPECT_THAT(second.body, HasSubstr("a profile of this process is being taken"));
}

}  // namespace hawser::profile_test
