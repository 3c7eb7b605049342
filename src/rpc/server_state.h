#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu_latency.h"
#include "hawser/scope.h"
#include "hawser/server.h"
#include "rpc/server_loop.h"

namespace hawser {

// A Server's inside: its loops, threads and listener.
struct Server::State final : transport::AcceptSink {
  State(std::shared_ptr<transport::Network> network, ServerOptions options)
      : shared{.options = std::move(options),
               .network = std::move(network),
               .dispatcher = {},
               .connections = 0,
               .calls_in_flight = 0} {}

  TransportOptions& transports();
  Result<void> start();
  void stop(Duration grace);
  Task<void> shut_down(Duration grace);
  ServerCounters counters() const;
  ServerCounters sum() const;

  Result<void> hold_latency();
  Result<void> listen();
  void accepted(std::unique_ptr<transport::Stream> stream) override;

  rpc::ServerShared shared;
  Loop* callers_loop = nullptr;
  bool started = false;
  std::vector<std::unique_ptr<Loop>> own_loops;  // In step with loops, unless on the caller's.
  std::vector<std::unique_ptr<rpc::ServerLoop>> loops;
  std::vector<std::thread> threads;
  std::unique_ptr<transport::Listener> listener;  // On the first loop.
  std::size_t next_loop = 0;
  std::string address;
  std::optional<CpuLatency> cpu_latency;
  mutable std::mutex counting;  // Guards the emptying of `loops`, and what remains of them.
  ServerCounters ended_counters;
  std::mutex stopping;  // One stop() at a time.
  std::atomic<bool> ended{false};
};

}  // namespace hawser
