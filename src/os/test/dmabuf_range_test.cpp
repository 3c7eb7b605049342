#include "os/dmabuf_range.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace hawser {
namespace {

Descriptor memory_descriptor(std::size_t bytes) {
  Descriptor made(::memfd_create("dmabuf_range_test", MFD_CLOEXEC));
  EXPECT_TRUE(made.valid());
  EXPECT_EQ(::ftruncate(made.get(), static_cast<off_t>(bytes)), 0);
  return made;
}

std::string text_of_error(const Result<DmabufRange>& range) { return range ? "opened" : range.error().text; }

TEST(DmabufRange, KeepsADescriptorOfItsOwn) {
  Result<DmabufRange> range = DmabufRange();
  struct stat original{};
  {
    const Descriptor descriptor = memory_descriptor(100'000);
    ASSERT_EQ(::fstat(descriptor.get(), &original), 0);
    range = DmabufRange::open(descriptor.get(), 5'000, 10'000);
    ASSERT_TRUE(range.has_value()) << range.error().text;
    EXPECT_NE(range->descriptor(), descriptor.get());
  }
  struct stat kept{};
  ASSERT_EQ(::fstat(range->descriptor(), &kept), 0);
  EXPECT_EQ(kept.st_ino, original.st_ino);
  EXPECT_NE(::fcntl(range->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(range->offset(), 5'000U);
  EXPECT_EQ(range->addresses().size(), 10'000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(range->addresses().data()) % 4096, 5'000U % 4096);
  const int number = range->descriptor();
  *range = DmabufRange();
  EXPECT_EQ(::fcntl(number, F_GETFD), -1) << "the descriptor was not closed";
}

TEST(DmabufRange, TheProcessorCannotAccessTheAddresses) {
  const Descriptor descriptor = memory_descriptor(8192);
  const Result<DmabufRange> range = DmabufRange::open(descriptor.get(), 0, 8192);
  ASSERT_TRUE(range.has_value());
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Descriptor reads(ends[0]);
  const Descriptor writes(ends[1]);
  for (const std::size_t at : {0, 4096, 8191}) {
    errno = 0;
    EXPECT_EQ(::write(writes.get(), range->addresses().data() + at, 1), -1);
    EXPECT_EQ(errno, EFAULT);
  }
}

TEST(DmabufRange, PartsThatDoNotExistAreRefused) {
  const Descriptor descriptor = memory_descriptor(8192);
  const int fd = descriptor.get();
  EXPECT_EQ(text_of_error(DmabufRange::open(fd, 0, 8192)), "opened");
  EXPECT_EQ(text_of_error(DmabufRange::open(fd, 8191, 1)), "opened");
  for (const auto& [offset, bytes] : {std::pair<std::uint64_t, std::size_t>{0, 8193},
                                      {8192, 1},
                                      {4096, 4097},
                                      {UINT64_MAX, 2},
                                      {2, SIZE_MAX},
                                      {UINT64_MAX - 4095, 4096}}) {
    const Result<DmabufRange> range = DmabufRange::open(fd, offset, bytes);
    ASSERT_FALSE(range.has_value()) << offset << " " << bytes;
    EXPECT_EQ(range.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(range.error().text.find("the part of " + (bytes == 1 ? "1 byte" : std::to_string(bytes) + " bytes") +
                                      " at " + std::to_string(offset) + " is not within the 8192 bytes"),
              std::string::npos)
        << range.error().text;
  }
  EXPECT_NE(text_of_error(DmabufRange::open(fd, 0, 0)).find("one byte or more"), std::string::npos);
  const Result<DmabufRange> closed = DmabufRange::open(-1, 0, 4096);
  ASSERT_FALSE(closed.has_value());
  EXPECT_EQ(closed.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(closed.error().text.find("descriptor -1"), std::string::npos) << closed.error().text;
}

TEST(DmabufRange, RunsThatTouchItAreFound) {
  const Descriptor descriptor = memory_descriptor(3 * 4096);
  std::array<std::byte, 16> ordinary{};
  const auto names = [](std::byte* memory, std::size_t bytes) {
    const std::array<TransferBatch::Run, 1> runs = {TransferBatch::Run{memory, 0, bytes}};
    return DmabufRange::names(runs);
  };
  EXPECT_FALSE(names(ordinary.data(), ordinary.size()));
  std::byte* first = nullptr;
  {
    const Result<DmabufRange> range = DmabufRange::open(descriptor.get(), 4096, 8192);
    ASSERT_TRUE(range.has_value());
    first = range->addresses().data();
    EXPECT_FALSE(names(ordinary.data(), ordinary.size()));
    EXPECT_TRUE(names(first, 1));
    EXPECT_TRUE(names(first + 8191, 1));
    EXPECT_TRUE(names(first - 1, 2));
    EXPECT_FALSE(names(first - 1, 1));
    EXPECT_FALSE(names(first + 8192, 1));
    EXPECT_FALSE(names(first, 0));
    EXPECT_FALSE(DmabufRange::names({}));
  }
  EXPECT_FALSE(names(first, 1));
}

// Each run of a batch is compared with all ranges, whatever the order of both.
TEST(DmabufRange, RunsBetweenManyRangesAreFound) {
  constexpr std::size_t count = 64;
  constexpr std::size_t page = 4096;
  const Descriptor descriptor = memory_descriptor(page);
  std::vector<DmabufRange> ranges;
  for (std::size_t i = 0; i < count; ++i) {
    Result<DmabufRange> range = DmabufRange::open(descriptor.get(), 0, page);
    ASSERT_TRUE(range.has_value());
    ranges.push_back(std::move(*range));
  }
  for (std::size_t i = 0; i < count; i += 3) ranges[i] = DmabufRange();
  const auto in_a_range = [&](const std::byte* data) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const DmabufRange& one) {
      return !one.empty() && data >= one.addresses().data() && data < one.addresses().data() + page;
    });
  };
  std::vector<std::byte*> places;
  for (const DmabufRange& one : ranges) {
    if (one.empty()) continue;
    for (const std::ptrdiff_t offset : {-4096, -1, 0, 1, 4095, 4096}) places.push_back(one.addresses().data() + offset);
  }
  std::array<std::byte, 1> ordinary{};
  for (std::byte* const first : places) {
    const TransferBatch::Run before{first, 0, 1};
    for (std::byte* const second : places) {
      const std::array<TransferBatch::Run, 3> runs = {before, TransferBatch::Run{ordinary.data(), 0, 1},
                                                      TransferBatch::Run{second, 0, 1}};
      ASSERT_EQ(DmabufRange::names(runs), in_a_range(first) || in_a_range(second));
    }
  }
}

}  // namespace
}  // namespace hawser
