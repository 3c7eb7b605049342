#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "hawser/error.h"

// The health of a server, as a whole and by service. /health, grpc.health.v1.Health (hawser/grpc_health.h) and `hawser
// health` report it.
//
//   hawser::ServerHealth health(server);
//   health.add({.name = "database", .check = [] { return ping_database(); }});
//   health.set("", false);   // Before a stop: load balancers choose another server, and calls go on.
namespace hawser {

class Server;
namespace rpc {
class HealthState;
}

// A check of the application. Called on the loops of the server, on several of them at once: it must not block.
struct HealthReporter {
  std::string name;
  std::function<Result<void>()> check;
  std::string service = {};  // The service that needs it. Empty: the whole server.
};

enum class HealthStatus : std::uint8_t {
  serving,
  not_serving,
  unknown,  // The server has no health of that service.
};

// A value: copies refer to the same server, and may outlive it. Any thread.
//
// The empty name stands for the whole server, which serves at first. A service that was named by set() or by a reporter
// serves if the whole server does, if it was not set to false, and if its reporters succeed. Nothing serves once a stop
// of the server was requested.
class ServerHealth {
 public:
  explicit ServerHealth(Server& server);

  // Takes a service, or the whole server, out of service, or back. Notifies those who watch it.
  void set(std::string service, bool serving) const;
  // Adds a check. Those who watch learn its result within a second.
  void add(HealthReporter reporter) const;
  // Calls the reporters of the service and of the whole server. On a loop, unless they may be called elsewhere.
  HealthStatus status(std::string_view service = {}) const;

 private:
  std::shared_ptr<rpc::HealthState> state_;
};

// The method by which `hawser health` asks a server over the library's own protocol (ServerOptions::describe). True if
// the service serves; invalid_argument if the server has no health of it.
Result<bool> is_serving(std::string_view service);

}  // namespace hawser
