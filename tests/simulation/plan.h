#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

#include "base/random.h"
#include "hawser/hawser.h"
#include "transport/sim/sim_network.h"

namespace hawser::simulation {

// Kinds of faults and loads of a run.
struct Profile {
  std::string_view name;
  bool faults = false;      // Resets, silent deaths, refused connections.
  bool limits = false;      // Limits that are small enough to be reached.
  bool restarts = false;    // Servers stop and start again.
  bool drops = false;       // Callers cancel, drop awaiters, close and destroy clients.
  bool slow = false;        // Small buffers, short sends and receives, slow readers.
  bool transports = false;  // Messages go beside the streams, where that works; transports break, fall silent, can't
                            // be had.
};
inline void PrintTo(const Profile& profile, std::ostream* out) { *out << profile.name; }

inline constexpr Profile profiles[] = {
    {.name = "calm"},
    {.name = "slow", .slow = true},
    {.name = "faults", .faults = true},
    {.name = "limits", .limits = true, .slow = true},
    {.name = "drops", .drops = true},
    {.name = "restarts", .restarts = true},
    {.name = "paths", .transports = true},
    {.name = "everything_on_transports",
     .faults = true,
     .limits = true,
     .restarts = true,
     .drops = true,
     .slow = true,
     .transports = true},
    {.name = "everything", .faults = true, .limits = true, .restarts = true, .drops = true, .slow = true},
};

// All random choices that are made before a run.
struct Plan {
  Profile profile;
  transport::SimOptions network;
  ServerOptions server;
  ClientOptions client;
  PoolOptions pool;
  unsigned clients = 1;
  unsigned pools = 0;
  unsigned calls = 20;         // Per client.
  unsigned calls_at_once = 8;  // Per client.
  unsigned servers = 1;        // Servers run one after the other.
};

Plan draw_plan(const Profile& profile, Random& random);

// Returns whether `text`, of an error `overloaded`, names a limit that the plan made small enough to be reached.
bool names_small_limit(const Plan& plan, std::string_view text);

// Returns a random size: mostly small, some sent out of band, some received into a receive buffer, few large.
std::uint32_t draw_size(Random& random);

}  // namespace hawser::simulation
