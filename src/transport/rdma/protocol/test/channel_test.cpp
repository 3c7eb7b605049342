#include "transport/rdma/protocol/channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "transport/rdma/device/test/fake_device_testing.h"
#include "transport/rdma/protocol/test/one_sided_testing.h"

namespace hawser::transport::rdma {
namespace {

std::byte pattern(std::uint64_t seed, std::size_t at) noexcept {
  return static_cast<std::byte>((seed * 0x9e3779b97f4a7c15U + at * 0x2545f4914f6cdd1dU) >> 56);
}
void fill(std::byte* to, std::size_t bytes, std::uint64_t seed) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) to[i] = pattern(seed, i);
}
bool matches(Bytes bytes, std::uint64_t seed) noexcept {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != pattern(seed, i)) return false;
  }
  return true;
}

// Parameters that both sides of a run share. The sizes are small, so that every bound is reached often.
struct Shape {
  std::size_t chunk_bytes = 4096;
  std::size_t peer_chunk_bytes = 4096;
  std::uint32_t receives = 4;
  unsigned send_window = 2;
  std::size_t inline_bytes = 128;
  std::size_t send_requests = 16;
  unsigned signal_every = 4;
  std::size_t eager_bytes_max = 2000;
  std::size_t copied_bytes_max = 10'000;
  std::size_t message_bytes_max = 40'000;
  std::size_t ahead_bytes_max = std::size_t{1} << 20;
};

// One side. It commits messages and checks that the messages of the other side arrive complete, in order, and once.
class Side final : public MessageSink, public RdmaReceiverOwner, public ReceiveRingOwner {
 public:
  Side(FakeDevice& device, std::shared_ptr<MemoryPool> pool, std::shared_ptr<UserMemory> user, const Shape& setup,
       std::uint64_t seed)
      : pair(device, setup.inline_bytes, setup.send_requests),
        random(seed),
        pool_(std::move(pool)),
        user_(std::move(user)),
        setup_(setup),
        one_sided(device, user_, random),
        ring(std::make_shared<ReceiveRing>(pool_, setup.chunk_bytes, *this)) {
    EXPECT_TRUE(ring->grow(setup.receives));
    const auto memory = RdmaChannel::Memory::acquire(*pool_, setup.chunk_bytes);
    EXPECT_TRUE(memory);
    RdmaChannelOptions options;
    options.sender = {.packet_bytes_max = std::min(setup.chunk_bytes, setup.peer_chunk_bytes),
                      .chunk_bytes = setup.chunk_bytes,
                      .send_window = setup.send_window,
                      .eager_bytes_max = setup.eager_bytes_max,
                      .copied_bytes_max = setup.copied_bytes_max,
                      .rendezvous_max = 4};
    options.receiver = {.message_limit = wire::MessageLimit::without_prefix(setup.message_bytes_max),
                        .receive_buffer_bytes_min = 1000,
                        .transfers = {.read_bytes_max = 4096,
                                      .reads_max = 3,
                                      .ahead_bytes_max = setup.ahead_bytes_max,
                                      .staging_bytes = 4096},
                        .held_chunks_max = RdmaCredits::held_max(setup.receives)};
    options.one_sided = {.peer_domain = OneSidedUser::domain,
                         .operations_max = 6,
                         .part_bytes_max = 1024,
                         .segments_max = 4,
                         .parts_max = 3};
    options.signal_every = setup.signal_every;
    options.peer_receives = options.own_receives = setup.receives;
    channel = std::make_unique<RdmaChannel>(*this, pair, pool_, *ring, *memory, options);
    channel->receiver().start(*this);
    post();
    channel->receiver().resume();
  }
  ~Side() {
    end();
    drop_given();
    kept_.clear();
    EXPECT_EQ(owners_.size(), 0U) << "an owner was not told";
  }

  void end() {
    if (channel == nullptr) return;
    ended_ = true;
    channel->end(Error::of_connection(ErrorCode::unavailable, "ended"));
    channel.reset();
    ring->close();
    ring.reset();
  }

