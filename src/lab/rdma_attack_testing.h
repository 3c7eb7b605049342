#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/lent_block.h"
#include "hawser/loop.h"
#include "hawser/task.h"
#include "lab/fabric_poller.h"
#include "lab/sim_device.h"
#include "transport/rdma/parameters.h"
#include "transport/rdma/rdma_end.h"
#include "transport/rdma/rdma_path.h"
#include "transport/rdma/records.h"
#include "transport/stream.h"

// Servers of the RDMA path on a simulated device, well-behaved clients of them, and an attacker with a bare queue pair.
namespace hawser::lab {

namespace rdma = transport::rdma;
using std::chrono::milliseconds;

// A stream that neither says anything nor ends.
struct QuietStream final : transport::Stream {
  void start(Loop&, transport::StreamSink&) override {}
  void set_sink(transport::StreamSink&) noexcept override {}
  std::size_t send(std::span<const Piece> pieces) override {
    std::size_t bytes = 0;
    for (const Piece& piece : pieces) bytes += piece.size;
    return bytes;
  }
  void pause() noexcept override {}
  void resume() override {}
  void finish() noexcept override {}
  std::string_view transport() const noexcept override { return "sim"; }
  std::string peer() const override { return "peer"; }
  std::string local() const override { return "local"; }
};

// Keeps what one connection delivers.
struct CountingSink final : transport::MessageSink {
  void on_message(const transport::Message& message) override {
    ++messages;
    last.assign(reinterpret_cast<const char*>(message.head.data()), message.head.size());
    if (keep) kept.push_back(message.keep_head());
    if (abort != nullptr) abort->abort();
  }
  transport::Placement place(Bytes, std::size_t bytes) override {
    placed_bytes += bytes;
    return {};
  }
  void on_drained() override {}
  void on_closed(const Error& error) override {
    closed = true;
    reason = error;
  }
  std::size_t messages = 0;
  std::string last;
  std::size_t placed_bytes = 0;
  bool closed = false;
  Error reason;
  bool keep = false;
  std::vector<Buffer> kept;
  transport::Connection* abort = nullptr;  // On the first message.
};

// One connection of a well-behaved client, both ends on the loop of the test.
struct HonestPair {
  CountingSink at_server;
  CountingSink at_client;
  std::unique_ptr<transport::Connection> server;
  std::unique_ptr<transport::Connection> client;
};

class RdmaAttack : public ::testing::Test {
 protected:
  static constexpr transport::PathLimits limits{std::size_t{64} << 20, std::size_t{64} << 20};

  void build(RdmaOptions options, const SimParameters& parameters = {}) {
    fabric_ = SimFabric::create(parameters, 1);
    loop_ = std::make_unique<Loop>(std::make_unique<FabricPoller>(fabric_), LoopOptions{.log = no_log()});
    client_device_ = *fabric_->open("sim0");
    server_device_ = *fabric_->open("sim1");
    options.device = "sim0";
    client_path_ = transport::make_rdma_path(options, fabric_);
    options.device = "sim1";
    server_path_ = transport::make_rdma_path(options, fabric_);
    client_end_ = *client_path_->attach(*loop_);
    server_end_ = *server_path_->attach(*loop_);
  }
  static RdmaOptions shared_options() {
    RdmaOptions options;
    options.shared_receive_queue = true;
    return options;
  }

