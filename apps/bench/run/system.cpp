#include "bench/run/system.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/baseline/baseline_client.h"
#include "bench/baseline/baseline_server.h"
#include "bench/load/client_role.h"
#include "bench/load/events.h"
#include "bench/load/server_role.h"
#include "bench/load/threads_role.h"
#include "bench/load/transport_choice.h"

namespace hawser::bench {

System hawser_system() {
  return {.name = "hawser",
          .serve =
              [](const RunOptions& options, const Cell& cell, int descriptor) {
                const EventWriter events(descriptor);
                const auto notify = [&](const Event& event) { events.write(event); };
                return play_server(options, cell.transport, cell.wait, listen_address(cell.transport), notify) ? 0 : 1;
              },
          .measure =
              [](const RunOptions& options, const std::string& address, pid_t server, const std::vector<Cell>& cells,
                 int descriptor) {
                const EventWriter events(descriptor);
                const bool played = cells.front().mode == Mode::threads
                                        ? play_threads(options, address, server, cells, ThreadsShare::client, events)
                                        : play_client(options, address, cells, events);
                return played ? 0 : 1;
              }};
}

System loops_system() {
  System system = hawser_system();
  system.name = "loops";
  system.measure = [](const RunOptions& options, const std::string& address, pid_t server,
                      const std::vector<Cell>& cells, int descriptor) {
    const EventWriter events(descriptor);
    return play_threads(options, address, server, cells, ThreadsShare::nothing, events) ? 0 : 1;
  };
  return system;
}

std::string missing_loops(const RunOptions& options) {
  for (const Mode mode : options.modes) {
    if (mode != Mode::threads) return "loops are compared in one mode only: give --mode threads";
  }
  return {};
}

System observed_system() {
  System system = hawser_system();
  system.name = "observed";
  system.serve = [serve = system.serve](const RunOptions& options, const Cell& cell, int descriptor) {
    RunOptions with = options;
    with.observed = true;
    return serve(with, cell, descriptor);
  };
  return system;
}

System baseline_system() {
  return {.name = "baseline",
          .serve = [](const RunOptions&, const Cell& cell,
                      int descriptor) { return play_baseline_server(cell, EventWriter(descriptor)) ? 0 : 1; },
          .measure =
              [](const RunOptions& options, const std::string& address, pid_t server, const std::vector<Cell>& cells,
                 int descriptor) {
                return play_baseline_client(options, address, server, cells, EventWriter(descriptor)) ? 0 : 1;
              }};
}

std::string missing_baseline(const RunOptions& options) {
  if (std::ranges::find(options.modes, Mode::threads) != options.modes.end()) {
    return "the baseline has no threads: give --mode pipeline or connections, or --peers grpc,loops";
  }
  for (const std::string& transport : options.transports) {
    if (transport != "tcp" && transport != "unix" && transport != "tls" && transport != "shm") {
      return fmt::format("there is no baseline over {}: give --transport tcp, unix, tls or shm", transport);
    }
    if (transport == "shm" && std::ranges::find(options.waits, Wait::event) != options.waits.end()) {
      return "the baseline of shm never sleeps: give --wait spin or busy_poll";
    }
  }
  return {};
}

}  // namespace hawser::bench
