#pragma once

#include <string>
#include <vector>

#include "cell.h"
#include "events.h"
#include "options.h"

namespace hawser::bench {

// How long a cell's warm-up goes on at most until every call in flight has had a reply.
inline constexpr double warm_up_s_max = 15;
inline constexpr double connect_s_max = 10;

// Measures `cells`, all with the same way of waiting, against the server at `address`, and tells of each. True if the
// server was there to the end; errors within cells are the cells'.
bool play_client(const Options& options, const std::string& address, const std::vector<Cell>& cells,
                 const EventWriter& events);

}  // namespace hawser::bench
