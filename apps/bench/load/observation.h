#pragma once

#include <memory>

#include "hawser/server.h"

namespace hawser::bench {

// An operator may switch these on: the pages with /metrics, a tracer of failed calls, and a recorder.
class Observation {
 public:
  virtual ~Observation() = default;
  // Begins to read /metrics of the server at this port of TCP every second. Call it once, when the server has started.
  virtual void scrape(const Server& server) = 0;
};

// Enables them on a server that has not started, and HTTP with them. Null if the library was built without the pages.
// Must not outlive the server.
std::unique_ptr<Observation> observe(Server& server);

}  // namespace hawser::bench
