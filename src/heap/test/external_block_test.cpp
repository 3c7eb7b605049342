#include "heap/external_block.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>

namespace hawser {
namespace {

struct Chunk : ExternalBlock {
  Chunk() : ExternalBlock([](ExternalBlock& block) noexcept { ++static_cast<Chunk&>(block).returned; }) {}
  using ExternalBlock::loan;
  std::array<std::byte, 64> bytes{};
  int returned = 0;
};

TEST(ExternalBlock, TellsItsOwnerWhenTheLastReferenceIsGoneAndCanBeLoanedAnew) {
  Chunk chunk;
  {
    const Buffer first = Buffer::share(&chunk, chunk.bytes.data(), 16);
    const Buffer second = first.slice(4, 4);
    chunk.release();
    EXPECT_EQ(chunk.returned, 0);
  }
  EXPECT_EQ(chunk.returned, 1);
  chunk.loan();
  chunk.release();
  EXPECT_EQ(chunk.returned, 2);
}

TEST(Buffer, OfForeignMemoryCallsBackOnceWhenNobodyUsesIt) {
  std::array<std::byte, 16> memory{};
  int released = 0;
  {
    Buffer whole = Buffer::of_foreign(memory, [&, owner = std::make_unique<int>(1)] { released += *owner; });
    EXPECT_EQ(whole.data(), memory.data());
    EXPECT_EQ(whole.size(), memory.size());
    whole.mutable_data()[0] = std::byte{7};
    const Buffer part = whole.slice(8, 8);
    whole = {};
    EXPECT_EQ(released, 0);
    const Buffer same = Buffer::share(part.block(), part.data(), 1);
    EXPECT_FALSE(part.block()->unique());
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(memory[0], std::byte{7});
  const Buffer empty = Buffer::of_foreign({}, [&] { ++released; });
  EXPECT_TRUE(empty.empty());
}

TEST(Buffer, KeepsByReferenceWhatABlockHoldsAndCopiesWhatNoneDoes) {
  Chunk chunk;
  std::memset(chunk.bytes.data(), 1, chunk.bytes.size());
  const Buffer shared = Buffer::keep(&chunk, chunk.bytes.data(), 8);
  const Buffer copied = Buffer::keep(nullptr, chunk.bytes.data(), 8);
  std::memset(chunk.bytes.data(), 2, chunk.bytes.size());
  EXPECT_EQ(shared.bytes()[0], std::byte{2});
  EXPECT_EQ(copied.bytes()[0], std::byte{1});
  EXPECT_FALSE(chunk.unique());
}

}  // namespace
}  // namespace hawser
