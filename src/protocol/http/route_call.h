#pragma once

#include "hawser/detail/reply_sink.h"
#include "hawser/http.h"
#include "protocol/http/kept_head.h"
#include "protocol/http/route_responder.h"
#include "protocol/http/routes.h"

namespace hawser::protocol::http {

// Runs a route's handler as a call, which can be cancelled and has a deadline, with the interceptors of the server
// around it. `pattern` is the route's path if it has parameters. `form` is that of a body that is coded.
detail::Serving serve_route(RouteResponder& responder, const Route& route, std::string_view pattern,
                            detail::IncomingRequest request, KeptHead head, rpc::BodyForm form);

}  // namespace hawser::protocol::http
