// Tests of two loops in two threads. Only the other loop wakes a loop.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/random.h"
#include "os/pin_thread.h"
#include "transport/conformance/transport_testing.h"
#include "transport/shm/memory/doorbell.h"
#include "transport/shm/memory/ring.h"
#include "transport/shm/memory/shared_memory.h"
#include "transport/shm/peer.h"
#include "transport/shm/shm_transport.h"

namespace hawser::transport::shm {
namespace {

// Waits without waking anybody. False after a minute without progress of `count`, which means that a side hangs.
bool until_still(const std::atomic<std::size_t>& count, const std::atomic<std::size_t>& wanted) {
  std::size_t last = 0;
  for (int idle = 0; idle < 6000; ++idle) {
    const std::size_t now = count.load();
    if (now >= wanted.load()) return true;
    if (now != last) idle = 0;
    last = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// A busy machine runs fewer rounds.
class EndOfRounds {
 public:
  bool passed() const { return std::chrono::steady_clock::now() > end_; }

 private:
  const std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() + std::chrono::seconds(20);
};

TransportCase waking_case(Wait wait, const ShmOptions& options) {
  TransportCase one{
      .name = "wake", .make = [options] { return make_shm_transport(options, OwnProcess::read); }, .two_loops = true};
  one.loop.wait = wait;
  one.loop.spin_max = std::chrono::microseconds(3);  // A spinning loop sleeps often, too.
  return one;
}

class ShmWake : public testing::TestWithParam<Wait> {};
INSTANTIATE_TEST_SUITE_P(Waits, ShmWake, testing::Values(Wait::event, Wait::spin),
                         [](const auto& one) { return one.param == Wait::event ? "event" : "spin"; });

TEST_P(ShmWake, NoPingIsLost) {
  std::atomic<std::size_t> rounds = 30'000;
  const EndOfRounds end;
  TransportPair pair(waking_case(GetParam(), {}));
  ASSERT_TRUE(pair.establish());
  Random random(1);
  for (TransportSide* side : {&pair.client, &pair.server}) {
    side->sink.record = false;
    const bool server = side == &pair.server;
    side->sink.on_each = [side, server, &rounds, &end, seed = random.next()](const Message&) mutable {
      // The other side falls asleep at every possible moment.
      Random delay(seed++);
      for (std::uint64_t n = delay.below(3000); n != 0; --n) asm volatile("");
      if (server && end.passed()) {
        rounds = std::min(rounds.load(), side->sink.count.load() + 1);  // This message is counted behind this function.
        return;
      }
      if (side->sink.count.load() < rounds.load()) side->send("ball", std::string_view());
    };
    side->publish();
  }
  pair.client.on([&] { pair.client.send("ball", std::string_view()); });
  EXPECT_TRUE(until_still(pair.server.sink.count, rounds));
}

// One sender waits for room, and one waits for its memory, while the receiver pauses now and then.
TEST_P(ShmWake, NoRoomIsMissed) {
  std::atomic<std::size_t> count = 20'000;
  const EndOfRounds end;
  TransportPair pair(waking_case(
      GetParam(),
      {.ring_bytes = 64 * 1024, .slab_bytes = 64 * 1024, .eager_bytes = 4096, .direct_read_bytes_min = 40'000}));
  ASSERT_TRUE(pair.establish());
  // The client sends the next message when the memory of the previous one has been returned, and does not stop when
  // there is no room.
  struct Chain final : SendCompletion {
    void on_send_complete() noexcept override {
      if (left != 0 && end->passed()) {
        *count -= left;
        left = 0;
      }
      if (left == 0) return;
      --left;
      const std::size_t size = 1000 + left % 3 * 25'000;
      side->send("head", std::string_view(memory).substr(0, size), this);
    }
    TransportSide* side = nullptr;
    std::atomic<std::size_t>* count = nullptr;
    const EndOfRounds* end = nullptr;
    std::size_t left = 0;
    std::string memory = test_bytes(60'000, 1);
  };
  Chain chain;
  chain.side = &pair.client;
  chain.count = &count;
  chain.end = &end;
  chain.left = count;
  pair.server.sink.record = false;
  pair.server.sink.on_each = [&](const Message&) {
    if (pair.server.sink.count.load() % 50 != 0) return;
    pair.server.connection->pause();
    pair.server.loop->loop().post([&] { pair.server.connection->resume(); });
  };
  pair.server.publish();
  pair.client.on([&] { chain.on_send_complete(); });
  EXPECT_TRUE(until_still(pair.server.sink.count, count));
  // Neither side uses the memory any more. This lets the sanitizer know before the memory is freed.
  pair.server.publish();
  pair.client.publish();
}

// Tests the fences in Sleeper::arm() and PeerWaker::wake(). A side that falls asleep while the other publishes sees the
// published data or is woken. Without either fence, some wake-ups are lost on processors that buffer stores.
TEST(ShmSleeper, NoWakeUpIsLost) {
  constexpr std::uint64_t rounds = 100'000;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);  // A busy machine runs fewer rounds.
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Doorbell bell{Descriptor(ends[0])};
  const Doorbell heard{Descriptor(ends[1])};
  const auto memory = *SharedMemory::create({ring_bytes_min, 0}, false);
  SideState& side = memory->control().sides[server_side];
  std::atomic<std::uint64_t>& tail = memory->control().rings[client_side].tail;
  struct alignas(2 * line_bytes) Gate {
    std::atomic<std::uint64_t> round{0};
  };
  Gate sleeping;
  Gate publishing;
  bool over = false;  // The sleeper writes it before the two meet.
  // Both continue at nearly the same time.
  const auto meet_at = [](Gate& mine, const Gate& theirs, std::uint64_t round) {
    mine.round.store(round, std::memory_order_release);
    for (int spins = 0; theirs.round.load(std::memory_order_acquire) < round;) {
      if (++spins % 1000 == 0) std::this_thread::yield();
    }
  };
  // Uses two processors if there are two. Before each round, the publisher's cache holds the flag, and the sleeper's
  // cache holds the tail. Then each side's store is slow and its load is fast, so the load overtakes a store that is
  // not waited for.
  std::thread publisher([&] {
    pin_thread(1);
    const PeerWaker waker(side, bell);
    for (std::uint64_t round = 1;; ++round) {
      side.asleep.store(0, std::memory_order_relaxed);
      meet_at(publishing, sleeping, 3 * round);
      for (std::uint64_t n = round % 8; n != 0; --n) asm volatile("");
      tail.store(round, std::memory_order_release);
      waker.wake(wants_messages);
      meet_at(publishing, sleeping, 3 * round + 1);
      meet_at(publishing, sleeping, 3 * round + 2);
      if (over) break;
    }
  });
  std::uint64_t lost = 0;
  std::thread sleeper_thread([&] {
    pin_thread(0);
    Sleeper sleeper(side);
    for (std::uint64_t round = 1;; ++round) {
      EXPECT_EQ(tail.load(std::memory_order_relaxed), round - 1);
      meet_at(sleeping, publishing, 3 * round);
      for (std::uint64_t n = round / 8 % 8; n != 0; --n) asm volatile("");
      const bool asleep = sleeper.arm(wants_messages, [&] { return tail.load(std::memory_order_relaxed) == round; });
      meet_at(sleeping, publishing, 3 * round + 1);
      // The side that wakes another clears its word.
      if (asleep && side.asleep.load() != 0) ++lost;
      heard.silence();
      over = round == rounds || (round % 256 == 0 && std::chrono::steady_clock::now() > end);
      meet_at(sleeping, publishing, 3 * round + 2);
      if (over) break;
    }
  });
  sleeper_thread.join();
  publisher.join();
  EXPECT_EQ(lost, 0U);
}

// Tests the ring alone: the bytes that are read are those that were written, in order, at any speed.
TEST(ShmRing, TwoThreads) {
  const Sizes sizes{ring_bytes_min, 0};
  const auto memory = *SharedMemory::create(sizes, false);
  RingEnds& ends = memory->control().rings[server_side];
  constexpr std::uint64_t count = 200'000;
  std::thread writing([&] {
    RingWriter ring(memory->ring(server_side), sizes.ring, ends);
    Random random(1);
    for (std::uint64_t i = 0; i < count;) {
      const std::size_t bytes = 16 * (2 + random.below(40));
      if (!ring.has_room(bytes)) {
        if (ring.unpublished() != 0) ring.publish();
        std::this_thread::yield();
        continue;
      }
      const RingRecord record{RingRecordKind::whole, static_cast<std::uint32_t>(bytes - sizeof(RingRecord)), 0, 0};
      std::memcpy(ring.at(), &record, sizeof record);
      for (std::size_t at = 16; at < bytes; at += 8) std::memcpy(ring.at() + at, &i, sizeof i);
      ring.advance(bytes);
      ++i;
      if (random.chance(0.2)) ring.publish();
    }
    ring.publish();
    EXPECT_FALSE(ring.broken());
  });
  RingReader ring(memory->ring(server_side), sizes.ring, ends);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < count;) {
    if (ring.available() == 0) {
      std::this_thread::yield();
      continue;
    }
    const RingRecord record = ring.record();
    for (std::size_t at = 0; at < record.head_bytes; at += 8) {
      std::uint64_t value = 0;
      std::memcpy(&value, ring.at() + sizeof record + at, sizeof value);
      wrong += value != i;
    }
    ring.advance(sizeof record + record.head_bytes);
    ++i;
    if (ring.unpublished() > sizes.ring / 4) ring.publish();
    if (ring.left() == 0) ring.publish();
  }
  writing.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_FALSE(ring.broken());
}

}  // namespace
}  // namespace hawser::transport::shm