  // ---- Random actions
  void commit_one() {
    if (closing) return;
    const std::uint64_t number = committed++;
    const std::size_t head = 8 + random.below(random.chance(0.05) ? 6000 : 200);
    std::size_t payload = 0;
    if (random.chance(0.3)) payload = random.below(random.chance(0.5) ? 1500 : 15'000);
    std::byte* const room = channel->sender().reserve(head + random.below(20));
    ASSERT_NE(room, nullptr);
    std::memcpy(room, &number, 8);
    fill(room + 8, head - 8, number);
    if (payload == 0) {
      channel->sender().commit(head, {}, nullptr);
      return;
    }
    if (random.chance(0.1)) {
      // Without an owner, the payload is copied.
      std::vector<std::byte> copy(payload);
      fill(copy.data(), payload, ~number);
      const ConstBuffer piece{copy.data(), payload};
      channel->sender().commit(head, std::span(&piece, 1), nullptr);
      fill(copy.data(), payload, 1);
      return;
    }
    auto* const owner = new Owner(*this, payload, static_cast<MemoryKind>(random.below(3)));
    owners_.push_back(owner);
    fill(owner->data(), payload, ~number);
    // Divides the payload into pieces, one of which may be short.
    std::vector<ConstBuffer> pieces;
    std::size_t at = 0;
    while (at < payload && pieces.size() < 3) {
      const std::size_t part = pieces.size() == 2 ? payload - at : 1 + random.below(payload - at);
      pieces.push_back({owner->data() + at, part});
      at += part;
    }
    if (at < payload) pieces.push_back({owner->data() + at, payload - at});
    channel->sender().commit(head, pieces, owner);
  }
  void copy_and_release_one() {
    if (owners_.empty()) return;
    Owner* const owner = owners_[random.below(owners_.size())];
    channel->sender().copy_and_release(*owner);
    std::erase(owners_, owner);
    owner->scribble_and_drop();
  }
  void begin_access() { one_sided.begin_one(channel->one_sided()); }
  void abandon_access() { one_sided.abandon_one(channel->one_sided()); }
  void drop_kept() {
    if (!kept_.empty()) kept_.pop_front();
  }
  void revoke_one() {
    if (given_ == nullptr) return;
    channel->receiver().revoke_receive_buffer(given_);
    revoked_ = true;
    drop_given();
  }
  void toggle_pause() {
    if (channel->receiver().paused()) {
      channel->receiver().resume();
    } else {
      channel->receiver().pause();
    }
  }
  void flush() {
    ring->collect();
    if (ring->waiting() >= 1) post();
    EXPECT_FALSE(channel->flush());
  }
  bool complete(bool sent_first) {
    auto completion = sent_first ? pair.poll_sent() : pair.poll_received();
    if (!completion) return false;
    if (completion->received) {
      ReceiveChunk* const chunk = ring->completed(completion->id);
      chunk->queue_pair = 1;
      channel->receiver().on_packet(*chunk, completion->bytes, completion->immediate);
    } else {
      bool more = false;
      EXPECT_TRUE(channel->on_completed(completion->id, more));
    }
    return true;
  }

  // ---- MessageSink
  void on_message(const Message& message) override {
    std::uint64_t number = 0;
    ASSERT_GE(message.head.size(), 8U);
    std::memcpy(&number, message.head.data(), 8);
    EXPECT_EQ(number, delivered) << "lost or out of order";
    ++delivered;
    EXPECT_TRUE(matches(message.head.subspan(8), number));
    if (message.discarded) {
      EXPECT_TRUE(message.payload.empty());
      EXPECT_TRUE(discarding_ || revoked_);
    } else if (!message.payload.empty()) {
      EXPECT_TRUE(matches(message.payload, ~number));
      EXPECT_FALSE(discarding_ || revoked_);
    }
    discarding_ = revoked_ = false;
    drop_given();
    if (random.chance(0.2)) kept_.push_back(message.keep_head());
    if (!message.payload.empty() && message.payload_block != nullptr && random.chance(0.3)) {
      kept_.push_back(message.keep_payload());
    }
    if (kept_.size() > 12) kept_.pop_front();
  }
  ReceiveBuffer select_receive_buffer(Bytes head, std::size_t payload_bytes) override {
    EXPECT_GE(head.size(), 8U);
    EXPECT_FALSE(discarding_ || revoked_ || given_ != nullptr) << "asked for two at once";
    switch (random.below(3)) {
      case 0: return {};
      case 1:
        if (random.chance(0.5)) {
          given_user_ = new UserBlock(user_, payload_bytes + 64);
          given_ = given_user_->memory.data() + 32;
        } else {
          given_plain_.reset(new std::byte[payload_bytes]);
          given_ = given_plain_.get();
        }
        return {ReceiveBuffer::Kind::given, {given_, payload_bytes}};
      default: discarding_ = true; return {ReceiveBuffer::Kind::discard, {}};
    }
  }
  void on_drained() override {}
  void on_closed(const Error&) override {}

  void on_protocol_violation(std::string_view how) override { ADD_FAILURE() << how; }
  void on_fin() override { fin = true; }
  void chunks_returned() noexcept override {}

  FakePair pair;
  Random random;
  std::uint64_t committed = 0;
  std::uint64_t delivered = 0;
  bool closing = false;
  bool fin = false;

 private:
  enum class MemoryKind : std::uint8_t { plain, pool, user };

  void drop_given() {
    given_ = nullptr;
    given_plain_.reset();
    if (UserBlock* const user = std::exchange(given_user_, nullptr)) user->release();
  }

  // A payload in memory of its own, which is overwritten as soon as it is released.
  class Owner final : public SendCompletion {
   public:
    Owner(Side& side, std::size_t bytes, MemoryKind kind) : side_(side), bytes_(bytes) {
      if (kind == MemoryKind::pool) registered_ = side.pool_->acquire_block(bytes);
      if (kind == MemoryKind::user) {
        auto* const user = new UserBlock(side.user_, bytes);
        registered_.block = user;
        registered_.memory.data = user->memory.data();
      }
      if (registered_.block == nullptr) plain_.reset(new std::byte[bytes]);
    }
    std::byte* data() { return registered_.block != nullptr ? registered_.memory.data : plain_.get(); }
    void on_send_complete() noexcept override {
      EXPECT_EQ(std::erase(side_.owners_, this), 1U) << "released twice";
      scribble_and_drop();
    }
    void scribble_and_drop() {
      // The transport itself keeps memory that the peer reads until the read has ended. It must not change before.
      if (registered_.block == nullptr || registered_.block->unique()) fill(data(), bytes_, 1);
      if (registered_.block != nullptr) registered_.block->release();
      delete this;
    }

   private:
    Side& side_;
    const std::size_t bytes_;
    MemoryPool::PayloadBlock registered_;
    std::unique_ptr<std::byte[]> plain_;
  };

  void post() {
    EXPECT_TRUE(ring->repost([this](auto requests) { return pair.post_receive(requests); },
                             [this](const ReceiveChunk& chunk, std::uint32_t) { channel->on_posted(chunk); }));
  }

  const std::shared_ptr<MemoryPool> pool_;
  const std::shared_ptr<UserMemory> user_;
  const Shape setup_;
  bool ended_ = false;
  std::vector<Owner*> owners_;
  std::deque<Buffer> kept_;
  std::byte* given_ = nullptr;  // Points into one of these.
  std::unique_ptr<std::byte[]> given_plain_;
  UserBlock* given_user_ = nullptr;
  bool discarding_ = false;
  bool revoked_ = false;

 public:
  OneSidedUser one_sided;
  std::shared_ptr<ReceiveRing> ring;
  std::unique_ptr<RdmaChannel> channel;
};

struct Joined {
  explicit Joined(std::uint64_t seed, const Shape& setup, std::size_t memory_bytes_max = std::size_t{64} << 20)
      : random(seed) {
    device = std::make_shared<FakeDevice>();
    pool = std::make_shared<MemoryPool>(
        device, MemoryPoolOptions{.bytes_max = memory_bytes_max, .arena_bytes = 256 * 1024, .huge_pages = false}, user);
    for (std::size_t i = 0; i < 2; ++i) sides[i] = std::make_unique<Side>(*device, pool, user, setup, seed * 2 + i);
    sides[0]->pair.peer = &sides[1]->pair;
    sides[1]->pair.peer = &sides[0]->pair;
  }

