#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>

#include "base/random.h"
#include "transport/sim/rdma/test/rdma_attacker_testing.h"

// A client with bare verbs attacks a server of the RDMA transport. A well-behaved client of the same server continues.
namespace hawser::transport {
namespace {

using rdma::Immediate;
using rdma::Opcode;
using rdma::WorkStatus;

// Runs over a shared receive queue, and over separate queues of the connections.
class RdmaHostile : public RdmaAttack, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    build(GetParam() ? shared_options() : RdmaOptions());
    background_client_ = honest();
    idle_bytes_ = used_bytes();
  }
  void TearDown() override {
    expect_served(*background_client_);
    EXPECT_EQ(server_device().rnr_sent, 0U) << "a receiver was not ready";
    if (attacker_ != nullptr) {
      attacker_->connection.reset();
      attacker_.reset();
    }
    pass(std::chrono::seconds(3));
    EXPECT_EQ(connections(), 1U) << "what the attacker had is not given back";
    // The shared queue keeps its chunks for the next connection.
    const std::size_t kept = GetParam() ? 4 * 8192 : 0;
    EXPECT_LE(used_bytes(), idle_bytes_ + kept);
    expect_served(*background_client_);
    background_client_.reset();
  }
  Attacker& attack(std::uint32_t reads = 16) {
    if (attacker_ != nullptr) {  // Its queue pair is destroyed before the next one is made.
      attacker_.reset();
      pass(milliseconds(1));
    }
    attacker_ = std::make_unique<Attacker>(*client_device_, *client_worker_, *server_worker_, reads);
    attacker_->connect();
    return *attacker_;
  }
  // Checks that the server has closed the connection because of the peer's violation.
  void expect_protocol_violation(std::string_view how) {
    pass(milliseconds(5));
    EXPECT_TRUE(attacker_->sink.closed);
    EXPECT_EQ(attacker_->sink.reason.code, ErrorCode::protocol_error);
    EXPECT_NE(attacker_->sink.reason.text.find(how), std::string::npos) << attacker_->sink.reason.text;
  }

  std::unique_ptr<HonestPair> background_client_;
  std::unique_ptr<Attacker> attacker_;
  std::size_t idle_bytes_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Queues, RdmaHostile, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "Shared" : "Own"; });

