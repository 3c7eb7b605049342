#include "transport/sim/rdma/sim_device.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>

#include "lab/memory.h"
#include "lab/send_receive.h"
#include "lab/testbed.h"
#include "transport/sim/rdma/sim_fabric.h"

namespace hawser::lab {
namespace {

namespace rdma = transport::rdma;

// Two queue pairs with 4 KiB of memory each, in virtual time that the test advances.
class SimulatedPair : public ::testing::Test {
 protected:
  struct End {
    std::unique_ptr<LabMemory> memory;
    std::unique_ptr<rdma::CompletionQueue> completions;
    std::unique_ptr<rdma::QueuePair> queue_pair;
  };

  void SetUp() override { connect({}); }

  void connect(const LinkOptions& options) {
    for (const bool sender : {true, false}) {
      End& end = sender ? a_ : b_;
      end.queue_pair.reset();  // The assignment would destroy its completion queue first.
      end = {};
      rdma::Device& device = sender ? testbed_->sender() : testbed_->receiver();
      auto memory = LabMemory::make(device, {.bytes = 4096}, {.remote_read = true, .remote_write = true});
      ASSERT_TRUE(memory);
      end.memory = std::make_unique<LabMemory>(std::move(*memory));
      end.completions = *device.create_completion_queue(64);
      end.queue_pair = *device.create_queue_pair({.completions = end.completions.get(),
                                                  .send_requests = 8,
                                                  .receive_requests = 8,
                                                  .send_segments = 2,
                                                  .inline_bytes = 64},
                                                 1);
    }
    ASSERT_TRUE(testbed_->connect(*a_.queue_pair, *b_.queue_pair, options));
  }
  Result<void> send(rdma::SendRequest request, std::size_t bytes) {
    segment_ = a_.memory->segment(0, bytes);
    request.segments = {&segment_, 1};
    request.signalled = true;
    return a_.queue_pair->post_send({&request, 1});
  }
  void post_receive(std::size_t bytes) {
    const rdma::ReceiveRequest receive{.id = 77, .segment = b_.memory->segment(0, bytes)};
    ASSERT_TRUE(b_.queue_pair->post_receive({&receive, 1}));
  }
  void pass(double ns) { fabric_->advance(fabric_->now_ns() + ns); }
  static std::vector<rdma::Completion> poll(End& end) {
    std::array<rdma::Completion, 16> completions;
    const std::size_t count = end.completions->poll(completions);
    return {completions.begin(), completions.begin() + static_cast<std::ptrdiff_t>(count)};
  }

  static constexpr double ms = 1e6;
  std::shared_ptr<transport::SimFabric> fabric_ = transport::SimFabric::create({}, 1);
  std::unique_ptr<Executor> executor_ = make_sim_executor(fabric_);
  Result<Testbed> testbed_ = Testbed::open(*fabric_, *executor_, {});
  End a_;
  End b_;
  rdma::Segment segment_;
};

TEST_F(SimulatedPair, SendsBytesAndImmediate) {
  fill_pattern(a_.memory->memory.bytes(), 5);
  post_receive(4096);
  ASSERT_TRUE(send({.id = 3, .opcode = rdma::Opcode::send_with_immediate, .immediate = 9}, 1000));
  EXPECT_TRUE(poll(b_).empty()) << "it takes its time";
  pass(ms);
  const auto received = poll(b_);
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].id, 77U);
  EXPECT_EQ(received[0].queue_pair, b_.queue_pair->number());
  EXPECT_EQ(received[0].bytes, 1000U);
  EXPECT_TRUE(received[0].has_immediate && received[0].immediate == 9);
  EXPECT_FALSE(find_difference(b_.memory->memory.bytes().first(1000), 5));
  const auto sent = poll(a_);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].id, 3U);
}

TEST_F(SimulatedPair, WritesAndReads) {
  fill_pattern(a_.memory->memory.bytes(), 5);
  const std::uint32_t key = b_.memory->region->remote_key();
  ASSERT_TRUE(send({.opcode = rdma::Opcode::write, .remote_address = b_.memory->address(0), .remote_key = key}, 4096));
  pass(ms);
  EXPECT_FALSE(find_difference(b_.memory->memory.bytes(), 5));
  EXPECT_TRUE(poll(b_).empty()) << "the target is not told";
  fill_pattern(b_.memory->memory.bytes(), 6);
  ASSERT_TRUE(send({.opcode = rdma::Opcode::read, .remote_address = b_.memory->address(0), .remote_key = key}, 4096));
  pass(ms);
  EXPECT_FALSE(find_difference(a_.memory->memory.bytes(), 6));
  EXPECT_EQ(poll(a_).size(), 2U);
}

