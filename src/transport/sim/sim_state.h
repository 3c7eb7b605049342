#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "hawser/bytes.h"
#include "hawser/time.h"
#include "transport/sim/sim_network.h"

namespace hawser::transport {

class SimLink;
class SimListener;
class SimStream;

// Kinds of events in the trace.
enum class SimEvent : std::uint8_t {
  connect,
  refuse,
  accept,
  send,
  receive,
  sendable,
  finish,
  end,
  reset,
  vanish,
  destroy
};

// State that the parts of one simulated network share. It lives as long as any of them.
struct SimState {
  SimState(std::uint64_t seed, const SimOptions& with) : options(with), random(seed) {}

  void record(Time when, std::uint64_t connection, SimEvent event, std::uint64_t number, Bytes bytes = {}) noexcept;
  Duration between(Duration least, Duration most) noexcept {
    return least +
           Duration(static_cast<Duration::rep>(random.below(static_cast<std::uint64_t>((most - least).count()) + 1)));
  }
  // Returns whether a partition keeps what `from` sends from `to`.
  bool separated(std::string_view from, std::string_view to) const;
  // Returns whether `from` cannot connect to `to`.
  bool unreachable(std::string_view from, std::string_view to) const {
    // An attempt to connect needs both directions.
    return separated(from, to) || separated(to, from) || powered_off.contains(to);
  }
  Duration delay() noexcept { return between(options.delay_min, options.delay_max); }

  SimOptions options;
  Random random;
  std::uint64_t trace = 0xcbf29ce484222325U;
  std::uint64_t events = 0;
  std::uint64_t connections = 0;
  std::size_t streams = 0;
  std::uint16_t next_port = 20'000;
  std::map<std::string, SimListener*, std::less<>> listeners;
  std::set<std::pair<std::string, std::string>> partitions;  // From and to; empty: every host.
  std::set<std::string, std::less<>> powered_off;
  std::vector<SimLink*> links;  // Links that have at least one end.

  // The client's end of a transport that the server has selected, found by the link's id.
  struct UnclaimedConnection {
    std::shared_ptr<SimLink> link;
    std::unique_ptr<SimStream> stream;
    ~UnclaimedConnection();
    UnclaimedConnection(std::shared_ptr<SimLink> over, std::unique_ptr<SimStream> end) noexcept;
    UnclaimedConnection(UnclaimedConnection&&) noexcept;
  };
  std::map<std::uint64_t, UnclaimedConnection> unclaimed_connections;
  std::size_t transport_packet_bytes = 4096;  // Packet size of connections that are made from now on.
};

}  // namespace hawser::transport
