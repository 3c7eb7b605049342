#include "hawser/health.h"

#include <utility>

#include "rpc/port/health_state.h"
#include "rpc/server/inspector.h"

namespace hawser {

ServerHealth::ServerHealth(Server& server) : state_(rpc::Inspector::health(server)) {}

void ServerHealth::set(std::string service, bool serving) const { state_->set(std::move(service), serving); }

void ServerHealth::add(HealthReporter reporter) const { state_->add(std::move(reporter)); }

HealthStatus ServerHealth::status(std::string_view service) const { return state_->status(service); }

}  // namespace hawser