// A fence waits for all earlier reads, not only for the first one.
TEST_F(SimulatedPair, AFencedSendWaitsForTheLongestRead) {
  const auto arrival_ns = [&](std::size_t second_read_bytes) {
    connect({});
    pass(ms);  // Setting up keeps the processors busy.
    post_receive(64);
    const std::uint32_t key = b_.memory->region->remote_key();
    const std::uint64_t address = b_.memory->address(0);
    EXPECT_TRUE(send({.opcode = rdma::Opcode::read, .remote_address = address, .remote_key = key}, 1));
    EXPECT_TRUE(send({.opcode = rdma::Opcode::read, .remote_address = address, .remote_key = key}, second_read_bytes));
    EXPECT_TRUE(send({.fenced = true}, 8));
    const double begin_ns = fabric_->now_ns();
    while (poll(b_).empty() && fabric_->now_ns() < begin_ns + ms) pass(10);
    return fabric_->now_ns() - begin_ns;
  };
  const double alone_ns = arrival_ns(1);
  EXPECT_LT(alone_ns, ms) << "it never came";
  // The message has 4,095 bytes more, which take over 300 ns at 100 Gb/s.
  EXPECT_GT(arrival_ns(4096), alone_ns + 300);
}

TEST_F(SimulatedPair, InlineDataIsCopiedWhilePosting) {
  fill_pattern(a_.memory->memory.bytes(), 5);
  post_receive(4096);
  ASSERT_TRUE(send({.inlined = true}, 64));
  poison(a_.memory->memory.bytes());
  pass(ms);
  EXPECT_FALSE(find_difference(b_.memory->memory.bytes().first(64), 5));
  EXPECT_EQ(send({.inlined = true}, 65).error().code, ErrorCode::limit_exceeded);
}

TEST_F(SimulatedPair, WaitsForAReceiverThatIsNotReady) {
  ASSERT_TRUE(send({.id = 1}, 16));
  ASSERT_TRUE(send({.id = 2}, 16));
  pass(0.1 * ms);
  EXPECT_TRUE(poll(a_).empty());
  EXPECT_EQ(testbed_->receiver_not_ready(), 1U) << "what followed is not counted again";
  post_receive(16);
  post_receive(16);
  pass(0.4 * ms);
  EXPECT_TRUE(poll(b_).empty()) << "before the receiver's time is over";
  pass(0.3 * ms);
  EXPECT_EQ(poll(b_).size(), 2U);
  const auto sent = poll(a_);
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].id, 1U);
}

TEST_F(SimulatedPair, GivesUpAfterSoManyTries) {
  connect({.rnr_retries = 2, .min_rnr_timer = 1});
  ASSERT_TRUE(send({.id = 1}, 16));
  ASSERT_TRUE(send({.id = 2}, 16));
  pass(ms);
  const auto sent = poll(a_);
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].status, rdma::WorkStatus::rnr_exceeded);
  EXPECT_EQ(sent[1].status, rdma::WorkStatus::flushed);
  EXPECT_EQ(testbed_->receiver_not_ready(), 3U);
}

TEST_F(SimulatedPair, RefusesWhatIsNotAllowed) {
  const std::uint32_t key = b_.memory->region->remote_key();
  ASSERT_TRUE(send({.opcode = rdma::Opcode::write, .remote_address = b_.memory->address(1), .remote_key = key}, 4096));
  pass(ms);
  const auto sent = poll(a_);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].status, rdma::WorkStatus::remote_access) << "one byte past the region";
}

TEST_F(SimulatedPair, ASendLongerThanItsReceiveBreaksBoth) {
  post_receive(15);
  post_receive(16);
  ASSERT_TRUE(send({}, 16));
  pass(ms);
  ASSERT_EQ(poll(a_).size(), 1U);
  const auto received = poll(b_);
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[0].status, rdma::WorkStatus::remote_invalid);
  EXPECT_EQ(received[1].status, rdma::WorkStatus::flushed);
}