  void step() {
    Side& side = *sides[random.below(2)];
    switch (random.below(16)) {
      case 0:
      case 1:
        if (side.committed - sides[&side == sides[0].get()]->delivered < 40) side.commit_one();
        break;
      case 2: side.drop_kept(); break;
      case 3:
        if (random.chance(0.1)) side.toggle_pause();
        break;
      case 4:
        if (random.chance(0.2)) side.copy_and_release_one();
        break;
      case 5:
        if (random.chance(0.1)) side.revoke_one();
        break;
      case 6:
        if (random.chance(0.3)) side.begin_access();
        if (random.chance(0.02)) side.abandon_access();
        break;
      case 7:
      case 8: side.flush(); break;
      case 9:
      case 10: side.pair.transmit(); break;
      case 11: side.pair.acknowledge(); break;
      case 12:
      case 13: side.complete(random.chance(0.5)); break;
      default:
        if (random.chance(0.3)) {
          while (side.pair.transmit()) {
          }
        }
        side.complete(true);
        side.complete(false);
        break;
    }
  }
  // Runs until nothing changes any more, although the sinks keep their messages.
  void settle() {
    for (auto& side : sides) {
      while (side->channel->receiver().paused()) side->toggle_pause();
    }
    for (int idle = 0; idle < 3; ++idle) {
      for (auto& side : sides) {
        side->flush();
        while (side->pair.transmit()) idle = 0;
        while (side->pair.acknowledge()) idle = 0;
        while (side->complete(true)) idle = 0;
        while (side->complete(false)) idle = 0;
      }
    }
  }

