#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/alive.h"
#include "hawser/loop.h"
#include "hawser/transport/connection.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/transport.h"
#include "transport/common/backlog_watermark.h"
#include "transport/common/link_facts.h"
#include "transport/common/liveness.h"
#include "transport/rdma/connection/draining_queue_pair.h"
#include "transport/rdma/connection/half_open.h"
#include "transport/rdma/connection/parameters.h"
#include "transport/rdma/connection/queue_pair_set_up.h"
#include "transport/rdma/connection/rdma_worker.h"
#include "transport/rdma/connection/state.h"
#include "transport/rdma/connection/terms.h"
#include "transport/rdma/protocol/channel.h"

namespace hawser::transport::rdma {

// A transport::Connection over one queue pair. It exists already before open(), while the peers negotiate.
class RdmaConnection final : public Connection,
                             public LinkFactsSource,
                             CompletionTarget,
                             RdmaReceiverOwner,
                             ReceiveRingOwner,
                             exec::TickEnd {
 public:
  // Returns a connection without a queue pair. make() is called next.
  static Result<std::unique_ptr<RdmaConnection>> begin(std::shared_ptr<RdmaWorker> worker, const MessageLimits& limits);
  RdmaConnection(std::shared_ptr<RdmaWorker> worker, const MessageLimits& limits);
  ~RdmaConnection();

  RdmaParameters parameters() const noexcept;
  // See RdmaTerms::limit_mtu(). Called before connect().
  void limit_mtu(unsigned bytes) noexcept { terms_.limit_mtu(bytes); }
  // Makes the queue pair on the helper thread. The loop calls `ready` unless the connection has been destroyed.
  void make(PendingConnection::Ready ready);
  // Connects the queue pair on the helper thread. The loop calls `ready` as of make().
  void connect(const RdmaParameters& peer, PendingConnection::Ready ready);
  // From now on the end of `stream` shows that the peer has ended. The connection is paused until start().
  void open(std::unique_ptr<Stream> stream);

  std::string_view transport() const noexcept override { return "rdma"; }
  Capabilities capabilities() const noexcept override;
  std::string peer() const override { return peer_; }
  std::string link_details() const override {
    if (parts_.channel == nullptr) return {};
    return parts_.channel->details() + "; path MTU " + std::to_string(terms_.mtu_bytes()) + " bytes";
  }
  OneSidedMemory* remote_memory() noexcept override;
  void start(MessageSink& sink) override;
  std::byte* reserve(std::size_t head_bytes) override;
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) override;
  void copy_and_release(SendCompletion& owner) override;
  void revoke_receive_buffer(const std::byte* memory) noexcept override;
  std::uint64_t committed() const noexcept override {
    return parts_.channel ? parts_.channel->sender().committed() : at_end_.committed;
  }
  std::uint64_t sent() const noexcept override {
    return parts_.channel ? parts_.channel->sender().sent() : at_end_.sent;
  }
  std::uint64_t arrived() const noexcept override {
    return parts_.channel ? parts_.channel->receiver().arrived() : at_end_.arrived;
  }
  std::size_t backlog() const noexcept override { return static_cast<std::size_t>(committed() - sent()); }
  void set_high_watermark(std::size_t bytes) noexcept override { watermark_.set(bytes, backlog()); }
  void pause() noexcept override;
  void resume() override;
  bool paused() const noexcept override { return paused_; }
  void flush() override;
  void close() override;
  void abort() noexcept override { end_now(dropped(), false); }

 private:
  void on_completion(const Completion& completion) override;
  void on_event(const DeviceEvent& event) override;
  void on_posted(const ReceiveChunk& chunk) override;
  void on_protocol_violation(std::string_view how) override;
  void on_fin() override;
  void chunks_returned() noexcept override;
  void on_tick_end() override;

  Result<void> reserve();
  Result<void> prepare(Result<std::unique_ptr<QueuePair>> pair);
  Result<void> connected(const RdmaParameters& peer);
  // Without a shared receive queue, the ring is the connection's own.
  bool owns_ring() const noexcept { return !options_.shared_receive_queue && parts_.ring != nullptr; }
  Result<void> repost();
  void drained();
  void on_peer_gone(Error reason);
  void end_if_gone();
  void fail(Error reason, bool broken);
  void end_now(const Error& reason, bool broken) noexcept;
  static Error dropped();

  // The totals of what the peers have exchanged.
  struct Totals {
    std::uint64_t committed = 0;
    std::uint64_t sent = 0;
    std::uint64_t arrived = 0;
  };
  using Phase = RdmaState::Phase;

  const std::shared_ptr<RdmaWorker> worker_;
  Loop& loop_;
  const RdmaOptions& options_;
  RdmaTerms terms_;
  RdmaState state_;
  // Allocated in advance for the queue pair, so that the end of the connection allocates nothing.
  RdmaWorker::Draining draining_;
  // The queue pair, and everything that its device may access. Moved to draining_ at the end.
  DrainingQueuePair::Parts parts_;
  std::optional<RdmaChannel::Memory> memory_;  // Set until the channel exists.
  std::string peer_;

  MessageSink* sink_ = nullptr;
  std::optional<Error> unannounced_;  // Reason of an end before start().
  std::optional<Error> gone_;         // The peer is gone. Messages that have arrived are still delivered.
  Totals at_end_;                     // Set when the connection ends.
  BacklogWatermark watermark_;
  bool paused_ = true;
  QueuePairSetUp set_up_{*worker_};
  const Alive<RdmaConnection> alive_{*this};
};

// A connection that is being made. The server's pending connection leaves the half-open ones when it is connected.
class RdmaPendingConnection final : public PendingConnection, public HalfOpen::Place {
 public:
  // Client: will be connected to the server with these parameters.
  RdmaPendingConnection(Loop& loop, std::unique_ptr<RdmaConnection> connection, const RdmaParameters& server) noexcept
      : loop_(loop), connection_(std::move(connection)), server_(server) {}
  // Server: for a client that made `offer`; it has no connection yet.
  RdmaPendingConnection(Loop& loop, const RdmaOffer& offer) noexcept : loop_(loop), offer_(offer) {}
  void hold(std::unique_ptr<RdmaConnection> connection) noexcept { connection_ = std::move(connection); }

  std::vector<std::byte> parameters() const override {
    return connection_ == nullptr ? std::vector<std::byte>() : connection_->parameters().encode();
  }
  void when_ready(Ready ready) override;
  void connect(Bytes client, Ready ready) override;
  std::unique_ptr<Connection> open(std::unique_ptr<Stream> stream) override;

 private:
  void give_way() noexcept override;
  Result<RdmaParameters> check_client(Bytes client) const;
  // Calls the waiting callback, which may destroy this.
  void finish(const Result<void>& outcome);
  static Error gave_way();

  Loop& loop_;
  std::unique_ptr<RdmaConnection> connection_;  // Null once it gave way to a newer handshake.
  const std::optional<RdmaParameters> server_;
  const std::optional<RdmaOffer> offer_;
  Ready ready_;
  const Alive<RdmaPendingConnection> alive_{*this};
};

}  // namespace hawser::transport::rdma
