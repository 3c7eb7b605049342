#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "hawser/timer.h"
#include "hawser/transport/transport.h"
#include "transport/ucx/connection/ucx_connection.h"

namespace hawser::transport {

// What one side tells the other of its pending connection. All of it comes from the peer: load() takes nothing on trust
// but that a worker's address, which only UCX can read, is the peer's own.
struct UcxParameters {
  static constexpr std::size_t bytes_least = 32;

  ucx::Peer peer;
  UcxWireUp wire_up = UcxWireUp::worker_address;
  UcxErrorMode error_mode = UcxErrorMode::none;
  std::vector<std::byte> address;  // Of a worker, or of a listener: "10.0.0.1:4711".

  std::vector<std::byte> store() const;
  static Result<UcxParameters> load(Bytes bytes);
};

// One loop's end of a UCX transport.
class UcxTransportWorker final : public TransportWorker {
 public:
  // With more endpoints that UCX keeps although they are closed, or that never close, as those of a killed peer's
  // shared memory may, the next connections get a new worker. The old one goes, and takes them along, when its last
  // connection has been gone for retired_rest: its sockets must not be reset while their peers read.
  static constexpr std::size_t spent_max = 64;
  static constexpr Duration retired_rest = std::chrono::seconds(1);

  static Result<std::shared_ptr<UcxTransportWorker>> make(std::shared_ptr<UcxContext> context, Loop& loop);

  std::vector<std::byte> offer() override;
  Result<std::unique_ptr<PendingConnection>> select(Bytes offer, const MessageLimits& limits) override;
  Result<std::unique_ptr<PendingConnection>> accept(Bytes server, const MessageLimits& limits) override;

 private:
  UcxTransportWorker(std::shared_ptr<UcxContext> context, Loop& loop, std::shared_ptr<UcxWorker> worker)
      : context_(std::move(context)), loop_(loop), worker_(std::move(worker)) {}
  struct Retired {
    std::shared_ptr<UcxWorker> worker;
    bool idle = false;
  };
  struct Rest final : Timer {
    explicit Rest(UcxTransportWorker& owner) noexcept : Timer(&Rest::fire), worker(owner) {}
    static void fire(Timer& timer) noexcept;
    UcxTransportWorker& worker;
  };

  Result<std::shared_ptr<UcxWorker>> worker();
  void drop_retired();

  const std::shared_ptr<UcxContext> context_;
  Loop& loop_;
  std::shared_ptr<UcxWorker> worker_;  // For the next connections.
  std::vector<Retired> retired_;
  Rest rest_{*this};
};

}  // namespace hawser::transport
