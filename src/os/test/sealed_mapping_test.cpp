#include "os/sealed_mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>

#include "base/descriptor.h"

namespace hawser {
namespace {

constexpr std::size_t file_bytes = 4096;

// A file in memory with `text` at its end.
Descriptor file_with(const char* text, unsigned seals) {
  Descriptor file(memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(file.get(), file_bytes), 0);
  const std::size_t bytes = std::strlen(text);
  EXPECT_EQ(pwrite(file.get(), text, bytes, static_cast<off_t>(file_bytes - bytes)), static_cast<ssize_t>(bytes));
  EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

TEST(SealedMapping, AllBytesOfTheFileAreMapped) {
  const Descriptor file = file_with("the end", F_SEAL_SHRINK);
  const std::unique_ptr<const SealedMapping> mapping = SealedMapping::open(getpid(), file.get(), file_bytes);
  ASSERT_NE(mapping, nullptr);
  EXPECT_EQ(std::memcmp(mapping->data() + file_bytes - 7, "the end", 7), 0);
  EXPECT_EQ(SealedMapping::open(getpid(), file.get(), file_bytes + 1), nullptr);
}

TEST(SealedMapping, AFileThatMayShrinkIsRefused) {
  const Descriptor file = file_with("the end", F_SEAL_GROW);
  EXPECT_EQ(SealedMapping::open(getpid(), file.get(), file_bytes), nullptr);
}

TEST(SealedMapping, AnotherKindOfFileIsRefused) {
  std::array<int, 2> ends{-1, -1};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const Descriptor reader(ends[0]);
  const Descriptor writer(ends[1]);
  EXPECT_EQ(SealedMapping::open(getpid(), reader.get(), 1), nullptr);
  EXPECT_EQ(SealedMapping::open(getpid(), -1, 1), nullptr);
}

}  // namespace
}  // namespace hawser
