#include "hawser/connection_age.h"

#include <stdexcept>
#include <string>
#include <string_view>

#include "rpc/server/inspector.h"
#include "rpc/server/live_options.h"
#include "rpc/server/server_state.h"

namespace hawser {
namespace {

void check_age(std::string_view name, Duration value) {
  if (value > Duration::zero()) return;
  throw std::invalid_argument("hawser: ConnectionAge::" + std::string(name) + " is " + rpc::option_text(value) +
                              ", and must be positive; `forever` removes the limit");
}

}  // namespace

void bound_connection_age(Server& server, const ConnectionAge& age) {
  check_age("max", age.max);
  check_age("grace", age.grace);
  rpc::Inspector::bound_age(server, age);
}

namespace rpc {

void Inspector::bound_age(Server& server, const ConnectionAge& age) { server.state_->shared.age = age; }

}  // namespace rpc
}  // namespace hawser
