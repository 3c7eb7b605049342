#pragma once

#include <cstdint>
#include <memory>

#include "hawser/log.h"
#include "hawser/loop.h"

namespace hawser {

namespace transport {
class Network;
}

struct RuntimeOptions {
  // Receives what concerns the runtime and no single loop. Called by any thread.
  LogSink log = stderr_log();
  // Of the loops that loop_options() is for.
  LoopOptions loop = {};
};

// Each figure is right; together they may be off by what happens meanwhile.
struct RuntimeCounters {
  std::uint64_t transports = 0;  // In use now. Clients and servers with equal options share one.
  // Transports that were made although one of the same name was in use, because an option differs: each opens the
  // device, and registers memory, again.
  std::uint64_t transports_not_shared = 0;
};

// Owns what clients and servers of a process share: open transports with their devices and registered memory, the
// resolver, the log. Clients, servers and pools use the runtime of their options, else that of their loop
// (LoopOptions::runtime), else process_default(). They keep what they use: a Runtime may be destroyed before them.
// Thread-safe.
class Runtime : public std::enable_shared_from_this<Runtime> {
 public:
  static std::shared_ptr<Runtime> make(RuntimeOptions options = {});
  // The runtime of those who name none. It is made at its first use and is never destroyed, so that clients and servers
  // in static variables may outlive everything else; transports in it end with their last user. A child of fork() gets
  // one of its own, since devices and threads of the parent are of no use to it.
  static std::shared_ptr<Runtime> process_default();

  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  RuntimeCounters counters() const;
  // RuntimeOptions::loop, with this runtime: for sync_wait(task, options), ServerOptions::loop, or Loop.
  LoopOptions loop_options();

  // For the library.
  const std::shared_ptr<transport::Network>& network() const noexcept { return network_; }

 private:
  explicit Runtime(RuntimeOptions options);

  const LoopOptions loop_;
  const std::shared_ptr<transport::Network> network_;
};

}  // namespace hawser