TEST_F(SimulatedPair, AMissingPeerDoesNotAnswer) {
  b_.queue_pair.reset();
  ASSERT_TRUE(send({}, 16));
  pass(100 * ms);
  EXPECT_TRUE(poll(a_).empty());
  pass(1000 * ms);
  const auto sent = poll(a_);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].status, rdma::WorkStatus::retry_exceeded);
}

TEST_F(SimulatedPair, QueuesAreBounded) {
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(send({}, 16));
  EXPECT_EQ(send({}, 16).error().code, ErrorCode::limit_exceeded);
  for (int i = 0; i < 8; ++i) post_receive(16);
  const rdma::ReceiveRequest receive{.segment = b_.memory->segment(0, 16)};
  EXPECT_EQ(b_.queue_pair->post_receive({&receive, 1}).error().code, ErrorCode::limit_exceeded);
}

TEST_F(SimulatedPair, SaysWhenSharedReceivesRunLow) {
  const auto queue = *testbed_->receiver().create_shared_receive_queue(8);
  const rdma::ReceiveRequest receive{.segment = b_.memory->segment(0, 16)};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue->post_receive({&receive, 1}));
  ASSERT_TRUE(queue->set_limit(3));
  EXPECT_FALSE(testbed_->receiver().next_event());
  const auto queue_pair = *testbed_->receiver().create_queue_pair(
      {.completions = b_.completions.get(), .shared_receives = queue.get(), .send_requests = 1}, 1);
  const auto sender =
      *testbed_->sender().create_queue_pair({.completions = a_.completions.get(), .send_requests = 1}, 1);
  ASSERT_TRUE(testbed_->connect(*sender, *queue_pair, {}));
  const rdma::Segment segment = a_.memory->segment(0, 16);
  const rdma::SendRequest request{.segments = {&segment, 1}, .signalled = true};
  ASSERT_TRUE(sender->post_send({&request, 1}));
  pass(ms);
  const auto event = testbed_->receiver().next_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, rdma::DeviceEventKind::shared_receive_queue_low);
}

// ---- Verification

class Corrupted : public ::testing::TestWithParam<bool> {};

TEST_P(Corrupted, MessageFailsTheRun) {
  transport::SimParameters parameters;
  parameters.corrupt_message = 150;
  const auto fabric = transport::SimFabric::create(parameters, 1);
  const auto executor = make_sim_executor(fabric);
  const Result<Testbed> testbed = Testbed::open(*fabric, *executor, {});
  const auto result = run_stream(*testbed, {.size_bytes = 4096, .count = 160, .window = 16, .verify_each = GetParam()});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().text.find("verification failed: byte 2048 of 4096"), std::string::npos)
      << result.error().text;
}

TEST(Corruption, OfAPingPongFailsTheRun) {
  transport::SimParameters parameters;
  parameters.corrupt_message = 7;
  const auto fabric = transport::SimFabric::create(parameters, 1);
  const auto executor = make_sim_executor(fabric);
  const Result<Testbed> testbed = Testbed::open(*fabric, *executor, {});
  EXPECT_FALSE(run_ping_pong(*testbed, {.count = 20}));
}

INSTANTIATE_TEST_SUITE_P(EachOrAtTheEnd, Corrupted, ::testing::Bool());

TEST(Memory, PatternsDiffer) {
  std::vector<std::byte> bytes(1003);
  fill_pattern(bytes, 1);
  EXPECT_FALSE(find_difference(bytes, 1));
  EXPECT_TRUE(find_difference(bytes, 2));
  bytes[1002] ^= std::byte{0x80};
  EXPECT_EQ(find_difference(bytes, 1), 1002U);
  bytes[13] ^= std::byte{1};
  EXPECT_EQ(find_difference(bytes, 1), 13U);
}

TEST(Memory, AlignmentIsKnown) {
  EXPECT_TRUE(Memory::allocate({.bytes = 100})->aligned());
  EXPECT_FALSE(Memory::allocate({.bytes = 100, .misaligned = 1})->aligned());
}

}  // namespace
}  // namespace hawser::lab