// If its byte count were trusted, a peer with a writable region could read data in the chunks, or beyond them.
TEST_P(RdmaHostile, AWriteWithImmediateIsNoMessage) {
  ExposedMemory memory(1 << 20);
  const auto registered = server_transport_->register_memory(memory.memory, memory, false);
  ASSERT_TRUE(registered);
  const auto exposed = (*registered)->expose(memory.memory, false, true);
  ASSERT_TRUE(exposed);
  const transport::ExposedPlace place = (*exposed)->places().front();
  expect_served(*background_client_, 20);  // Chunks have held messages of others.
  for (const std::size_t bytes : {std::size_t{72}, std::size_t{60'000}}) {
    attack();
    rdma::write_header(attacker_->data(), {rdma::RdmaRecordKind::message, 40, 0, 40});
    ASSERT_TRUE(attacker_->post(bytes, {}, Opcode::write_with_immediate, place.address, place.key));
    expect_protocol_violation("something else than a send with immediate");
    EXPECT_EQ(attacker_->sink.messages, 0U);
    attacker_->connection.reset();
  }
}

TEST_P(RdmaHostile, WritesNeedAnExposedRegion) {
  // The device alone would let anybody with the key write here.
  std::vector<std::byte> bytes(4096);
  const auto region = *server_device_->register_memory(bytes, {.remote_read = true, .remote_write = true});
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(bytes.data()));
  const auto write = [&] {
    attack();
    attacker_->data()[0] = std::byte{7};
    EXPECT_TRUE(attacker_->post(1, {}, Opcode::write, address, region->remote_key()));
    pass(milliseconds(5));
    attacker_->poll();
    attacker_->connection.reset();
    pass(milliseconds(300));
    return attacker_->status;
  };
  EXPECT_EQ(write(), WorkStatus::remote_invalid);
  EXPECT_EQ(bytes[0], std::byte{0});
  {
    ExposedMemory memory(4096);
    const auto registered = server_transport_->register_memory(memory.memory, memory, false);
    const auto readable = (*registered)->expose(memory.memory, true, false);
    EXPECT_EQ(write(), WorkStatus::remote_invalid) << "a region that is only read opens no writes";
    const auto writable = (*registered)->expose(memory.memory, true, true);
    EXPECT_EQ(write(), WorkStatus::success);
    EXPECT_EQ(bytes[0], std::byte{7});
  }
  EXPECT_EQ(write(), WorkStatus::remote_invalid) << "after the last region was revoked";
}

// Queue pairs that are connected already get the access, too.
TEST_P(RdmaHostile, AnExposedRegionOpensConnectionsThatExist) {
  Attacker& attacker = attack();
  ExposedMemory memory(4096);
  const auto registered = server_transport_->register_memory(memory.memory, memory, false);
  auto writable = *(*registered)->expose(memory.memory, true, true);
  const transport::ExposedPlace place = writable->places().front();
  ASSERT_TRUE(attacker.post(8, {}, Opcode::write, place.address, place.key));
  pass(milliseconds(5));
  attacker.poll();
  EXPECT_EQ(attacker.status, WorkStatus::success);
  writable.reset();
  ASSERT_TRUE(attacker.post(8, {}, Opcode::write, place.address, place.key));
  pass(milliseconds(5));
  attacker.poll();
  EXPECT_EQ(attacker.status, WorkStatus::remote_invalid);
}

// The caller of the operation gets the reason for the failure, even if the queue pair allows no writes at all any more.
TEST_P(RdmaHostile, AWriteToARevokedRegionIsRefusedByName) {
  struct Write final : transport::RemoteOperation {
    void on_posted() override {}
    void on_done(const std::optional<Error>& why) override {
      done = true;
      error = why;
    }
    bool done = false;
    std::optional<Error> error;
  };
  ExposedMemory there(4096);
  ExposedMemory here(4096);
  const auto registered = server_transport_->register_memory(there.memory, there, false);
  const auto local = client_transport_->register_memory(here.memory, here, false);
  auto exposed = *(*registered)->expose(there.memory, false, true);
  const transport::ExposedPlace place = exposed->places().front();
  auto pair = honest();
  for (const bool revoked : {false, true}) {
    if (revoked) exposed.reset();
    Write write;
    write.kind = transport::RemoteOperation::Kind::write;
    const TransferBatch::Run run{here.memory.data(), 0, 8};
    write.runs = {&run, 1};
    write.domain = place.domain;
    write.address = place.address;
    write.key = place.key;
    ASSERT_TRUE(pair->client->remote_memory()->start(write));
    pass(milliseconds(5));
    EXPECT_TRUE(write.done);
    EXPECT_EQ(write.error.has_value(), revoked);
    if (write.error) {
      EXPECT_EQ(write.error->code, ErrorCode::stale_handle) << write.error->text;
    }
  }
  pair.reset();
}

// The write has no bytes, so a device may check neither key nor access.
TEST_P(RdmaHostile, AnUnsolicitedWriteWithImmediate) {
  Attacker& attacker = attack();
  ASSERT_TRUE(attacker.post(0, {.granted = 1, .done = 3, .fin = true}, Opcode::write_with_immediate));
  expect_protocol_violation("something else than a send with immediate");
}

TEST_P(RdmaHostile, ASendWithoutImmediateEndsTheConnection) {
  Attacker& attacker = attack();
  ASSERT_TRUE(attacker.post(64, {}, Opcode::send));
  expect_protocol_violation("something else than a send with immediate");
}

// Refused by their announced lengths, before memory is taken for them.
TEST_P(RdmaHostile, MessagesAboveTheLimit) {
  constexpr std::uint32_t head = 28;
  constexpr std::uint32_t payload = (64U << 20) - head + 1;
  for (const auto kind : {rdma::RdmaRecordKind::begin, rdma::RdmaRecordKind::rendezvous}) {
    Attacker& attacker = attack();
    rdma::write_header(attacker.data(), {kind, head, payload, 16});
    ASSERT_TRUE(attacker.post(96, {}));
    expect_protocol_violation("message of 67108873 bytes exceeds message_bytes_max (67108872 bytes)");
    EXPECT_EQ(attacker.sink.messages, 0U);
    attacker.connection.reset();
  }
}

TEST_P(RdmaHostile, FragmentsWithoutABeginning) {
  Attacker& attacker = attack();
  rdma::write_header(attacker.data(), {rdma::RdmaRecordKind::fragment, 0, 0, 16});
  ASSERT_TRUE(attacker.post(32, {}));
  expect_protocol_violation("FRAGMENT without preceding BEGIN");
}

TEST_P(RdmaHostile, MoreIdsThanThePacketHolds) {
  Attacker& attacker = attack();
  ASSERT_TRUE(attacker.post(16, {.done = 5}));
  expect_protocol_violation("shorter than the transfer ids that its immediate announces");
}

TEST_P(RdmaHostile, AGrantOfWhatWasNotUsed) {
  Attacker& attacker = attack();
  ASSERT_TRUE(attacker.post(0, {.granted = 1}));
  expect_protocol_violation("more credits granted or used");
}

TEST_P(RdmaHostile, ATransferIsDoneThatIsNotOpen) {
  Attacker& attacker = attack();
  ASSERT_TRUE(attacker.post(4, {.done = 1}));
  expect_protocol_violation("names no open transfer");
}

TEST_P(RdmaHostile, MessagesAfterTheLast) {
  Attacker& attacker = attack();
  attacker.connection->pause();
  ASSERT_TRUE(attacker.post_message(8, {.fin = true}));
  ASSERT_TRUE(attacker.post_message(8));
  expect_protocol_violation("a message or a second fin after fin");
}

// With a shared queue, a packet beyond the credits uses up a receive of another connection.
TEST_P(RdmaHostile, MorePacketsThanCredits) {
  Attacker& attacker = attack();
  attacker.connection->pause();
  const std::size_t before = server_device().rnr_sent;
  for (unsigned i = 0; i < attacker.theirs.receives + 4; ++i) ASSERT_TRUE(attacker.post_message(8));
  pass(milliseconds(20));
  if (GetParam()) {
    EXPECT_TRUE(attacker.sink.closed);
    EXPECT_EQ(attacker.sink.reason.code, ErrorCode::protocol_error);
  }
  server_device().rnr_sent = before;  // Replies to the attacker's own packets are not counted.
  attacker.connection.reset();
}

TEST_P(RdmaHostile, APacketLongerThanAChunkReachesNobody) {
  attacker_ = std::make_unique<Attacker>(*client_device_, *client_worker_, *server_worker_, 16, 512 * 1024);
  attacker_->connect();
  ASSERT_TRUE(attacker_->post(300 * 1024, {}));
  pass(milliseconds(20));
  EXPECT_EQ(attacker_->sink.messages, 0U);
  EXPECT_TRUE(attacker_->sink.closed);
}

// Sends random bytes and immediates. The connection ends with a protocol error or continues.
TEST_P(RdmaHostile, ForgedPacketsOfAllKinds) {
  Random random(7);
  for (int round = 0; round < 150; ++round) {
    Attacker& attacker = attack(random.chance(0.5) ? 16 : 0);
    for (int packet = 0; packet < 3; ++packet) {
      std::byte* at = attacker.data();
      const std::size_t bytes = 8 * random.below(64);
      for (std::size_t i = 0; i < bytes; ++i)
        at[i] = static_cast<std::byte>(random.chance(0.7) ? 0 : random.below(256));
      if (bytes >= 16 && random.chance(0.8)) {
        const auto small = [&] {
          return static_cast<std::uint32_t>(random.below(random.chance(0.9) ? 400 : 1U << 31));
        };
        rdma::write_header(at, {static_cast<rdma::RdmaRecordKind>(1 + random.below(4)), small(), small(), small()});
      }
      const Immediate immediate{.granted = static_cast<std::uint32_t>(random.chance(0.8) ? 0 : random.below(8192)),
                                .done = static_cast<std::uint32_t>(random.chance(0.8) ? 0 : random.below(1024)),
                                .fin = random.chance(0.1)};
      attacker.post(bytes, immediate);
      if (random.chance(0.3)) pass(milliseconds(1));
    }
    pass(milliseconds(2));
    if (attacker.sink.closed && attacker.sink.reason.code != ErrorCode::protocol_error) {
      EXPECT_EQ(attacker.sink.reason.code, ErrorCode::unavailable) << attacker.sink.reason.text;
    }
    attacker.connection.reset();
  }
}

// Payloads that such a peer offers could never be read, and would stay.
TEST_P(RdmaHostile, PayloadsToBeReadAtAPeerWithoutReads) {
  Attacker& attacker = attack(0);
  std::vector<rdma::RdmaRemoteBuffer> pieces(8, {0x1000, 1, 60U << 20});
  attacker.post_rendezvous(pieces);
  expect_protocol_violation("serves no RDMA reads");
  EXPECT_LT(server_transport_->memory().front().used_bytes_max, idle_bytes_ + (std::size_t{4} << 20));
}

// Eight payloads in one packet. The sink pays for the first, and read_ahead_bytes_max limits those behind it.
TEST_P(RdmaHostile, WhatIsReadAheadIsBounded) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  const std::size_t ahead_max = RdmaOptions().read_ahead_bytes_max;
  for (const std::uint32_t bytes : {60U << 20, 4U << 20}) {
    attack();
    std::vector<rdma::RdmaRemoteBuffer> pieces(8, {0x1000, 1, bytes});
    attacker_->post_rendezvous(pieces);
    pass(milliseconds(20));
    EXPECT_EQ(attacker_->sink.selected_bytes, bytes);
    EXPECT_TRUE(attacker_->sink.closed);
    EXPECT_LE(server_transport_->memory().front().used_bytes_max, idle_bytes_ + 64 * mib + ahead_max + 4 * mib);
    attacker_->connection.reset();
    pass(std::chrono::seconds(3));
    EXPECT_EQ(server_worker().device().pool->ahead_bytes(), 0U);
  }
}

