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

// A client may lose the connection while it waits for the end of its opening, and ask again.
TEST(BlockOpenings, EachEndWaitsForRequestsInProgress) {
  VolumeOpenings openings;
  const std::string id = openings.begin().value();
  std::optional<VolumeOpenings::Use> request = openings.use(id);
  ASSERT_TRUE(request);
  std::atomic<bool> request_ended = false;
  std::atomic<int> early = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 2; ++thread) {
      threads.emplace_back([&] {
        openings.end(id);
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

}  // namespace
}  // namespace hawser::block
