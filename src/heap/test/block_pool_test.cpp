#include "heap/block_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/bytes.h"

namespace hawser {
namespace {

TEST(Block, IsAlignedAndLargeEnough) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{256}, std::size_t{257},
                                 std::size_t{1} << 20, BlockPool::class_bytes_max, BlockPool::class_bytes_max + 1}) {
    Block* const block = Block::allocate(size);
    EXPECT_GE(block->size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block->data()) % 64, 0U);
    EXPECT_TRUE(block->unique());
    std::memset(block->data(), 0x5a, block->size());
    block->release();
  }
}

// A size that a peer has stated may be any number.
TEST(Block, OfMoreBytesThanThereAreAddressesIsRefused) {
  for (const std::size_t size :
       {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX - 100, SIZE_MAX - (std::size_t{2} << 20), SIZE_MAX / 2 + 1}) {
    EXPECT_THROW(static_cast<void>(Buffer::allocate(size)), std::bad_alloc) << size;
  }
}

TEST(Block, LivesAsLongAsItsLastReference) {
  Block* const block = Block::allocate(100);
  block->retain();
  EXPECT_FALSE(block->unique());
  block->release();
  EXPECT_TRUE(block->unique());
  block->data()[0] = std::byte{1};
  block->release();
}

// Allocates when its thread ends. Made before the thread's pool, it is destroyed after that.
struct AllocatesLast {
  ~AllocatesLast() { *block = Block::allocate(300); }
  Block** block = nullptr;
};

TEST(BlockPool, BlocksOfAThreadWithoutAPoolFitTheClassInWhichTheyAreCached) {
  Block* late = nullptr;
  std::thread([&late] {
    static thread_local AllocatesLast last;
    last.block = &late;
    Block::allocate(300)->release();
  }).join();
  BlockPool pool;
  Block* const own = pool.acquire(512);
  pool.release(late);
  Block* const next = pool.acquire(512);
  EXPECT_GE(next->size(), 512U);
  pool.release(next);
  BlockPool::free(own);
}

TEST(BlockPool, HandsOutWhatWasGivenBack) {
  BlockPool pool;
  Block* const first = pool.acquire(1000);
  EXPECT_EQ(first->size(), 1024U);
  EXPECT_EQ(pool.cached_bytes(), 0U);
  pool.release(first);
  EXPECT_EQ(pool.cached_bytes(), 1024U);
  Block* const other_class = pool.acquire(1025);
  EXPECT_NE(other_class, first);
  Block* const again = pool.acquire(513);
  EXPECT_EQ(again, first) << "a block fits every request of its class";
  EXPECT_TRUE(again->unique());
  EXPECT_EQ(pool.cached_bytes(), 0U);
  pool.release(again);
  pool.release(other_class);
  EXPECT_EQ(pool.cached_bytes(), 1024U + 2048U);
}

TEST(BlockPool, IsBounded) {
  BlockPool pool;
  std::vector<Block*> blocks;
  for (int i = 0; i < 9; ++i) blocks.push_back(pool.acquire(BlockPool::class_bytes_max));
  for (Block* const block : blocks) pool.release(block);
  EXPECT_LE(pool.cached_bytes(), BlockPool::cached_bytes_max);
  EXPECT_GE(pool.cached_bytes(), BlockPool::class_bytes_max);
  const std::size_t before = pool.cached_bytes();
  pool.release(pool.acquire(BlockPool::class_bytes_max + 1));
  EXPECT_EQ(pool.cached_bytes(), before) << "what is larger than every class is not kept";
}

// Another thread acquires, this one releases: it must not keep memory that it never uses.
TEST(BlockPool, AThreadThatOnlyReleasesKeepsNothing) {
  BlockPool acquires;
  BlockPool releases;
  for (int i = 0; i < 100; ++i) releases.release(acquires.acquire(64 * 1024));
  EXPECT_EQ(releases.cached_bytes(), 0U);
  // It caches as many bytes as it has acquired itself.
  releases.release(releases.acquire(64 * 1024));
  EXPECT_EQ(releases.cached_bytes(), 64U * 1024);
  releases.release(acquires.acquire(64 * 1024));
  EXPECT_EQ(releases.cached_bytes(), 64U * 1024);
}

