#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/timer.h"
#include "hawser/transport/transport.h"
#include "transport/ucx/connection/ucx_connection.h"
#include "transport/ucx/connection/ucx_half_open.h"

namespace hawser::transport {

// Parameters of a pending connection, which each side sends to the other. load() checks everything that comes from the
// peer except the contents of a worker's address, which only UCX can read.
struct UcxParameters {
  static constexpr std::size_t bytes_least = 32;

  ucx::UcxPeer peer;
  UcxWireUp wire_up = UcxWireUp::worker_address;
  UcxErrorMode error_mode = UcxErrorMode::none;
  std::vector<std::byte> address;  // Address of a worker, or of a listener such as "10.0.0.1:4711".

  std::vector<std::byte> store() const;
  static Result<UcxParameters> load(Bytes bytes);
};

// The part of a UCX transport that belongs to one loop.
class UcxTransportWorker final : public TransportWorker, public std::enable_shared_from_this<UcxTransportWorker> {
 public:
  // If UCX holds more closed or closing endpoints than this, the next connections get a new worker. UCX keeps some
  // closed endpoints, and others never finish closing, for example those over the shared memory of a killed peer. The
  // old worker is destroyed together with its endpoints when it has had no connection for retired_rest, so that its
  // sockets are not reset while their peers still read.
  static constexpr std::size_t spent_max = 64;
  // The same holds if failed fetches hold more memory than this (UcxCore::doubtful_bytes()).
  static constexpr std::size_t doubtful_bytes_max = std::size_t{16} << 20;
  // Most such memory of the loop's workers together. Above this, connections are refused as with old_workers_max.
  static constexpr std::size_t doubtful_total_bytes_max = std::size_t{256} << 20;
  static constexpr Duration retired_rest = std::chrono::seconds(1);
  // Most old workers, those of the loop and those of the runtime that UCX does not allow to be destroyed. Above this,
  // connections are refused and use another transport, so that killed peers do not make the process grow.
  static constexpr std::size_t old_workers_max = 16;

  static Result<std::shared_ptr<UcxTransportWorker>> make(std::shared_ptr<UcxContext> context, Loop& loop);

  TransportWorker& select_device(std::string_view local) override;
  std::vector<std::byte> offer() override;
  // The pending connection waits up to UcxHalfOpen::wait_max while UcxOptions::half_open_max clients have not sent
  // their first message.
  Result<std::unique_ptr<PendingConnection>> select(Bytes offer, const MessageLimits& limits) override;
  Result<std::unique_ptr<PendingConnection>> accept(Bytes server, const MessageLimits& limits) override;

  Loop& loop() noexcept { return loop_; }
  UcxHalfOpen& half_open() noexcept { return *half_open_; }

 private:
  friend class UcxPendingConnection;
  std::size_t doubtful_bytes() const noexcept;
  // A worker, and a connection of a client on it that has this place.
  struct Selected {
    std::shared_ptr<UcxWorker> worker;
    std::unique_ptr<UcxConnection> connection;
  };

  UcxTransportWorker(std::shared_ptr<UcxContext> context, Loop& loop, std::shared_ptr<UcxWorker> worker)
      : context_(std::move(context)),
        loop_(loop),
        worker_(std::move(worker)),
        half_open_(std::make_shared<UcxHalfOpen>(loop, context_->options().half_open_max,
                                                 context_->options().connections_max)) {}
  Result<void> check_client(Bytes offer);
  Result<Selected> select_with(std::unique_ptr<UcxHalfOpen::Place> place, const MessageLimits& limits);
  struct Retired {
    std::shared_ptr<UcxWorker> worker;
    bool idle = false;
  };

  Result<std::shared_ptr<UcxWorker>> worker();
  void drop_retired();

  const std::shared_ptr<UcxContext> context_;
  Loop& loop_;
  std::shared_ptr<UcxWorker> worker_;  // For the next connections.
  const std::shared_ptr<UcxHalfOpen> half_open_;
  // The host's own address for a client whose byte stream is not of TCP, and so of this host.
  static constexpr std::string_view own_host = "127.0.0.1";
  std::string host_{own_host};  // The host on which the next client has reached this one.
  std::vector<Retired> retired_;
  MemberTimer<&UcxTransportWorker::drop_retired> rest_{*this};
};

}  // namespace hawser::transport
