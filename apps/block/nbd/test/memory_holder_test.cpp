// The choice of the connections that end when memory is short.
#include "block/nbd/memory_holder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace hawser::block::nbd {
namespace {

using std::chrono::seconds;

constexpr std::size_t mib = 1 << 20;
constexpr std::uint64_t bytes_min = 1000;

Time at(int second) { return Time(seconds(second)); }

TEST(NbdMemoryHolder, AClientThatMovesNothingIsSilent) {
  HolderPace pace;
  pace.observe(at(100), false, 5000, bytes_min);
  for (int second = 101; second <= 107; ++second) pace.observe(at(second), true, 5000, bytes_min);
  EXPECT_EQ(pace.silence(at(107)), seconds(7)) << "since it made no memory wait";
  pace.observe(at(108), false, 5000, bytes_min);
  EXPECT_EQ(pace.silence(at(108)), seconds(0)) << "no memory waits for it";
}

TEST(NbdMemoryHolder, AClientThatMovesEnoughIsNotSilent) {
  HolderPace pace;
  pace.observe(at(100), false, 0, bytes_min);
  for (int second = 1; second <= 60; ++second) {
    pace.observe(at(100 + second), true, static_cast<std::uint64_t>(second) * bytes_min / 2, bytes_min);
    EXPECT_LE(pace.silence(at(100 + second)), seconds(1)) << second;
  }
}

TEST(NbdMemoryHolder, SingleBytesAreNoProgress) {
  HolderPace pace;
  pace.observe(at(100), false, 0, bytes_min);
  for (int second = 1; second <= 60; ++second) {
    pace.observe(at(100 + second), true, static_cast<std::uint64_t>(second), bytes_min);
  }
  EXPECT_EQ(pace.silence(at(160)), seconds(60));
}

TEST(NbdMemoryHolder, AllThatAreSilentEnd) {
  const std::vector<NbdMemoryHolder> holders = {{.held_bytes = 20 * mib, .missing_bytes = 19 * mib},
                                                {.held_bytes = 4 * mib, .missing_bytes = 1, .silent = true},
                                                {.silent = true},
                                                {.held_bytes = 4096, .missing_bytes = 4096, .silent = true}};
  EXPECT_EQ(holders_to_end(holders, 32 * mib, 32 * mib), (std::vector<std::size_t>{1, 3}));
}

TEST(NbdMemoryHolder, TheOneThatHasMostToMoveEndsIfNoneIsSilent) {
  const std::vector<NbdMemoryHolder> holders = {{.held_bytes = 20 * mib, .missing_bytes = 1 * mib},
                                                {.held_bytes = 10 * mib, .missing_bytes = 9 * mib}};
  EXPECT_EQ(holders_to_end(holders, 32 * mib, 8 * mib), (std::vector<std::size_t>{1}));
}

// The volumes are slow then, and not the clients.
TEST(NbdMemoryHolder, NoneEndsForMemoryOfRequestsThatAreExecuted) {
  const std::vector<NbdMemoryHolder> holders = {{.held_bytes = mib, .missing_bytes = mib, .silent = true}};
  EXPECT_EQ(holders_to_end(holders, 32 * mib, 31 * mib), std::vector<std::size_t>());
  EXPECT_EQ(holders_to_end({}, 32 * mib, 33 * mib), std::vector<std::size_t>());
}

}  // namespace
}  // namespace hawser::block::nbd
