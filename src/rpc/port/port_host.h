#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <stop_token>

#include "base/owned_counter.h"
#include "hawser/detail/receive_account.h"
#include "hawser/server.h"
#include "hawser/server_counters.h"
#include "rpc/port/call_cancelling.h"
#include "rpc/port/conversion_memory.h"
#include "rpc/port/memory_queue.h"
#include "rpc/port/method_counters.h"
#include "rpc/server/dispatcher.h"
#include "rpc/server/receive_peers.h"
#include "rpc/session/interceptor_chain.h"
#include "rpc/session/limited_log.h"
#include "table/slot_table.h"

namespace hawser::rpc {

class HealthState;
class HttpStreamService;
class PortSession;

using ServerInterceptors = InterceptorList<IncomingCall>;

// Counters of one loop. Its thread writes them, and any thread reads them. The server itself has calls_in_flight and
// receive_bytes.
struct LoopCounters : ServerCountersOf<OwnedCounter> {
  using Counter = OwnedCounter;
  Counter unsent_bytes;  // The part of ReceiveBudget::used() that waits to be sent.
  // Connections that were opened, by protocol: the library's own, then those of the server in their order. The last
  // counts all further ones.
  std::array<Counter, 8> opened;
  void count_opened(std::size_t protocol) noexcept { opened[std::min(protocol, opened.size() - 1)].add(1); }
};

// The sessions of one loop, so that they can be visited in parts, with other work in between.
using SessionTable = table::SlotTable<PortSession*>;

// State that the sessions of one loop share, of whatever protocol they are. Outlives them. Loop's thread only.
struct PortHost {
  Loop& loop;
  const Dispatcher& dispatcher;
  const ServerOptions& options;
  detail::ReceiveBudget budget;  // The budget of this loop.
  const ServerInterceptors& interceptors;
  std::atomic<std::size_t>& calls_in_flight;  // Calls of the whole server that are not answered in place.
  MethodTable& methods;                       // The counters of this loop.
  const HealthState& health;
  SessionTable sessions = {};
  ReceivePeers receive_peers = {};  // find(Stream::peer()) returns the record of a peer's memory.
  LoopCounters counters = {};
  LimitedLog log = {};             // For lines that peers cause.
  std::stop_source stopping = {};  // Stopped when the server begins to stop.
  bool serving = false;            // True while a handler has been called and has not returned or suspended.
  unsigned stopping_tokens = 0;    // Number of StopsTokens.
  CallCancelling cancelling{loop};
  ConversionMemory conversion_memory{loop};
  MemoryQueue memory_queue{loop};
  Time unpacked_tick{};                     // The tick in which the loop decompressed bodies last.
  std::size_t unpacked_bytes = 0;           // So many bytes of them.
  const HttpStreamService* http = nullptr;  // Serves HTTP on the streams of HTTP/2. Null: it is not enabled.
};

// Exists while a function stops tokens: their callbacks run any code, but must not destroy the server.
class StopsTokens {
 public:
  explicit StopsTokens(PortHost& host) noexcept : host_(host) { ++host_.stopping_tokens; }
  StopsTokens(const StopsTokens&) = delete;
  StopsTokens& operator=(const StopsTokens&) = delete;
  ~StopsTokens() { --host_.stopping_tokens; }

 private:
  PortHost& host_;
};

}  // namespace hawser::rpc
