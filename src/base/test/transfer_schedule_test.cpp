#include "base/transfer_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>

namespace hawser {
namespace {

struct Transfer : ScheduledTransfer<Transfer> {
  explicit Transfer(char of, TransferPriority as = TransferPriority::interactive, int until = 0) : name(of) {
    priority = as;
    if (until != 0) deadline = Time(std::chrono::seconds(until));
  }
  char name;
};
constexpr TransferPriority bulk = TransferPriority::bulk;

// The names in the order in which the transfers are done, each with one piece.
std::string done(TransferSchedule<Transfer>& schedule, std::size_t bytes = 1) {
  std::string names;
  while (Transfer* const next = schedule.next(true, true)) {
    names += next->name;
    schedule.posted(*next, bytes);
    schedule.remove(*next);
  }
  return names;
}

TEST(TransferSchedule, InteractiveTransfersAreFirstInTheOrderOfTheCalls) {
  TransferSchedule<Transfer> schedule;
  Transfer a('a', bulk), b('b'), c('c', bulk), d('d', TransferPriority::interactive, 1);
  for (Transfer* one : {&a, &b, &c, &d}) schedule.add(*one);
  EXPECT_EQ(done(schedule), "bdac");
  EXPECT_TRUE(schedule.empty());
}

TEST(TransferSchedule, BulkTransfersAreDoneByDeadline) {
  TransferSchedule<Transfer> schedule;
  Transfer a('a', bulk), b('b', bulk, 5), c('c', bulk, 3), d('d', bulk, 5), e('e', bulk), f('f', bulk, 4);
  for (Transfer* one : {&a, &b, &c, &d, &e, &f}) schedule.add(*one);
  EXPECT_EQ(done(schedule), "cfbdae");
}

TEST(TransferSchedule, TransfersAreRemovedFromEachPlace) {
  for (int removed = 0; removed < 4; ++removed) {
    TransferSchedule<Transfer> schedule;
    std::array<Transfer, 4> all = {Transfer('a', bulk), Transfer('b', bulk), Transfer('c', bulk), Transfer('d', bulk)};
    for (Transfer& one : all) schedule.add(one);
    Transfer& gone = all[static_cast<std::size_t>(removed)];
    schedule.remove(gone);
    schedule.remove(gone);
    EXPECT_FALSE(gone.scheduled());
    Transfer last('e', bulk);
    schedule.add(last);
    std::string expected = "abcde";
    expected.erase(static_cast<std::size_t>(removed), 1);
    EXPECT_EQ(done(schedule), expected);
  }
}

TEST(TransferSchedule, OnlyTransfersForWhichThereIsRoomAreNext) {
  TransferSchedule<Transfer> schedule;
  Transfer a('a', bulk), b('b');
  schedule.add(a);
  schedule.add(b);
  EXPECT_EQ(schedule.next(false, true), &a);
  EXPECT_EQ(schedule.next(true, false), &b);
  EXPECT_EQ(schedule.next(false, false), nullptr);
}

// For each size of a piece, bulk transfers get 5 % of the bytes while both wait, and never much more.
TEST(TransferSchedule, BulkTransfersGetTheirShare) {
  for (const std::size_t piece : {1U, 64U, 4096U, 65'536U, 131'072U}) {
    TransferSchedule<Transfer> schedule;
    Transfer a('a', bulk), b('b');
    schedule.add(a);
    schedule.add(b);
    double bulk_bytes = 0;
    double all_bytes = 0;
    for (int i = 0; i < 100'000; ++i) {
      Transfer* const next = schedule.next(true, true);
      // A bulk piece has its own size.
      const std::size_t bytes = next == &a ? 65'536 : piece;
      schedule.posted(*next, bytes);
      const auto counted = static_cast<double>(std::max<std::size_t>(bytes, 4096));
      all_bytes += counted;
      if (next == &a) bulk_bytes += counted;
    }
    EXPECT_GT(bulk_bytes / all_bytes, 0.049) << piece;
    EXPECT_LT(bulk_bytes / all_bytes, 0.06) << piece;
    // The debt does not last: a bulk transfer that comes later waits.
    schedule.remove(a);
    for (int i = 0; i < 1000; ++i) schedule.posted(b, 65'536);
    schedule.add(a);
    EXPECT_EQ(schedule.next(true, true), &b);
    schedule.clear();
  }
}

}  // namespace
}  // namespace hawser
