#pragma once

#include <atomic>
#include <cstdint>
#include <stop_token>

#include "hawser/detail/receive_account.h"
#include "hawser/server.h"
#include "rpc/server/dispatcher.h"
#include "rpc/server/receive_peers.h"
#include "rpc/session/limited_log.h"

namespace hawser::rpc {

// Counters of one loop. Its thread writes them, and any thread reads them.
struct LoopCounters {
  class Counter {
   public:
    void add(std::int64_t difference) noexcept {
      value_.store(value_.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(difference),
                   std::memory_order_relaxed);
    }
    std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

   private:
    std::atomic<std::uint64_t> value_{0};
  };
  Counter accepted;
  Counter open;
  Counter refused;
  Counter handshakes_failed;
  Counter calls;
  Counter calls_refused;
  Counter protocol_errors;
  Counter transports_declined;
  Counter memory_refusals;
  Counter slow_peers;
};

// State that the sessions of one loop share, of whatever protocol they are. Outlives them. Loop's thread only.
struct PortHost {
  Loop& loop;
  const Dispatcher& dispatcher;
  const ServerOptions& options;
  detail::ReceiveBudget budget;               // The budget of this loop.
  std::atomic<std::size_t>& calls_in_flight;  // Calls of the whole server that are not answered in place.
  ReceivePeers receive_peers = {};            // find(Stream::peer()) returns the record of a peer's memory.
  LoopCounters counters = {};
  LimitedLog log = {};             // For lines that peers cause.
  std::stop_source stopping = {};  // Stopped when the server begins to stop.
  bool serving = false;            // True while a handler has been called and has not returned or suspended.
};

}  // namespace hawser::rpc
