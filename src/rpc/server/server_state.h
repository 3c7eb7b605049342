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
#include "rpc/server/server_loop.h"

namespace hawser {

// A Server's inside: its loops, threads and listener.
struct Server::State final : transport::AcceptSink {
  State(std::shared_ptr<transport::Network> network, ServerOptions options)
      : shared{.options = std::move(options),
               .network = std::move(network),
               .dispatcher = {},
               .connections = 0,
               .calls_in_flight = 0} {}

  // Whether this is a child, by fork(), of the process that started the server.
  bool in_child() const noexcept;
  // Whether this thread runs one of the server's loops, or does offloaded work of one.
  bool owns(const Loop* loop) const noexcept;
  bool on_own_loop() const noexcept;
  bool offloaded() const noexcept;
  TransportOptions& transports();
  Result<void> start();
  Result<void> run();
  void stop(Duration grace);
  Task<void> shut_down(Duration grace);
  Result<void> spawn(std::unique_ptr<detail::BackgroundWork> work);
  // Hands what was spawned before the start to the loops.
  void begin_background();
  std::vector<Loop*> list_loops() const;
  ServerCounters counters() const;
  ServerCounters sum() const;

  Result<void> begin();
  Result<void> start_threads();
  void serve(std::size_t index);
  // Tells the loops to stop within the least grace that anybody has asked for. Allocates nothing the first time.
  void notify_loops(Duration grace) noexcept;
  // Waits for the threads and releases what they used. With `lifecycle` held.
  void end_loops();
  Result<void> hold_latency();
  Result<void> listen();
  void accepted(std::unique_ptr<transport::Stream> stream) override;

  // What stop() posts to a loop. One for each loop is made by start(): stopping must not fail for want of memory.
  struct StopOrder;
  // Ends a loop that serves nobody any more.
  struct LoopEnd final : rpc::ServerLoop::Stopped {
    explicit LoopEnd(Loop& ending) noexcept : loop(ending) {}
    void on_stopped() noexcept override { loop.stop(); }
    Loop& loop;
  };

  rpc::ServerShared shared;
  Loop* callers_loop = nullptr;
  bool started = false;
  std::atomic<int> process{0};  // That has started it.
  // Guards starting and the end. Not taken on the server's own loops.
  std::mutex lifecycle;
  std::atomic<bool> stop_wanted{false};
  std::vector<std::unique_ptr<Loop>> own_loops;  // In step with loops, unless on the caller's.
  std::vector<std::unique_ptr<rpc::ServerLoop>> loops;
  std::vector<std::unique_ptr<LoopEnd>> loop_ends;           // In step with own_loops, as is the next.
  std::vector<std::unique_ptr<detail::Posted>> stop_orders;  // Until stop_notified.
  std::atomic<bool> stop_notified{false};
  std::atomic<Duration::rep> stop_grace{forever.count()};  // The least that was asked for.
  std::vector<std::thread> threads;
  std::atomic<std::size_t> threads_serving{0};
  std::unique_ptr<transport::Listener> listener;  // On the first loop.
  std::size_t next_loop = 0;
  std::string address;
  std::optional<CpuLatency> cpu_latency;
  mutable std::mutex counting;  // Guards filling and emptying `loops`, what remains of them, and the next four.
  std::vector<const Loop*> loops_known;  // The server's own, for other threads to compare with; longer than they live.
  bool takes_background = false;
  std::size_t next_background = 0;
  std::vector<std::unique_ptr<detail::BackgroundWork>> before_start;
  ServerCounters ended_counters;
};

}  // namespace hawser
