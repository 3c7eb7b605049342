#include "wire/memory_body.h"

#include <gtest/gtest.h>

#include <vector>

namespace hawser::wire {
namespace {

constexpr RegionId some_region{.owner = 0x1122334455667788U, .slot = 5, .generation = 2, .capability = 0x99aabbccU};

TEST(MemoryBody, WhatIsWrittenIsRead) {
  std::vector<std::byte> bytes(region_id_bytes + 2 * memory_range_bytes);
  std::byte* at = write_region_id(bytes.data(), some_region);
  at = write_memory_range(at, {UINT64_MAX, UINT32_MAX});
  at = write_memory_range(at, {7, 9});
  EXPECT_EQ(at, bytes.data() + bytes.size());
  const MemoryBody body(bytes);
  EXPECT_EQ(body.region(), some_region);
  ASSERT_EQ(body.ranges(), 2U);
  EXPECT_EQ(body.range(0), (MemoryRange{UINT64_MAX, UINT32_MAX}));
  EXPECT_EQ(body.range(1), (MemoryRange{7, 9}));
  bytes.resize(region_id_bytes + atomic_operands_bytes);
  write_atomic_operands(bytes.data() + region_id_bytes, {8, 9, 10});
  EXPECT_EQ(MemoryBody(bytes).operands(), (AtomicOperands{8, 9, 10}));
}

TEST(MemoryBody, LengthsThatFitNoAction) {
  const auto fits = [](MemoryAction action, std::size_t bytes) {
    return MemoryBody::well_formed(static_cast<std::uint32_t>(action), std::vector<std::byte>(bytes));
  };
  for (std::size_t bytes = 0; bytes < 100; ++bytes) {
    const bool ranges = bytes > region_id_bytes && (bytes - region_id_bytes) % memory_range_bytes == 0;
    EXPECT_EQ(fits(MemoryAction::read, bytes), ranges) << bytes;
    EXPECT_EQ(fits(MemoryAction::write, bytes), ranges) << bytes;
    EXPECT_EQ(fits(MemoryAction::compare_and_swap, bytes), bytes == region_id_bytes + atomic_operands_bytes) << bytes;
    EXPECT_EQ(fits(MemoryAction::fetch_add, bytes), bytes == region_id_bytes + atomic_operands_bytes) << bytes;
    EXPECT_EQ(fits(static_cast<MemoryAction>(4), bytes), bytes >= region_id_bytes) << bytes;
  }
}

}  // namespace
}  // namespace hawser::wire