// The announcement of a head costs no memory before the head arrives.
TEST_P(RdmaHostile, AnnouncedHeadsTakeNoMemory) {
  Attacker& attacker = attack();
  rdma::write_header(attacker.data(), {rdma::RdmaRecordKind::begin, 63U << 20, 0, 8});
  ASSERT_TRUE(attacker.post(24, {}));
  const auto allocated = [] {
    const struct mallinfo2 heap = ::mallinfo2();
    return heap.uordblks + heap.hblkhd;
  };
  const std::size_t before = allocated();
  pass(milliseconds(5));
  EXPECT_FALSE(attacker.sink.closed);
  EXPECT_LT(allocated(), before + (std::size_t{1} << 20));
}

// Long heads are paid for as they arrive. A head that the account refuses is cut, and the connection continues.
TEST_P(RdmaHostile, LongHeadsArePaidFor) {
  detail::ReceiveBudget budget(std::size_t{4} << 20, std::size_t{1} << 20);
  detail::ReceiveAccount account(&budget);
  auto pair = honest(&account);
  for (const std::size_t bytes : {std::size_t{60'000}, std::size_t{600'000}, std::size_t{3'000'000}, std::size_t{9}}) {
    const std::string text(bytes, 'h');
    send(*pair->client, text);
    pass(milliseconds(100));
    EXPECT_EQ(pair->at_server.cut, bytes == 3'000'000) << bytes;
    if (pair->at_server.cut) {
      EXPECT_GE(pair->at_server.last.size(), 4096U);
      EXPECT_EQ(pair->at_server.last, text.substr(0, pair->at_server.last.size()));
    } else {
      EXPECT_EQ(pair->at_server.last, text);
    }
    EXPECT_EQ(account.used(), 0U) << bytes;
  }
  EXPECT_EQ(pair->at_server.messages, 4U);
  // A head that never arrives completely is refunded when its connection ends.
  send(*pair->client, std::string(900'000, 'h'));
  pass(std::chrono::microseconds(60));
  pair.reset();
  EXPECT_EQ(account.used(), 0U);
}

TEST_P(RdmaHostile, WhatIsReadAheadIsPaidFor) {
  detail::ReceiveBudget budget(std::size_t{64} << 20, std::size_t{5} << 20);
  detail::ReceiveAccount account(&budget);
  attacker_ = std::make_unique<Attacker>(*client_device_, *client_worker_, *server_worker_);
  attacker_->sink.account = &account;
  attacker_->connect();
  std::vector<rdma::RdmaRemoteBuffer> pieces(8, {0x1000, 1, 4U << 20});
  attacker_->post_rendezvous(pieces);
  std::size_t used_max = 0;
  for (int i = 0; i < 2000 && !attacker_->sink.closed; ++i) {
    pass(std::chrono::nanoseconds(50));
    used_max = std::max(used_max, account.used());
  }
  EXPECT_EQ(used_max, std::size_t{4} << 20) << "one of them fits beside the one in turn";
  EXPECT_TRUE(attacker_->sink.closed);
  EXPECT_EQ(account.used(), 0U);
  attacker_->sink.account = nullptr;
}

// The server attacks the client that connects to it: with forged parameters, and with invalid packets.
TEST_P(RdmaHostile, AServerThatAttacksItsClients) {
  const std::size_t before = client_transport_->memory().front().connections;
  for (int kind = 0; kind < 5; ++kind) {
    Attacker server(*server_device_, *server_worker_);
    if (kind == 0) server.ours.queue_pair = 0xfffffe;  // No queue pair has this number.
    ASSERT_TRUE(server.accepted_by(*client_worker_));
    server.ready();
    pass(milliseconds(1));
    if (kind == 1) {
      EXPECT_TRUE(server.post(0, {.fin = true}, Opcode::write_with_immediate));
    }
    if (kind == 2) {
      EXPECT_TRUE(server.post(0, {.granted = 100}));
    }
    if (kind == 3) {
      EXPECT_TRUE(server.post(64, {}, Opcode::send));
    }
    if (kind == 4) server.die();
    pass(milliseconds(5));
    EXPECT_EQ(server.sink.closed, kind >= 1 && kind <= 3) << kind << ": " << server.sink.reason.text;
    server.connection.reset();
    pass(std::chrono::seconds(3));
    EXPECT_EQ(client_transport_->memory().front().connections, before) << kind;
  }
}

// The attacker's process ends at each step of the handshake, and while packets, reads and a payload of the server are
// in progress.
TEST_P(RdmaHostile, DeathAtEachStep) {
  for (int step = 0; step < 7; ++step) {
    auto one = std::make_unique<Attacker>(*client_device_, *client_worker_, *server_worker_);
    if (step >= 1 && step != 6) one->connect();
    if (step == 6) {
      // The attacker is connected, and the server's stream ends before it is opened.
      EXPECT_TRUE(one->try_connect());
      one->ready();
      for (unsigned i = 0; i < one->theirs.receives; ++i) EXPECT_TRUE(one->post_message(8));
      pass(std::chrono::microseconds(3));
    }
    if (step == 2) {
      EXPECT_TRUE(one->post_message(100));
    }
    if (step == 3) {
      const rdma::RdmaRemoteBuffer piece{reinterpret_cast<std::uintptr_t>(one->data()), one->key(), 32 * 1024};
      one->post_rendezvous({&piece, 1});
      pass(std::chrono::microseconds(3));  // The server is reading.
    }
    if (step == 4) {
      for (int i = 0; i < 200; ++i) send(*one->connection, "to nobody");
    }
    if (step == 5) {
      one->connection->pause();
      for (unsigned i = 0; i < one->theirs.receives; ++i) EXPECT_TRUE(one->post_message(8));
      pass(milliseconds(1));
    }
    one->die();
    pass(milliseconds(2));
    one.reset();
    expect_served(*background_client_);
    pass(std::chrono::seconds(3));
    EXPECT_EQ(connections(), 1U) << "step " << step;
  }
}

// A client that sees its own first sequence numbers must not be able to predict those of others. With a generator such
// as minstd_rand, only seven bits would be unknown.
TEST_F(RdmaAttack, SequenceNumbersTellNothingOfTheNext) {
  build({});
  std::array<std::uint64_t, 4> seen{};
  for (std::uint64_t& number : seen) {
    const auto pending = *finish_half(*loop_, server_worker_->select(client_worker_->offer(), limits));
    number = rdma::RdmaParameters::decode(pending->parameters())->sequence;
  }
  constexpr std::uint64_t mask = 0xffffff;
  constexpr std::uint64_t modulus = (1ULL << 31) - 1;
  for (const std::uint64_t factor : {48'271ULL, 16'807ULL}) {
    for (std::uint64_t high = 0; high < 128; ++high) {
      std::uint64_t state = high << 24 | seen[0];
      bool predicted = true;
      for (std::size_t i = 1; i < seen.size() && predicted; ++i) {
        state = state * factor % modulus;
        predicted = (state & mask) == seen[i];
      }
      EXPECT_FALSE(predicted) << "from " << seen[0];
    }
  }
}

}  // namespace
}  // namespace hawser::transport