TEST(BlockPool, ShrinksToWhatIsUsed) {
  BlockPool pool;
  std::vector<Block*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(pool.acquire(64 * 1024));
  for (Block* const block : blocks) pool.release(block);
  pool.shrink();
  EXPECT_EQ(pool.cached_bytes(), 100U * 64 * 1024) << "all of them were in use since the previous call";
  for (int i = 0; i < 10; ++i) blocks[static_cast<std::size_t>(i)] = pool.acquire(64 * 1024);
  for (int i = 0; i < 10; ++i) pool.release(blocks[static_cast<std::size_t>(i)]);
  pool.shrink();
  EXPECT_EQ(pool.cached_bytes(), 10U * 64 * 1024) << "ten were used at the same time";
  pool.shrink();
  EXPECT_EQ(pool.cached_bytes(), 0U);
}

TEST(BlockPool, BlocksMayEndOnAnotherThread) {
  std::vector<Buffer> buffers;
  std::thread([&] {
    for (int i = 0; i < 100; ++i) buffers.push_back(Buffer::copy_of("made there"));
  }).join();
  for (const Buffer& buffer : buffers) EXPECT_EQ(buffer.text(), "made there");
}

TEST(BlockPool, ManyThreadsShareBlocks) {
  const Buffer shared = Buffer::copy_of("shared");
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&shared] {
      for (int i = 0; i < 10'000; ++i) {
        const Buffer copy = shared;
        const Buffer part = copy.slice(1, 2);
        if (part.text() != "ha") ADD_FAILURE();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(shared.block()->unique());
}

// The buffer is destroyed after its thread's pool: it is a thread_local object that was made before the pool.
TEST(BlockPool, WorksWhileItsThreadEnds) {
  std::thread([] {
    static thread_local Buffer late;
    late = Buffer::allocate(300);
  }).join();
}

TEST(Buffer, EmptyIsEmpty) {
  const Buffer buffer;
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.block(), nullptr);
  const Buffer copy = buffer;  // NOLINT: the copy is what is tested.
  EXPECT_TRUE(copy.empty());
  EXPECT_TRUE(Buffer::copy_of("").empty());
}

TEST(Buffer, CopiesShareAndMovesDoNot) {
  Buffer first = Buffer::copy_of("text");
  EXPECT_TRUE(first.block()->unique());
  Buffer second = first;
  EXPECT_EQ(second.data(), first.data());
  EXPECT_FALSE(first.block()->unique());
  const Buffer third = std::move(second);
  EXPECT_TRUE(second.empty());  // A moved-from buffer is empty by contract.
  EXPECT_EQ(second.block(), nullptr);
  first = Buffer();
  EXPECT_TRUE(third.block()->unique());
  EXPECT_EQ(third.text(), "text");
}

TEST(Buffer, AssigningItselfIsHarmless) {
  Buffer buffer = Buffer::copy_of("text");
  const Buffer& same = buffer;
  buffer = same;
  EXPECT_EQ(buffer.text(), "text");
  EXPECT_TRUE(buffer.block()->unique());
}

TEST(Buffer, SlicesKeepTheBlock) {
  Buffer part;
  {
    const Buffer whole = Buffer::copy_of("0123456789");
    part = whole.slice(3, 4);
    EXPECT_EQ(whole.slice(10, 0).size(), 0U);
  }
  EXPECT_EQ(part.text(), "3456");
  EXPECT_EQ(part.slice(1, 2).text(), "45");
}

TEST(Buffer, AdoptTakesAndShareAddsAReference) {
  Block* const block = Block::allocate(10);
  std::memcpy(block->data(), "0123456789", 10);
  const Buffer adopted = Buffer::adopt(block, block->data(), 10);
  EXPECT_TRUE(block->unique());
  {
    const Buffer shared = Buffer::share(block, block->data() + 5, 5);
    EXPECT_FALSE(block->unique());
    EXPECT_EQ(shared.text(), "56789");
  }
  EXPECT_TRUE(block->unique());
}

}  // namespace
}  // namespace hawser