  std::unique_ptr<HonestPair> honest() {
    auto pair = std::make_unique<HonestPair>();
    auto server = *server_end_->propose(client_end_->offer(), limits);
    auto client = *client_end_->accept(server->parameters(), limits);
    EXPECT_TRUE(server->connect(client->parameters()));
    pair->server = server->open(std::make_unique<QuietStream>());
    pair->server->start(pair->at_server);
    pair->client = client->open(std::make_unique<QuietStream>());
    pair->client->start(pair->at_client);
    return pair;
  }
  static void send(transport::Connection& connection, std::string_view text) {
    std::byte* const room = connection.reserve(text.size());
    if (room == nullptr) return;
    std::memcpy(room, text.data(), text.size());
    connection.commit(text.size(), {}, nullptr);
    connection.flush();
  }
  // So much virtual time.
  void pass(Duration time) {
    loop_->run([](Loop& loop, Duration wait) -> Task<void> { co_await loop.sleep(wait); }(*loop_, time));
  }
  // `count` messages reach the server, each soon.
  void expect_served(HonestPair& pair, std::size_t count = 10) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t before = pair.at_server.messages;
      send(*pair.client, "honest " + std::to_string(i));
      pass(milliseconds(1));
      ASSERT_EQ(pair.at_server.messages, before + 1) << "of an honest client: " << pair.at_client.reason.text;
      EXPECT_EQ(pair.at_server.last, "honest " + std::to_string(i));
    }
  }
  rdma::RdmaEnd& server_end() { return static_cast<rdma::RdmaEnd&>(server_end_->toward({})); }
  SimDevice& server_device() { return static_cast<SimDevice&>(*server_device_); }
  std::size_t used_bytes() { return server_path_->memory().front().used_bytes; }
  std::size_t connections() { return server_path_->memory().front().connections; }

  std::shared_ptr<SimFabric> fabric_;
  std::unique_ptr<Loop> loop_;
  std::shared_ptr<rdma::Device> client_device_;
  std::shared_ptr<rdma::Device> server_device_;
  std::shared_ptr<transport::DataPath> client_path_;
  std::shared_ptr<transport::DataPath> server_path_;
  std::shared_ptr<transport::PathEnd> client_end_;
  std::shared_ptr<transport::PathEnd> server_end_;
};

// A client without the library: a queue pair, and whatever it likes to send. It posts its receives again, but grants them only
// as told.
class Attacker {
 public:
  static constexpr std::size_t receives = 16;

  Attacker(rdma::Device& device, transport::PathEnd& client, transport::PathEnd& server, std::uint32_t reads = 16,
           std::size_t memory_bytes = 64 * 1024)
      : memory_(memory_bytes + receives * receive_bytes),
        region_(*device.register_memory(memory_, {.remote_read = true, .remote_write = false})),
        queue_(*device.create_completion_queue(4096)),
        pair_(*device.create_queue_pair(
            {.completions = queue_.get(), .send_requests = 1024, .receive_requests = receives}, 1)) {
    offer_ = *rdma::Offer::decode(client.offer());
    half_ = *server.propose(offer_.encode(), {std::size_t{64} << 20, std::size_t{64} << 20});
    theirs = *rdma::Parameters::decode(half_->parameters());
    ours = theirs;
    ours.queue_pair = pair_->number();
    ours.gid = offer_.gid;
    ours.receives = 8;
    ours.reads = reads;
    for (std::uint64_t i = 0; i < receives; ++i) post_receive(i);
  }
  // Both sides are connected; the server's connection delivers to `sink`.
  void connect() {
    ASSERT_TRUE(try_connect());
    ready();
    connection = half_->open(std::make_unique<QuietStream>());
    connection->start(sink);
  }
  bool try_connect() { return half_->connect(ours.encode()).has_value(); }
  // Its own side only.
  void ready() {
    ASSERT_TRUE(pair_->connect({.peer_gid = theirs.gid,
                                .peer_queue_pair = theirs.queue_pair,
                                .receive_sequence = theirs.sequence,
                                .send_sequence = ours.sequence,
                                .reads_asked_max = 16,
                                .reads_answered_max = 16,
                                .access = {.remote_read = true, .remote_write = true}}));
  }

  // Space for what is sent.
  std::byte* data() noexcept { return memory_.data(); }
  std::uint32_t key() const noexcept { return region_->remote_key(); }

