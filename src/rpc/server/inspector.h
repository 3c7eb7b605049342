#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "hawser/change_option.h"
#include "hawser/connection_age.h"
#include "hawser/log.h"
#include "hawser/metrics.h"
#include "hawser/server.h"
#include "rpc/port/connection_report.h"
#include "rpc/port/method_counters.h"

namespace hawser::rpc {

class HealthState;

struct LoopReport;

// The counters of a method, summed over the loops.
struct MethodReport : MethodValues<std::uint64_t> {
  std::string_view name = {};  // Lives as long as the server.
  std::array<std::uint64_t, MethodCounters::codes> by_code = {};
  std::uint64_t calls = 0;  // Calls that have ended.
  std::uint64_t errors = 0;

  // Adds what one loop has counted.
  void add(const MethodCounters& loop) noexcept;
  void add(const MethodReport& other) noexcept;
};

// A call in flight.
struct CallReport {
  std::size_t loop = 0;
  std::size_t slot = 0;  // The connection, as in ConnectionReport.
  std::uint64_t serial = 0;
  std::uint32_t call = 0;
  std::string_view method;  // Lives as long as the server.
  std::string peer;
  std::string_view protocol;
  Duration age{};
  std::optional<Duration> left = {};  // Until its deadline.
  std::string_view waits_for;
};

// Shows pages what a server does. The functions that return a Task are awaited on a loop of the server: they ask the
// other loops, a bounded part in each tick, and wait at most wait_max for the answer of one.
struct Inspector {
  static constexpr Duration wait_max = std::chrono::milliseconds(500);

  // ---- Any thread, while the server exists ----
  // As the program gave them.
  static const ServerOptions& options(const Server& server);
  static std::vector<std::string> protocols(const Server& server);
  // The names of the enabled transports beside the stream.
  static std::vector<std::string> transports(const Server& server);
  static bool stopping(const Server& server);
  static const std::shared_ptr<HealthState>& health(const Server& server);
  // True if the server runs on a loop of the caller's, which may outlive it.
  static bool on_callers_loop(const Server& server);
  static std::size_t methods(const Server& server);
  // The methods, in no order. They live as long as the server.
  static std::vector<const detail::ServedMethod*> served_methods(const Server& server);
  // The counters of each loop. They live as long as the server.
  static std::vector<const MethodTable*> tables(const Server& server);
  // `index` is below methods(). Methods are in the order of their registration.
  static MethodReport method(const Server& server, const std::vector<const MethodTable*>& tables, std::size_t index);
  static HistogramSnapshot latency(const std::vector<const MethodTable*>& tables, std::size_t index);
  // Empty before the start and after the end.
  static std::vector<LoopReport> loops(const Server& server);

  // With the values of change_option().
  static ServerOptions current_options(const Server& server);
  static Result<void> change_option(Server& server, std::string_view name, std::string_view value, std::string_view by);
  static void add_option(Server& server, OwnOption option);
  static std::vector<OptionState> changeable_options(const Server& server);
  // A line of the component "audit", by the log of the server's first loop.
  static void audit(const Server& server, std::string_view line);

  // ---- Before the start
  static void bound_age(Server& server, const ConnectionAge& age);

  // ---- Any thread but those of the server, which must have loops of its own ----
  // Copies of the sockets at which the server listens. Empty if it does not listen any more.
  static std::vector<Descriptor> copy_listening(Server& server);
  // Closes the listening sockets, which another process has too, and asks the clients to connect again. Returns when
  // all of them know, after `limit`, or when the server stops. Requests that arrive until then are served.
  static void leave(Server& server, Duration limit);
  static LogSink log(const Server& server);

  // ---- On a loop of the server ----
  // Waits until each loop has taken the changes that were made before. Returns the loops that have not.
  static Task<std::vector<std::size_t>> options_taken(const Server& server, Loop& here);
  struct Position {
    std::size_t loop = 0;
    std::size_t slot = 0;
  };
  struct Connections {
    std::vector<ConnectionReport> rows;
    std::optional<Position> next = {};  // The begin of the next part; empty if this is the last.
    std::vector<std::size_t> silent;    // Loops that did not answer: something blocks them.
  };
  // At most `limit` connections from `from` on.
  static Task<Connections> connections(const Server& server, Loop& here, Position from, std::size_t limit);
  struct Calls {
    std::vector<CallReport> rows;
    std::size_t all = 0;
    std::vector<std::size_t> silent;
  };
  // The `limit` calls that are in flight for the longest time, the oldest first.
  static Task<Calls> calls(const Server& server, Loop& here, std::size_t limit);
  // Requests a call to stop. False if it is not in flight.
  static Task<bool> cancel(const Server& server, Loop& here, CallReport call);
};

}  // namespace hawser::rpc
