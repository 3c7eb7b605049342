#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "heap/external_block.h"
#include "transport/rdma/connection/parameters.h"
#include "transport/rdma/protocol/records.h"
#include "transport/sim/rdma/test/rdma_attack_testing.h"

namespace hawser::transport {

// A client without the library: a queue pair that sends anything. It posts its receives again, but grants them only
// when the test does.
class Attacker {
 public:
  static constexpr std::size_t receives = 16;

  // A client of `server`, on the device of `client`.
  Attacker(rdma::Device& device, transport::TransportWorker& client, transport::TransportWorker& server,
           std::uint32_t reads = 16, std::size_t memory_bytes = 64 * 1024)
      : Attacker(device, loop_of(server), memory_bytes) {
    const rdma::RdmaOffer offer = *rdma::RdmaOffer::decode(client.offer());
    pending_ = *finish_half(loop_, server.select(offer.encode(), limits));
    theirs = *rdma::RdmaParameters::decode(pending_->parameters());
    ours = theirs;
    ours.queue_pair = pair_->number();
    ours.gid = offer.gid;
    ours.receives = 8;
    ours.reads = reads;
  }
  // A server on the device of the well-behaved `server`, whose parameters it copies.
  Attacker(rdma::Device& device, transport::TransportWorker& server)
      : Attacker(device, loop_of(server), std::size_t{64} * 1024) {
    const auto other = *finish_half(loop_, server.select(server.offer(), limits));
    ours = *rdma::RdmaParameters::decode(other->parameters());
    ours.queue_pair = pair_->number();
  }
  // The client of this server connects. `connection` is the client's.
  bool accepted_by(transport::TransportWorker& client) {
    auto pending = finish_half(loop_, client.accept(ours.encode(), limits));
    if (!pending) return false;
    theirs = *rdma::RdmaParameters::decode((*pending)->parameters());
    connection = (*pending)->open(std::make_unique<QuietStream>());
    connection->start(sink);
    return true;
  }
  // Connects both sides. The server's connection delivers to `sink`.
  void connect() {
    ASSERT_TRUE(try_connect());
    ready();
    connection = pending_->open(std::make_unique<QuietStream>());
    connection->start(sink);
  }
  bool try_connect() { return finish_connect(loop_, *pending_, ours.encode()).has_value(); }
  // Connects only the attacker's side.
  void ready() {
    ASSERT_TRUE(pair_->connect({.peer_gid = theirs.gid,
                                .peer_queue_pair = theirs.queue_pair,
                                .rq_psn = theirs.sequence,
                                .sq_psn = ours.sequence,
                                .max_rd_atomic = 16,
                                .max_dest_rd_atomic = 16,
                                .access = {.remote_read = true, .remote_write = true}}));
  }

  // Memory for data to be sent.
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
  // Posts a packet with one whole message of `bytes` bytes.
  bool post_message(std::size_t bytes, rdma::Immediate immediate = {}) {
    std::memset(memory_.data(), 'x', rdma::RecordHeader::bytes + rdma::align_up(bytes));
    rdma::write_header(memory_.data(), {rdma::RdmaRecordKind::message, static_cast<std::uint32_t>(bytes), 0, 0});
    return post(rdma::RecordHeader::bytes + rdma::align_up(bytes), immediate);
  }
  // Posts a packet with one rendezvous for each of the pieces.
  void post_rendezvous(std::span<const rdma::RdmaRemoteBuffer> pieces, rdma::Immediate immediate = {}) {
    constexpr std::size_t record = rdma::RecordHeader::bytes + rdma::table_head_bytes + rdma::RdmaRemoteBuffer::bytes;
    std::byte* at = memory_.data() + packet_at;
    for (const rdma::RdmaRemoteBuffer& piece : pieces) {
      rdma::write_header(at, {rdma::RdmaRecordKind::rendezvous, 0, piece.size,
                              rdma::table_head_bytes + rdma::RdmaRemoteBuffer::bytes});
      store_le(at + rdma::RecordHeader::bytes, ++last_transfer_);
      store_le(at + rdma::RecordHeader::bytes + 4, std::uint32_t{1});
      rdma::write_piece(at + rdma::RecordHeader::bytes + rdma::table_head_bytes, piece);
      at += record;
    }
    EXPECT_TRUE(post_from(packet_at, pieces.size() * record, immediate, rdma::Opcode::send_with_immediate, 0, 0));
  }
  // Polls completions and counts them: how many packets arrived, and how the last send ended.
  void poll(bool repost = true) {
    std::array<rdma::Completion, 32> found;
    while (const std::size_t count = queue_->poll(found)) {
      for (std::size_t i = 0; i < count; ++i) {
        if (found[i].received && found[i].status == rdma::WorkStatus::success) {
          ++received;
          if (repost) post_receive(found[i].id);
        } else if (!found[i].received) {
          status = found[i].status;
          if (status == rdma::WorkStatus::success) ++succeeded;
        }
      }
    }
  }
  // Ends like a process that is killed.
  void die() {
    pair_.reset();
    region_.reset();
  }

  rdma::RdmaParameters theirs;
  rdma::RdmaParameters ours;
  CountingSink sink;
  std::unique_ptr<transport::Connection> connection;  // Connection of the attacked side.
  std::size_t received = 0;
  std::size_t succeeded = 0;  // Number of requests that succeeded.
  rdma::WorkStatus status = rdma::WorkStatus::success;

 private:
  static constexpr transport::MessageLimits limits{std::size_t{64} << 20, std::size_t{64} << 20};
  static constexpr std::size_t receive_bytes = 4096;
  static constexpr std::size_t packet_at = 40 * 1024;  // After the memory that peers are offered to read.

  static Loop& loop_of(transport::TransportWorker& worker) {
    return static_cast<rdma::RdmaWorker&>(worker.select_device({})).loop();
  }
  Attacker(rdma::Device& device, Loop& loop, std::size_t memory_bytes)
      : loop_(loop),
        memory_(memory_bytes + receives * receive_bytes),
        region_(*device.register_memory(memory_, {.remote_read = true, .remote_write = false})),
        queue_(*device.create_completion_queue(4096)),
        pair_(*device.create_queue_pair(
            {.completions = queue_.get(), .send_requests = 1024, .receive_requests = receives}, 1)) {
    for (std::uint64_t i = 0; i < receives; ++i) post_receive(i);
  }

  void post_receive(std::uint64_t index) {
    std::byte* const at = memory_.data() + memory_.size() - (index + 1) * receive_bytes;
    const rdma::ReceiveRequest request{index, {at, receive_bytes, region_->local_key()}};
    EXPECT_TRUE(pair_->post_receive({&request, 1}));
  }

  Loop& loop_;
  std::vector<std::byte> memory_;
  std::unique_ptr<rdma::MemoryRegion> region_;
  std::unique_ptr<rdma::CompletionQueue> queue_;
  std::unique_ptr<rdma::QueuePair> pair_;
  std::unique_ptr<transport::PendingConnection> pending_;
  std::uint64_t last_id_ = 0;
  std::uint32_t last_transfer_ = 0;
};

// Memory that the application registers.
struct ExposedMemory final : ExternalBlock {
  explicit ExposedMemory(std::size_t bytes) : ExternalBlock([](ExternalBlock&) noexcept {}), memory(bytes) {}
  std::vector<std::byte> memory;
};

}  // namespace hawser::transport
