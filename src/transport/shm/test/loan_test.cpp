// Loans: payloads that the application writes in the slab.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "transport/common/loan_memory.h"
#include "transport/shm/test/hostile_testing.h"

namespace hawser::transport::shm {
namespace {

constexpr std::size_t loan_bytes = 300'000;

// The server is the sender, and the test is the peer.
class ShmLoan : public testing::Test {
 protected:
  ShmLoan() {
    EXPECT_TRUE(peer.answer());
    peer.open();
  }
  ~ShmLoan() override { peer.bell.reset(); }

  Buffer loan(std::size_t bytes) { return loan_of(*peer.connection, bytes); }
  bool is_in_slab(const Buffer& buffer) {
    // The test has mapped the memory a second time: a byte that is written here appears there.
    if (buffer.empty()) return false;
    std::byte* const first = const_cast<std::byte*>(buffer.data());
    const std::byte* const slab = peer.memory->slab(server_side);
    for (std::size_t at = 0; at < slab_bytes; at += peer.memory->sizes().chunk()) {
      *first = std::byte{1};
      if (slab[at] != std::byte{1}) continue;
      *first = std::byte{2};
      if (slab[at] == std::byte{2}) return true;
    }
    return false;
  }
  // Sends one message and returns its record.
  RingRecord send(std::span<const ConstBuffer> payload, SendCompletion* owner = nullptr) {
    EXPECT_NE(peer.connection->reserve(16), nullptr);
    peer.connection->commit(16, payload, owner);
    peer.connection->flush();
    RingRecord record{};
    std::memcpy(&record, peer.memory->ring(server_side) + at_, sizeof record);
    at_ += sizeof record + 16 + (record.kind == RingRecordKind::whole ? aligned(record.payload_bytes) : 0);
    return record;
  }
  RingRecord send(Bytes bytes) {
    const ConstBuffer piece{bytes.data(), bytes.size()};
    return send(std::span(&piece, 1));
  }
  const std::byte* region(const RingRecord& record) {
    return peer.memory->slab(server_side) + record.where * peer.memory->sizes().chunk();
  }
  // True if the peer sees what the application writes there now.
  bool in_place(const RingRecord& record, const std::byte* written) {
    std::byte* const to = const_cast<std::byte*>(written);
    *to = std::byte{17};
    if (*region(record) != std::byte{17}) return false;
    *to = std::byte{18};
    return *region(record) == std::byte{18};
  }
  void give_back(const RingRecord& record) { peer.control().returned[server_side][record.where].store(1); }

  static constexpr std::size_t slab_bytes = std::size_t{4} << 20;
  HostileClient peer{{.slab_bytes = slab_bytes}};

