#include "heap/secret_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/test/resident_bytes.h"

namespace hawser {
namespace {

struct HeldBlock {
  unsigned char* at;
  std::size_t bytes;
  unsigned char fill;
};

HeldBlock make_block(std::size_t bytes, unsigned char fill) {
  auto* const at = static_cast<unsigned char*>(SecretMemory::allocate(bytes));
  EXPECT_NE(at, nullptr);
  if (at != nullptr) std::memset(at, fill, bytes);
  return {at, bytes, fill};
}
bool is_intact(const HeldBlock& block) {
  for (std::size_t i = 0; i < block.bytes; ++i) {
    if (block.at[i] != block.fill) return false;
  }
  return true;
}

// The flags of the mapping that contains `address`.
std::string flags_of(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<unsigned long>(address);
      inside = at >= begin && at < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return {};
}

TEST(SecretMemory, BlocksOfEverySizeAreApartAndAligned) {
  std::vector<HeldBlock> blocks;
  const auto add = [&](std::size_t bytes) { blocks.push_back(make_block(bytes, static_cast<unsigned char>(bytes))); };
  for (std::size_t bytes = 0; bytes < 700; ++bytes) add(bytes);
  for (std::size_t bytes = 512; bytes <= std::size_t{1} << 20; bytes *= 2) {
    for (const std::size_t around : {bytes - 64, bytes - 1, bytes, bytes + 1, bytes + bytes / 3}) add(around);
  }
  for (const HeldBlock& block : blocks) {
    EXPECT_TRUE(is_intact(block)) << block.bytes;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.at) % SecretMemory::alignment, 0U) << block.bytes;
    EXPECT_GE(SecretMemory::size_of(block.at), block.bytes);
    EXPECT_TRUE(SecretMemory::contains(block.at));
    EXPECT_TRUE(SecretMemory::contains(block.at + block.bytes));
  }
  for (const HeldBlock& block : blocks) SecretMemory::deallocate(block.at);
  const auto outside = std::make_unique<int>(1);
  EXPECT_FALSE(SecretMemory::contains(outside.get()));
  EXPECT_FALSE(SecretMemory::contains(nullptr));
  EXPECT_EQ(SecretMemory::allocate(SecretMemory::range_bytes), nullptr);
  EXPECT_EQ(SecretMemory::allocate(SIZE_MAX), nullptr);
  SecretMemory::deallocate(nullptr);
}

TEST(SecretMemory, IsLeftOutOfCoreDumps) {
  const HeldBlock block = make_block(100, 1);
  const std::string flags = flags_of(block.at);
  EXPECT_NE(flags.find(" dd "), std::string::npos) << flags;
  EXPECT_EQ(flags_of(std::make_unique<int>(1).get()).find(" dd "), std::string::npos);
  SecretMemory::deallocate(block.at);
}

// Only the pointer to the next free block may lie in a released one.
TEST(SecretMemory, ReleasedBlocksAreWiped) {
  for (const std::size_t bytes : {16, 40, 100, 1000, 5000, 17000, 30000, 200000}) {
    const HeldBlock block = make_block(bytes, 0xa5);
    const std::size_t usable = SecretMemory::size_of(block.at);
    std::memset(block.at, 0xa5, usable);
    SecretMemory::deallocate(block.at);
    for (std::size_t i = sizeof(void*); i < usable; ++i) ASSERT_EQ(block.at[i], 0) << bytes << " " << i;
  }
  std::string text = "a password of more than 15 bytes";
  char* const begin = text.data();
  const std::size_t room = text.size();
  text.resize(3);
  wipe(text);
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(std::string(begin, room), std::string(room, '\0'));
}

// The thread keeps two of them. The others, and all of them when it ends, are wiped.
TEST(SecretMemory, BuffersAreWipedWhenTheThreadDoesNotKeepThem) {
  for (const std::size_t bytes : {17000, 30000}) {
    std::vector<HeldBlock> blocks;
    std::size_t usable = 0;
    const auto unwiped = [&] {
      std::size_t count = 0;
      for (const HeldBlock& block : blocks) {
        bool clean = true;
        for (std::size_t i = sizeof(void*); i < usable; ++i) clean = clean && block.at[i] == 0;
        if (!clean) ++count;
      }
      return count;
    };
    std::thread([&] {
      for (int i = 0; i < 8; ++i) {
        blocks.push_back(make_block(bytes, 0xa5));
        usable = SecretMemory::size_of(blocks.back().at);
        std::memset(blocks.back().at, 0xa5, usable);
      }
      for (const HeldBlock& block : blocks) SecretMemory::deallocate_buffer(block.at);
      EXPECT_EQ(unwiped(), 2U);
    }).join();
    EXPECT_EQ(unwiped(), 0U);
  }
  // A shorter block is wiped at once.
  const HeldBlock small = make_block(1000, 0xa5);
  SecretMemory::deallocate_buffer(small.at);
  EXPECT_EQ(small.at[500], 0);
  SecretMemory::deallocate_buffer(nullptr);
}

