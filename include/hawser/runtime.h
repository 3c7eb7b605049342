#pragma once

#include <cstdint>
#include <memory>

#include "hawser/log.h"
#include "hawser/loop.h"

namespace hawser {

namespace transport {
class Network;
struct NetworkAccess;
}  // namespace transport

struct RuntimeOptions {
  // Receives messages that concern the runtime and no single loop. Called by any thread.
  LogSink log = stderr_log();
  // Base of the options that loop_options() returns.
  LoopOptions loop = {};
};

// Each value is correct, but the values are not read at one instant and may not agree with each other.
struct RuntimeCounters {
  std::uint64_t transports = 0;  // Transports in use. Clients and servers with equal options share one.
  // Transports that were created although one of the same name was in use, because an option differs. Each opens the
  // device and registers memory separately.
  std::uint64_t transports_not_shared = 0;
};

// Owns the resources that clients and servers of a process share: open transports with their devices and registered
// memory, the resolver, the log. Clients, servers and pools use the runtime of their options, else the runtime of their
// loop (LoopOptions::runtime), else process_default(). They keep the parts that they use, so a Runtime may be destroyed
// before them. Thread-safe.
class Runtime : public std::enable_shared_from_this<Runtime> {
 public:
  static std::shared_ptr<Runtime> make(RuntimeOptions options = {});
  // The runtime of clients and servers that name none. It is created at its first use and never destroyed, so that
  // clients and servers in static variables may use it until the process ends. A transport in it ends with its last
  // user. A child of fork() gets a new one, because it cannot use the parent's devices and threads.
  static std::shared_ptr<Runtime> process_default();

  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  RuntimeCounters counters() const;
  // Returns RuntimeOptions::loop with this runtime: for sync_wait(task, options), ServerOptions::loop, or Loop.
  LoopOptions loop_options();

  // For the library: the network over which clients and servers of this runtime meet.
  const std::shared_ptr<transport::Network>& network() const noexcept { return network_; }

 private:
  friend struct transport::NetworkAccess;
  explicit Runtime(RuntimeOptions options);
  Runtime(RuntimeOptions options, std::shared_ptr<transport::Network> network);

  const LoopOptions loop_;
  const std::shared_ptr<transport::Network> network_;
};

}  // namespace hawser
