#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "hawser/time.h"

// Which connection ends when all places are used and another one waits. No I/O and no clock.
namespace hawser::block::nbd {

// A connection, as the choice sees it.
struct ConnectionPlace {
  std::string_view client;  // NbdPeer::client().
  Duration idle = {};       // Since it was used.
};

// Who keeps a place.
struct PlaceRules {
  std::size_t kept_per_client = 16;             // Connections that a client always keeps.
  Duration idle_min = std::chrono::seconds(5);  // A connection that was used within this time is not ended.
};

// The number of the connection to end: of the client that has the most connections, if they are more than
// kept_per_client, the one that has been idle the longest. Nothing if there is no such client, or all of its
// connections are used.
std::optional<std::size_t> place_to_free(std::span<const ConnectionPlace> places, const PlaceRules& rules);

}  // namespace hawser::block::nbd
