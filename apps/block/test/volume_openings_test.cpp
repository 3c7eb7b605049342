#include "block/volume_openings.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hawser::block {
namespace {

TEST(BlockOpenings, AnOpeningThatHasEndedRefusesRequests) {
  VolumeOpenings openings;
  const std::string first = openings.begin().value();
  const std::string second = openings.begin().value();
  EXPECT_NE(first, second);
  EXPECT_TRUE(openings.use(first));
  openings.end(first);
  EXPECT_FALSE(openings.use(first));
  EXPECT_TRUE(openings.use(second));
  openings.end(first);
  EXPECT_FALSE(openings.use(""));
}

// `end` ends the opening, on two threads at once: both wait for its request in progress.
template <class End>
void expect_to_wait_for_a_request(VolumeOpenings& openings, const std::string& id, End end) {
  std::optional<VolumeOpenings::Use> request = openings.use(id);
  ASSERT_TRUE(request);
  std::atomic<bool> request_ended = false;
  std::atomic<int> early = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 2; ++thread) {
      threads.emplace_back([&] {
        end();
        if (!request_ended) ++early;
      });
    }
    // Refused from the begin of the first end() on.
    while (openings.use(id)) std::this_thread::yield();
    for (int turn = 0; turn < 100; ++turn) std::this_thread::yield();
    request_ended = true;
    request.reset();
  }
  EXPECT_EQ(early, 0);
}

// A client may lose the connection while it waits for the end of its opening, and ask again.
TEST(BlockOpenings, EachEndWaitsForRequestsInProgress) {
  VolumeOpenings openings;
  const std::string id = openings.begin().value();
  expect_to_wait_for_a_request(openings, id, [&] { openings.end(id); });
}

TEST(BlockOpenings, ALaterProcessOfAClientEndsThoseOfEarlierOnes) {
  VolumeOpenings openings;
  const std::string other = openings.begin({.name = "other", .process = "1"}).value();
  const std::string nameless = openings.begin().value();
  const std::string first = openings.begin({.name = "client", .process = "1"}).value();
  const std::string second = openings.begin({.name = "client", .process = "1"}).value();
  EXPECT_TRUE(openings.use(first)) << "of the same process";
  const std::string next = openings.begin({.name = "client", .process = "2"}).value();
  EXPECT_FALSE(openings.use(first));
  EXPECT_FALSE(openings.use(second));
  for (const std::string& id : {other, nameless, next}) EXPECT_TRUE(openings.use(id));
}

// It may have been stopped, and may have requests that it wants to repeat.
TEST(BlockOpenings, AnEarlierProcessOfAClientIsRefused) {
  VolumeOpenings openings;
  constexpr int processes = static_cast<int>(VolumeOpenings::earlier_processes_max) + 2;
  const auto begin = [&](int process) {
    return openings.begin({.name = "client", .process = std::to_string(process)});
  };
  for (int process = 0; process < processes; ++process) EXPECT_TRUE(begin(process));
  const std::string last = begin(processes - 1).value();
  for (int process = 1; process < processes - 1; ++process) {
    const Result<std::string> refused = begin(process);
    ASSERT_FALSE(refused) << process;
    EXPECT_EQ(refused.error().application_code, ESHUTDOWN);
  }
  EXPECT_TRUE(openings.use(last));
  EXPECT_TRUE(begin(0)) << "only so many are known";
}

TEST(BlockOpenings, ALaterProcessWaitsForRequestsOfEarlierOnes) {
  VolumeOpenings openings;
  const std::string id = openings.begin({.name = "client", .process = "1"}).value();
  expect_to_wait_for_a_request(openings, id, [&] { EXPECT_TRUE(openings.begin({.name = "client", .process = "2"})); });
}

// A process that waits for an earlier one is an earlier one itself when another follows.
TEST(BlockOpenings, OneOfThreeProcessesCanUseItsOpening) {
  VolumeOpenings openings;
  const std::string id = openings.begin({.name = "client", .process = "1"}).value();
  std::optional<VolumeOpenings::Use> request = openings.use(id);
  ASSERT_TRUE(request);
  Result<std::string> second;
  Result<std::string> third;
  {
    const std::jthread waits([&] { second = openings.begin({.name = "client", .process = "2"}); });
    while (openings.use(id)) std::this_thread::yield();
    const std::jthread follows([&] { third = openings.begin({.name = "client", .process = "3"}); });
    for (int turn = 0; turn < 100; ++turn) std::this_thread::yield();
    request.reset();
  }
  ASSERT_TRUE(third);
  EXPECT_TRUE(openings.use(*third));
  if (second) {
    EXPECT_FALSE(openings.use(*second));
  } else {
    EXPECT_EQ(second.error().application_code, ESHUTDOWN);
  }
}

TEST(BlockOpenings, TheOneThatWasUsedTheLeastRecentlyEndsIfThereAreTooMany) {
  VolumeOpenings openings(3);
  const std::string first = openings.begin().value();
  const std::string second = openings.begin().value();
  const std::string third = openings.begin().value();
  EXPECT_TRUE(openings.use(second));
  std::optional<VolumeOpenings::Use> request = openings.use(first);
  EXPECT_TRUE(openings.use(third));
  EXPECT_TRUE(openings.begin());  // Ends `second`.
  EXPECT_FALSE(openings.use(second));
  std::optional<VolumeOpenings::Use> other = openings.use(third);
  const std::string last = openings.begin().value();
  EXPECT_TRUE(openings.use(first)) << "it has a request in progress";
  EXPECT_TRUE(openings.use(third));
  const std::optional<VolumeOpenings::Use> third_request = openings.use(last);
  const Result<std::string> refused = openings.begin();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().application_code, EBUSY);
}

// The opening that ends is the only one of the client.
TEST(BlockOpenings, AnEarlierProcessIsRefusedAlsoIfThereAreTooMany) {
  VolumeOpenings openings(1);
  const std::string first = openings.begin({.name = "client", .process = "1"}).value();
  const std::string next = openings.begin({.name = "client", .process = "2"}).value();
  EXPECT_FALSE(openings.use(first));
  const Result<std::string> refused = openings.begin({.name = "client", .process = "1"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().application_code, ESHUTDOWN);
  EXPECT_TRUE(openings.use(next)) << "a process that is refused ends nothing of others";
}

}  // namespace
}  // namespace hawser::block
