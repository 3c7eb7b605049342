#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hawser/scope.h"
#include "hawser/server.h"
#include "os/cpu_latency.h"
#include "rpc/server/schema_service.h"
#include "rpc/server/server_loop.h"

namespace hawser {

// The implementation of Server: its loops, threads and listener.
struct Server::State final : transport::AcceptSink {
  State(std::shared_ptr<transport::Network> network, ServerOptions options)
      : shared{.options = std::move(options),
               .network = std::move(network),
               .methods = {},
               .transports = {},
               .dispatcher = {},
               .interceptors = {},
               .protocols = {},
               .connections = 0,
               .calls_in_flight = 0} {}

  // Returns true in a child, by fork(), of the process that started the server.
  bool in_child() const noexcept;
  // True if the threads of the server have ended with the parent of this process, as after daemon().
  bool orphaned() const noexcept;
  static constexpr std::string_view orphan_text =
      "a Server is used after daemon(), or by a child process whose parent has ended: the threads that served ended "
      "with the parent. Call daemon() or fork() before Server::start()";
  // Ends the process with a message if it uses such a server.
  void refuse_orphan() const noexcept;
  // Returns true if this thread runs one of the server's loops, or executes offloaded work of one.
  bool owns(const Loop* loop) const noexcept;
  bool on_own_loop() const noexcept;
  bool offloaded() const noexcept;
  TransportOptions& transports();
  Result<void> start();
  Result<void> run();
  void stop(Duration grace);
  Task<void> shut_down(Duration grace);
  Result<void> spawn(std::unique_ptr<detail::BackgroundWork> work);
  // Passes the background work that was spawned before the start to the loops.
  void begin_background();
  std::vector<Loop*> list_loops() const;
  ServerCounters counters() const;
  ServerCounters sum() const;
  // The log of the first loop. Any thread.
  LogSink log_sink() const;
  // See hawser::change_option(). Any thread.
  Result<void> change_option(std::string_view name, std::string_view value, std::string_view by);

  Result<void> begin();
  Result<void> start_threads();
  void serve(std::size_t index);
  // Notifies the first loop, which notifies the others, to stop within the shortest grace that was requested. Allocates
  // nothing the first time.
  void notify_loops(Duration grace) noexcept;
  // Run on the first loop. Accepts some of what waits in the kernel; true if more may wait.
  bool accept_waiting() noexcept;
  // Closes the listener, and notifies the other loops.
  void stop_accepting() noexcept;
  void log_stop(Duration grace) noexcept;
  void log_stopped(const Loop& loop) const noexcept;
  // Waits for the threads and releases their resources. Call it with `lifecycle` locked.
  void end_loops();
  Result<void> hold_latency();
  Result<void> listen();
  void accepted(std::unique_ptr<transport::Stream> stream) override;
  // See rpc::Inspector. Not on the server's loops.
  std::vector<Descriptor> copy_listening();
  void leave(Duration limit);

  // The work that stop() posts to a loop. start() makes one for each loop, because stopping must not fail when memory
  // is exhausted.
  struct StopOrder;
  // The part of the server on one loop has stopped.
  struct LoopEnd final : rpc::ServerLoop::Stopped {
    explicit LoopEnd(State& server) noexcept : state(server) {}
    void on_stopped() noexcept override { state.parts_stopped(1); }
    State& state;
  };
  // So many loops need no other loop any more. The loops end together: until then, each executes what connections and
  // background work of the others post to it.
  void parts_stopped(std::size_t count) noexcept;

  rpc::ServerShared shared;
  rpc::SchemaService schema{shared.dispatcher, *shared.health};
  Loop* callers_loop = nullptr;
  bool started = false;
  bool intercepted = false;     // The handlers of all methods are InterceptedHandlers.
  std::atomic<int> process{0};  // The process that started the server.
  // Guards the start and the end. Never locked on the server's own loops.
  std::mutex lifecycle;
  std::atomic<bool> stop_wanted{false};
  std::vector<std::unique_ptr<Loop>> own_loops;  // Same indices as `loops`; empty on the caller's loop.
  std::vector<std::unique_ptr<rpc::ServerLoop>> loops;
  std::vector<std::unique_ptr<LoopEnd>> loop_ends;           // Same indices as own_loops, like the next member.
  std::vector<std::unique_ptr<detail::Posted>> stop_orders;  // Null once they are posted.
  std::atomic<bool> stop_notified{false};
  std::atomic<Duration::rep> stop_grace{forever.count()};  // The shortest grace that was requested.
  std::vector<std::thread> threads;
  std::atomic<std::size_t> threads_serving{0};
  std::atomic<std::size_t> parts_left{0};         // Own loops whose part of the server has not stopped.
  std::unique_ptr<transport::Listener> listener;  // Runs on the first loop.
  std::size_t next_loop = 0;
  std::string address;
  std::optional<CpuLatency> cpu_latency;
  mutable std::mutex counting;  // Guards changes of `loops`, the counters of ended loops, and the next four members.
  std::vector<const Loop*> loops_known;  // Own loops, for other threads to compare with. The entries outlive the loops.
  bool takes_background = false;
  std::size_t next_background = 0;
  std::vector<std::unique_ptr<detail::BackgroundWork>> before_start;
  ServerCounters ended_counters;
};

}  // namespace hawser