  Random random;
  std::shared_ptr<FakeDevice> device;
  const std::shared_ptr<UserMemory> user = std::make_shared<UserMemory>();
  std::shared_ptr<MemoryPool> pool;
  std::array<std::unique_ptr<Side>, 2> sides;
};

Shape random_setup(std::uint64_t seed) {
  Random random(seed ^ 0x5eed);
  Shape setup;
  setup.receives = static_cast<std::uint32_t>(4 + random.below(6));
  setup.send_window = static_cast<unsigned>(1 + random.below(3));
  setup.inline_bytes = random.below(3) * 100;
  setup.send_requests = 16 + random.below(32);
  setup.signal_every = static_cast<unsigned>(1 + random.below(8));
  setup.chunk_bytes = setup.peer_chunk_bytes = random.chance(0.5) ? 4096 : 16 * 1024;
  // The peer's chunks may be much smaller than this side's.
  if (random.chance(0.2)) setup.chunk_bytes = 64 * 1024;
  if (random.chance(0.3)) setup.copied_bytes_max = 0;
  if (random.chance(0.3)) setup.ahead_bytes_max = random.below(30'000);
  return setup;
}

// HAWSER_RDMA_SEEDS sets the number of runs.
std::uint64_t seeds(std::uint64_t usual) {
  const char* const wanted = std::getenv("HAWSER_RDMA_SEEDS");
  return wanted == nullptr ? usual : std::strtoull(wanted, nullptr, 10);
}

TEST(RdmaChannel, RandomRunsLoseNothingAndNeverMeetAReceiverThatIsNotReady) {
  std::uint64_t messages = 0;
  std::uint64_t accesses = 0;
  std::uint64_t refused = 0;
  std::uint64_t user_sends = 0;
  std::uint64_t user_receives = 0;
  for (std::uint64_t seed = 1; seed <= seeds(150); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Joined run(seed, random_setup(seed));
    for (int i = 0; i < 20'000 && !testing::Test::HasFailure(); ++i) run.step();
    run.settle();
    for (std::size_t i = 0; i < 2; ++i) {
      Side& side = *run.sides[i];
      ASSERT_EQ(run.sides[1 - i]->delivered, side.committed) << "deadlock or loss";
      ASSERT_EQ(side.channel->sender().sent(), side.channel->sender().committed());
      ASSERT_EQ(side.one_sided.end_missing(), 0U) << "an access did not end";
      messages += side.committed;
      accesses += side.one_sided.done;
      refused += side.one_sided.refused;
    }
    ASSERT_FALSE(testing::Test::HasFailure());
    for (auto& side : run.sides) side.reset();
    ASSERT_EQ(run.pool->counters().used_bytes, 0U) << "registered memory leaked";
    ASSERT_EQ(run.user->bytes(), 0U) << "the application's memory is held";
    ASSERT_EQ(run.pool->ahead_bytes(), 0U) << "counted as read ahead";
    user_sends += run.pool->counters().user_sends;
    user_receives += run.pool->counters().user_receives;
  }
  EXPECT_GT(messages, 100'000U);
  EXPECT_GT(accesses, 1000U);
  EXPECT_GT(refused, 10U);
  EXPECT_GT(user_sends, 500U);
  EXPECT_GT(user_receives, 500U);
}

TEST(RdmaChannel, WhateverEndsInTheMiddleGivesAllBackOnce) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Joined run(seed, random_setup(seed));
    const std::uint64_t steps = run.random.below(3000);
    for (std::uint64_t i = 0; i < steps && !testing::Test::HasFailure(); ++i) run.step();
    for (auto& side : run.sides) side.reset();
    ASSERT_EQ(run.pool->counters().used_bytes, 0U);
    ASSERT_EQ(run.user->bytes(), 0U);
    ASSERT_EQ(run.pool->ahead_bytes(), 0U);
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

TEST(RdmaChannel, ByeComesAfterAllThatWasCommitted) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Joined run(seed, random_setup(seed));
    for (int i = 0; i < 2000; ++i) run.step();
    for (auto& side : run.sides) {
      side->closing = true;
      side->channel->sender().close();
    }
    run.settle();
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(run.sides[i]->fin);
      ASSERT_TRUE(run.sides[i]->channel->sender().fin_completed());
      ASSERT_EQ(run.sides[1 - i]->delivered, run.sides[i]->committed);
    }
  }
}

TEST(RdmaChannel, AtTheWatermarkItGoesOnBySmallSteps) {
  Shape setup;
  setup.receives = 8;
  setup.send_window = 8;
  // There are few arenas: a little more than the minimum that both sides need.
  Joined run(7, setup, 512 * 1024);
  std::vector<RegisteredMemory> taken;
  while (auto memory = run.pool->acquire(4096, MemoryPool::Use::connection)) taken.push_back(*memory);
  for (int i = 0; i < 50'000; ++i) run.step();
  run.settle();
  EXPECT_EQ(run.sides[0]->delivered, run.sides[1]->committed);
  EXPECT_EQ(run.sides[1]->delivered, run.sides[0]->committed);
  EXPECT_GT(run.pool->counters().refused, 0U);
  for (const RegisteredMemory& memory : taken) run.pool->release(memory);
}

TEST(RdmaChannel, WhatATickCommitsLeavesInOnePacketBehindOneDoorbell) {
  Shape setup;
  setup.chunk_bytes = setup.peer_chunk_bytes = 64 * 1024;
  setup.receives = 8;
  Joined run(1, setup);
  Side& side = *run.sides[0];
  for (int i = 0; i < 64; ++i) {
    const std::uint64_t number = side.committed++;
    std::byte* const room = side.channel->sender().reserve(128);
    std::memcpy(room, &number, 8);
    fill(room + 8, 120, number);
    side.channel->sender().commit(128, {}, nullptr);
  }
  EXPECT_EQ(side.pair.doorbells, 0U);
  side.flush();
  EXPECT_EQ(side.pair.doorbells, 1U);
  EXPECT_EQ(side.pair.sends.size(), 1U);
  run.settle();
  EXPECT_EQ(run.sides[1]->delivered, 64U);
}

// The payload is copied once instead of twice. The owner gets its memory back at once, and only a record is sent.
TEST(RdmaChannel, WhatNoPacketHoldsIsCopiedOnceAndRead) {
  for (const std::size_t copied_bytes_max : {std::size_t{0}, std::size_t{9'999}, std::size_t{10'000}}) {
    Shape setup;
    setup.copied_bytes_max = copied_bytes_max;
    Joined run(1, setup);
    Side& side = *run.sides[0];
    // A payload of 3,500 bytes fits into a packet.
    for (const std::size_t payload : {std::size_t{3'500}, std::size_t{10'000}}) {
      const std::uint64_t number = side.committed++;
      std::vector<std::byte> memory(payload);
      fill(memory.data(), payload, ~number);
      std::byte* const room = side.channel->sender().reserve(100);
      std::memcpy(room, &number, 8);
      fill(room + 8, 92, number);
      struct Notified final : SendCompletion {
        void on_send_complete() noexcept override { ++times; }
        int times = 0;
      } owner;
      const ConstBuffer piece{memory.data(), payload};
      const bool copied = payload == 10'000 && copied_bytes_max == 10'000;
      side.channel->sender().commit(100, std::span(&piece, 1), &owner);
      side.flush();
      if (copied) {
        EXPECT_EQ(owner.times, 1);
        fill(memory.data(), payload, 1);
      }
      std::size_t bytes = 0;
      for (const auto& work : side.pair.sends) bytes += work.bytes();
      EXPECT_EQ(bytes < 500, copied) << bytes << " of " << payload << " with " << copied_bytes_max;
      run.settle();
      EXPECT_EQ(owner.times, 1);
    }
    EXPECT_EQ(run.sides[1]->delivered, 2U);
    EXPECT_EQ(run.pool->counters().user_sends, 0U);
  }
}

// The memory of a message in fragments grows while it arrives.
TEST(RdmaChannel, LongHeadsInFragmentsArriveWhole) {
  Shape setup;
  setup.message_bytes_max = std::size_t{1} << 20;
  Joined run(1, setup);
  Side& side = *run.sides[0];
  for (const std::size_t head : {65'535, 65'536, 65'537, 131'072, 131'073, 600'000}) {
    const std::uint64_t number = side.committed++;
    std::byte* const room = side.channel->sender().reserve(head);
    std::memcpy(room, &number, 8);
    fill(room + 8, head - 8, number);
    side.channel->sender().commit(head, {}, nullptr);
    run.settle();
    EXPECT_EQ(run.sides[1]->delivered, side.committed) << head;
  }
}

TEST(RdmaChannel, CreditsEndAtTheReserveAndFramesGatherMeanwhile) {
  Shape setup;
  setup.receives = 4;
  Joined run(1, setup);
  Side& side = *run.sides[0];
  run.sides[1]->channel->receiver().pause();
  for (int i = 0; i < 200; ++i) {
    side.commit_one();
    side.flush();
    while (side.pair.transmit()) {
    }
    while (side.pair.acknowledge()) {
    }
    while (side.complete(true)) {
    }
    while (run.sides[1]->complete(false)) {
    }
    run.sides[1]->flush();
  }
  EXPECT_EQ(side.channel->work_queue().credits.available(), RdmaCredits::reserved);
  EXPECT_LT(side.channel->sender().sent(), side.channel->sender().committed());
  run.settle();
  EXPECT_EQ(run.sides[1]->delivered, 200U);
}

}  // namespace
}  // namespace hawser::transport::rdma
