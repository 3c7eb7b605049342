#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

#include "base/random.h"
#include "hawser/hawser.h"
#include "transport/sim/sim_network.h"

namespace hawser::simulation {

// What kind of trouble a run has.
struct Profile {
  std::string_view name;
  bool faults = false;      // Resets, silent deaths, refused connections.
  bool limits = false;      // Limits so small that they are hit.
  bool restarts = false;    // Servers stop and come back.
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

// All that is drawn before a run.
struct Plan {
  Profile profile;
  transport::SimOptions network;
  ServerOptions server;
  ClientOptions client;
  PoolOptions pool;
  unsigned clients = 1;
  unsigned pools = 0;
  unsigned calls = 20;         // Of each client.
  unsigned calls_at_once = 8;  // Of each client.
  unsigned servers = 1;        // One after the other.
};

Plan draw_plan(const Profile& profile, Random& random);

// Whether `text`, of an `overloaded`, names a limit that the plan made so small that it can be hit.
bool names_small_limit(const Plan& plan, std::string_view text);

// Mostly small, some out of band, some placed, few large.
std::uint32_t draw_size(Random& random);

}  // namespace hawser::simulation
