#pragma once

#include "hawser/time.h"

// How old the connections of a server may become. Not part of hawser.h.
//
//   hawser::Server server(options);
//   hawser::bound_connection_age(server, {.max = 1h, .grace = 5min});
namespace hawser {

class Server;

struct ConnectionAge {
  // At this age, a connection of any protocol asks its client to connect again, as in a hand-over (HandoverOptions says
  // how): no call of a ClientPool fails. It ends when its calls have ended. Each connection has a bound of its own,
  // between 90 and 110 per cent of this, so that connections that began together do not end together.
  Duration max = forever;
  // So long after that it ends in any case, and its calls end as when a connection breaks. `forever`: its calls go on,
  // and so does the connection of a client that does not obey.
  Duration grace = forever;
};

// Certificates, tokens and addresses are verified when a connection begins: this bounds how long that holds. It also
// spreads connections over servers that came later. Call it before Server::run() or start(). Throws
// std::invalid_argument if a value is not positive.
void bound_connection_age(Server& server, const ConnectionAge& age);

}  // namespace hawser