// Threads release what others have allocated, and end.
TEST(SecretMemory, ThreadsExchangeBlocks) {
  std::array<std::atomic<HeldBlock*>, 64> places{};
  std::atomic<int> broken{0};
  const auto work = [&](unsigned seed) {
    std::minstd_rand random(seed);
    for (int i = 0; i < 20000; ++i) {
      const std::size_t bytes = random() % 50 == 0 ? random() % 100000 : random() % 600;
      HeldBlock* const made = new HeldBlock(make_block(bytes, static_cast<unsigned char>(random())));
      const std::unique_ptr<HeldBlock> old(places[random() % places.size()].exchange(made));
      if (old == nullptr) continue;
      if (!is_intact(*old)) ++broken;
      SecretMemory::deallocate(old->at);
    }
  };
  for (unsigned round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, 1 + 4 * round + i);
    for (std::thread& thread : threads) thread.join();
  }
  for (const auto& place : places) {
    const std::unique_ptr<HeldBlock> last(place.load());
    if (last == nullptr) continue;
    if (!is_intact(*last)) ++broken;
    SecretMemory::deallocate(last->at);
  }
  EXPECT_EQ(broken, 0);
}

// In turn, many blocks of each size: the memory of one size serves the next one, and returns to the system.
TEST(SecretMemory, ReturnsToTheSystem) {
  constexpr std::size_t all_bytes = std::size_t{32} << 20;
  const std::size_t before = resident_bytes();
  for (const std::size_t bytes : {48, 1000, 17000, 31000, 300000}) {
    // A list within the blocks: the address sanitizer would keep the memory of a vector.
    void* last = nullptr;
    for (std::size_t held = 0; held < all_bytes; held += bytes) {
      const HeldBlock made = make_block(bytes, 3);
      std::memcpy(made.at, &last, sizeof last);
      last = made.at;
    }
    EXPECT_GT(resident_bytes(), before + all_bytes / 2) << bytes;
    while (last != nullptr) {
      void* next = nullptr;
      std::memcpy(&next, last, sizeof next);
      SecretMemory::deallocate(std::exchange(last, next));
    }
  }
  EXPECT_LT(resident_bytes(), before + all_bytes / 2);
}

// Peaks of which each is lower than the one before leave as much free memory in use as a single one.
TEST(SecretMemory, ReturnsToTheSystemAfterEachPeak) {
  constexpr std::size_t bytes = 32000;  // Two in a slab.
  const auto rise = [](std::size_t slabs) {
    std::vector<HeldBlock> blocks;
    for (std::size_t i = 0; i < 2 * slabs; ++i) blocks.push_back(make_block(bytes, 3));
    for (const HeldBlock& block : blocks) SecretMemory::deallocate(block.at);
  };
  constexpr std::size_t peak_slabs = 256;  // 16 MiB.
  rise(peak_slabs);
  const std::size_t before = resident_bytes();
  for (std::size_t slabs = peak_slabs; slabs != 0; slabs -= 64) rise(slabs);
  EXPECT_LT(resident_bytes(), before + (std::size_t{4} << 20));
}

TEST(SecretMemory, IsUsableInAForkedProcess) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) SecretMemory::deallocate(SecretMemory::allocate(20000));
  });
  const HeldBlock kept = make_block(100, 7);
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      const HeldBlock own = make_block(20000, 8);
      const bool sound = own.at != nullptr && is_intact(kept) && is_intact(own);
      SecretMemory::deallocate(own.at);
      _exit(sound ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  busy.join();
  SecretMemory::deallocate(kept.at);
}

// In a process with few addresses, the range is smaller, and the error says so.
TEST(SecretMemory, TheLimitOfAddressesIsNamed) {
  ASSERT_TRUE(SecretMemory::reserve(SecretMemory::range_bytes_min));
  const Result<void> refused = SecretMemory::reserve(2 * SecretMemory::range_bytes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::limit_exceeded);
  EXPECT_NE(refused.error().text.find("131072 MiB"), std::string::npos) << refused.error().text;
  EXPECT_NE(refused.error().text.find("ulimit -v"), std::string::npos) << refused.error().text;
}

struct Owner : InSecretMemory {
  std::array<char, 40> bytes{};
};

TEST(SecretMemory, ContainersAndObjectsUseIt) {
  SecretText text("1234");
  text.append("56");
  text.append('7');
  EXPECT_EQ(text.view(), "1234567");
  EXPECT_TRUE(SecretMemory::contains(text.view().data()));
  SecretText moved = std::move(text);
  EXPECT_EQ(moved.view(), "1234567");
  const SecretBytes bytes(100, 1);
  EXPECT_TRUE(SecretMemory::contains(bytes.data()));
  const SecretString string("a text of more than 15 bytes");
  EXPECT_TRUE(SecretMemory::contains(string.data()));
  const auto owner = std::make_unique<Owner>();
  EXPECT_TRUE(SecretMemory::contains(owner.get()));
  const std::unique_ptr<Owner> other(new (std::nothrow) Owner);
  EXPECT_TRUE(SecretMemory::contains(other.get()));
}

}  // namespace
}  // namespace hawser
