#pragma once

#include <cstdint>
#include <string_view>

#include "hawser/error.h"
#include "hawser/naming_routes.h"

// Which calls a route of a control plane matches. A match that is malformed fails with the text for the control plane.
namespace hawser::cluster {

struct XdsMatch {
  enum class Kind : std::uint8_t {
    calls,        // The calls of `match`.
    nothing,      // It is ignored, as in gRPC.
    unsupported,  // By what is not supported.
  };
  Kind kind = Kind::calls;
  NamingRoutes::Match match = {};

  bool matches_all() const noexcept;
};
// RouteMatch.
Result<XdsMatch> read_route_match(std::string_view message);

}  // namespace hawser::cluster