  bool post(std::size_t bytes, rdma::Immediate immediate, rdma::Opcode opcode = rdma::Opcode::send_with_immediate,
            std::uint64_t address = 0, std::uint32_t key = 0) {
    return post_from(0, bytes, immediate, opcode, address, key);
  }
  bool post_from(std::size_t at, std::size_t bytes, rdma::Immediate immediate, rdma::Opcode opcode,
                 std::uint64_t address, std::uint32_t key) {
    const rdma::Segment segment{memory_.data() + at, static_cast<std::uint32_t>(bytes), region_->local_key()};
    const rdma::SendRequest request{.id = ++last_id_,
                                    .segments = {&segment, 1},
                                    .opcode = opcode,
                                    .signalled = true,
                                    .immediate = immediate.encode(),
                                    .remote_address = address,
                                    .remote_key = key};
    return pair_->post_send({&request, 1}).has_value();
  }
  // A packet with one whole message of so many bytes.
  bool post_message(std::size_t bytes, rdma::Immediate immediate = {}) {
    std::memset(memory_.data(), 'x', rdma::RecordHeader::bytes + rdma::align_up(bytes));
    rdma::write_header(memory_.data(), {rdma::RecordKind::message, static_cast<std::uint32_t>(bytes), 0, 0});
    return post(rdma::RecordHeader::bytes + rdma::align_up(bytes), immediate);
  }
  // A packet with one rendezvous for each of the pieces.
  void post_rendezvous(std::span<const rdma::RemotePiece> pieces, rdma::Immediate immediate = {}) {
    constexpr std::size_t record = rdma::RecordHeader::bytes + rdma::table_head_bytes + rdma::RemotePiece::bytes;
    std::byte* at = memory_.data() + packet_at;
    for (const rdma::RemotePiece& piece : pieces) {
      rdma::write_header(
          at, {rdma::RecordKind::rendezvous, 0, piece.size, rdma::table_head_bytes + rdma::RemotePiece::bytes});
      store_le(at + rdma::RecordHeader::bytes, ++last_transfer_);
      store_le(at + rdma::RecordHeader::bytes + 4, std::uint32_t{1});
      rdma::write_piece(at + rdma::RecordHeader::bytes + rdma::table_head_bytes, piece);
      at += record;
    }
    EXPECT_TRUE(post_from(packet_at, pieces.size() * record, immediate, rdma::Opcode::send_with_immediate, 0, 0));
  }
  // Takes completions, and counts them: how many packets came, and how the last send ended.
  void poll() {
    std::array<rdma::Completion, 32> found;
    while (const std::size_t count = queue_->poll(found)) {
      for (std::size_t i = 0; i < count; ++i) {
        if (found[i].received && found[i].status == rdma::Status::success) {
          ++received;
          post_receive(found[i].id);
        } else if (!found[i].received) {
          status = found[i].status;
          ++sent;
        }
      }
    }
  }
  // As a process that is killed.
  void die() {
    pair_.reset();
    region_.reset();
  }

  rdma::Parameters theirs;
  rdma::Parameters ours;
  CountingSink sink;
  std::unique_ptr<transport::Connection> connection;  // The server's.
  std::size_t received = 0;
  std::size_t sent = 0;
  rdma::Status status = rdma::Status::success;

 private:
  static constexpr std::size_t receive_bytes = 4096;
  static constexpr std::size_t packet_at = 40 * 1024;  // Behind what peers are offered to read.

  void post_receive(std::uint64_t index) {
    std::byte* const at = memory_.data() + memory_.size() - (index + 1) * receive_bytes;
    const rdma::ReceiveRequest request{index, {at, receive_bytes, region_->local_key()}};
    EXPECT_TRUE(pair_->post_receive({&request, 1}));
  }

  std::vector<std::byte> memory_;
  std::unique_ptr<rdma::MemoryRegion> region_;
  std::unique_ptr<rdma::CompletionQueue> queue_;
  std::unique_ptr<rdma::QueuePair> pair_;
  rdma::Offer offer_;
  std::unique_ptr<transport::PathHalf> half_;
  std::uint64_t last_id_ = 0;
  std::uint32_t last_transfer_ = 0;
};

// Memory that the application registers.
struct ExposedMemory final : LentBlock {
  explicit ExposedMemory(std::size_t bytes) : LentBlock([](LentBlock&) noexcept {}), memory(bytes) {}
  std::vector<std::byte> memory;
};

}  // namespace hawser::lab
