#pragma once

#include "events.h"

namespace hawser::bench {

// Sends back what comes on bare sockets, until it is killed. False if it could not.
bool play_bare_server(Wait wait, const EventWriter& events);

}  // namespace hawser::bench