 private:
  std::size_t at_ = 0;  // Position of the next record in the ring.
};

TEST_F(ShmLoan, IsSentInPlace) {
  peer.loop.on([&] {
    const Buffer buffer = loan(loan_bytes);
    ASSERT_EQ(buffer.size(), loan_bytes);
    ASSERT_TRUE(is_in_slab(buffer));
    const RingRecord sent = send(buffer.bytes());
    EXPECT_EQ(sent.kind, RingRecordKind::slab);
    EXPECT_EQ(sent.payload_bytes, loan_bytes);
    EXPECT_TRUE(in_place(sent, buffer.data()));
  });
}

TEST_F(ShmLoan, IsNotSentInPlaceAgainUntilThePeerHasReturnedIt) {
  peer.loop.on([&] {
    const Buffer buffer = loan(loan_bytes);
    const RingRecord first = send(buffer.bytes());
    const RingRecord second = send(buffer.bytes());
    EXPECT_EQ(second.kind, RingRecordKind::slab);
    EXPECT_NE(second.where, first.where);
    EXPECT_FALSE(in_place(second, buffer.data()));
    give_back(first);
    const RingRecord third = send(buffer.bytes());
    EXPECT_EQ(third.where, first.where);
    EXPECT_EQ(peer.control().returned[server_side][third.where].load(), 0U);
    // It is not used for others while one of its two users has it.
    give_back(second);
    give_back(third);
    for (int i = 0; i < 40; ++i) {
      const Buffer other = loan(loan_bytes);
      EXPECT_NE(other.data(), buffer.data());
      ASSERT_FALSE(other.empty());
    }
  });
}

TEST_F(ShmLoan, ItsRegionIsFreeWhenBothUsersHaveReleasedIt) {
  peer.loop.on([&] {
    for (int i = 0; i < 100; ++i) {
      Buffer buffer = loan(slab_bytes / 2);
      ASSERT_FALSE(buffer.empty()) << i;
      const std::byte* const place = buffer.data();
      if (i % 3 == 0) continue;  // It is dropped.
      const RingRecord sent = send(buffer.bytes());
      if (i % 3 == 1) give_back(sent);
      buffer = {};
      if (i % 3 == 1) continue;
      const Buffer other = loan(slab_bytes / 2);
      EXPECT_NE(other.data(), place) << "the peer has it";
      give_back(sent);
    }
  });
}

TEST_F(ShmLoan, PartsOfItAreSentInPlaceIfTheyBeginWithIt) {
  peer.loop.on([&] {
    Buffer buffer = loan(loan_bytes);
    std::fill_n(buffer.mutable_data(), loan_bytes, std::byte{4});
    const RingRecord behind = send(buffer.bytes().subspan(8));
    EXPECT_FALSE(in_place(behind, buffer.data() + 8));
    EXPECT_EQ(region(behind)[loan_bytes - 9], std::byte{4});
    const std::array<ConstBuffer, 2> pieces{{{buffer.data(), 100'000}, {buffer.data(), 100'000}}};
    const RingRecord two = send(pieces);
    EXPECT_EQ(two.payload_bytes, 200'000U);
    EXPECT_FALSE(in_place(two, buffer.data()));
    const RingRecord short_one = send(buffer.bytes().first(100));
    EXPECT_EQ(short_one.kind, RingRecordKind::whole) << "short payloads are in the ring";
    const RingRecord part = send(buffer.bytes().first(100'000));
    EXPECT_EQ(part.payload_bytes, 100'000U);
    EXPECT_TRUE(in_place(part, buffer.data()));
  });
}

TEST_F(ShmLoan, HalfOfTheSlabIsLoanedAtMost) {
  peer.loop.on([&] {
    EXPECT_TRUE(loan(slab_bytes / 2 + 1).empty());
    EXPECT_TRUE(loan(SIZE_MAX).empty());
    EXPECT_TRUE(loan(ShmOptions{}.eager_bytes).empty());
    std::vector<Buffer> loans;
    for (Buffer one = loan(100'000); !one.empty(); one = loan(100'000)) loans.push_back(std::move(one));
    EXPECT_EQ(loans.size(), slab_bytes / 2 / peer.memory->sizes().chunk() / 7) << "7 chunks of 16 KiB each";
    // The rest is there for other payloads.
    const std::string other(slab_bytes / 2, 'x');
    EXPECT_EQ(send(as_bytes(other)).kind, RingRecordKind::slab);
    loans.pop_back();
    EXPECT_FALSE(loan(100'000).empty());
    // A region that only the peer has does not count.
    const RingRecord sent = send(loans.back().bytes());
    loans.pop_back();
    Buffer next = loan(100'000);
    EXPECT_FALSE(next.empty());
    give_back(sent);
  });
}

// A peer may state that it returns what it does not have.
TEST_F(ShmLoan, APeerCannotReturnWhatItDoesNotHave) {
  peer.loop.on([&] {
    const auto return_all = [&] {
      for (auto& one : peer.control().returned[server_side]) one.store(1);
    };
    Buffer held = loan(loan_bytes);
    return_all();
    for (int i = 0; i < 20; ++i) {
      const Buffer other = loan(loan_bytes);
      ASSERT_NE(other.data(), held.data());
      ASSERT_FALSE(other.empty());
      return_all();
    }
    // After that the region is sent, and not free.
    const RingRecord sent = send(held.bytes());
    EXPECT_TRUE(in_place(sent, held.data()));
    EXPECT_EQ(peer.control().returned[server_side][sent.where].load(), 0U);
    return_all();
    const Buffer other = loan(loan_bytes);
    EXPECT_NE(other.data(), held.data()) << "the application has it";
    EXPECT_TRUE(peer.sink.closed.empty());
  });
}

TEST_F(ShmLoan, OutlivesItsConnectionOnAnyThread) {
  std::vector<Buffer> loans;
  peer.loop.on([&] {
    for (int i = 0; i < 4; ++i) loans.push_back(loan(loan_bytes));
    send(loans[0].bytes());
    peer.connection->abort();
    EXPECT_TRUE(loan(loan_bytes).empty()) << "after the end";
    peer.connection.reset();
  });
  std::vector<std::thread> threads;
  for (Buffer& one : loans) {
    threads.emplace_back([mine = std::move(one)]() mutable {
      std::fill_n(mine.mutable_data(), mine.size(), std::byte{5});
      const Buffer shared = mine.slice(1, 2);
      mine = {};
      EXPECT_EQ(*shared.data(), std::byte{5});
    });
  }
  for (std::thread& one : threads) one.join();
}

// Threads release loans while the loop loans the same regions again.
TEST_F(ShmLoan, IsReleasedWhileOthersAreTaken) {
  for (int round = 0; round < 200; ++round) {
    Buffer first;
    Buffer second;
    peer.loop.on([&] {
      first = loan(slab_bytes / 4);
      second = loan(slab_bytes / 4);
    });
    ASSERT_FALSE(first.empty());
    ASSERT_FALSE(second.empty());
    std::thread other([mine = std::move(first)]() mutable { mine = {}; });
    peer.loop.on([&] {
      const Buffer taken = loan(slab_bytes / 4);
      if (!taken.empty()) {
        EXPECT_NE(taken.data(), second.data());
      }
    });
    other.join();
  }
}

}  // namespace
}  // namespace hawser::transport::shm
