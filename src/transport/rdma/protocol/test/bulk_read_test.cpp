#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hawser/error.h"
#include "transport/rdma/device/test/fake_device_testing.h"
#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/memory/user_memory.h"
#include "transport/rdma/protocol/one_sided.h"
#include "transport/rdma/protocol/test/manual_clock_testing.h"
#include "transport/rdma/protocol/test/one_sided_testing.h"

namespace hawser::transport::rdma {
namespace {

// Bulk reads over a path that takes 10 ns for a byte and has no latency, so that the smallest window has its rate.
class BulkReads : public ::testing::Test {
 protected:
  static constexpr std::uint64_t domain = 7;
  static constexpr std::size_t remote_bytes = std::size_t{16} << 20;
  static constexpr std::size_t parts_max = 16;

  struct Read final : RemoteOperation {
    void on_posted() override {}
    void on_done(const std::optional<Error>& error) override {
      EXPECT_FALSE(error);
      done = true;
    }
    std::vector<TransferBatch::Run> pieces;
    bool done = false;
  };

  BulkReads() { pair_.peer = &peer_; }
  ~BulkReads() override {
    one_sided_.end(Error::of_connection(ErrorCode::unavailable, "ended"));
    local_->release();
  }

  // Begins to read `runs` runs that are `distance` bytes apart in the peer's memory.
  void begin(Read& read, std::size_t runs, std::size_t bytes, std::size_t distance) {
    for (std::size_t i = 0; i < runs; ++i) {
      read.pieces.push_back({local_->memory.data() + i * bytes, i * distance, bytes});
    }
    read.runs = read.pieces;
    read.priority = TransferPriority::bulk;
    read.domain = domain;
    read.address = reinterpret_cast<std::uintptr_t>(remote_.data());
    read.key = region_->remote_key();
    ASSERT_TRUE(one_sided_.start(read));
    work_queue_.submit();
  }
  // A packet of a message, which goes inline and is not signalled.
  void send_message() {
    peer_.receives.push_back({});
    work_queue_.send({}, {}, false);
    work_queue_.submit();
  }
  // The device executes all that is posted, until nothing is left.
  void execute(bool messages) {
    while (pair_.transmit() || !pair_.unacknowledged.empty()) {
      if (pair_.unacknowledged.empty()) continue;
      clock_.pass(std::chrono::nanoseconds(10 * pair_.unacknowledged.front().bytes()));
      pair_.acknowledge();
      const std::optional<Completion> completion = pair_.poll_sent();
      if (!completion) continue;
      ASSERT_TRUE(work_queue_.slots.complete(completion->id));
      one_sided_.on_completed();
      if (messages) send_message();
      one_sided_.post();
      work_queue_.submit();
      if (messages && one_sided_.idle()) return;
    }
  }

  ManualClock clock_;
  const std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
  const std::shared_ptr<UserMemory> user_ = std::make_shared<UserMemory>();
  const std::shared_ptr<MemoryPool> pool_ = std::make_shared<MemoryPool>(
      device_, MemoryPoolOptions{.bytes_max = remote_bytes, .arena_bytes = 256 * 1024, .huge_pages = false}, user_);
  UserBlock* const local_ = new UserBlock(user_, remote_bytes);
  std::vector<std::byte> remote_ = std::vector<std::byte>(remote_bytes);
  const std::unique_ptr<MemoryRegion> region_ = *device_->register_memory(remote_, {.remote_read = true});
  FakePair pair_{*device_, 128, 512};
  FakePair peer_{*device_, 128, 512};
  WorkQueue work_queue_{pair_, RdmaCredits(100'000, 100'000), SendSlots(512, 64)};
  OneSided one_sided_{work_queue_, pool_, {.peer_domain = domain, .parts_max = parts_max, .clock = &clock_}};
};

// A message makes the window smaller than the parts on their way that ask for no completion.
TEST_F(BulkReads, GoOnWhenTheWindowBecomesSmallerThanWhatIsOnItsWay) {
  Read beside_messages;
  begin(beside_messages, 1, remote_bytes, remote_bytes);
  execute(true);
  ASSERT_TRUE(beside_messages.done);
  Read alone;
  begin(alone, 1, remote_bytes, remote_bytes);
  execute(false);
  ASSERT_TRUE(alone.done);

  constexpr std::size_t bytes = 4096;
  Read scattered;
  begin(scattered, 100, bytes, 2 * bytes);
  ASSERT_EQ(pair_.sends.size(), parts_max - parts_max / 8) << "the window was not large before the message";
  send_message();
  execute(false);
  EXPECT_TRUE(scattered.done) << "nothing that is on its way asks for a completion";
}

}  // namespace
}  // namespace hawser::transport::rdma
