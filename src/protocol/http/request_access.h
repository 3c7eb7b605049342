#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "hawser/http.h"
#include "hawser/interceptor.h"
#include "protocol/http/kept_head.h"

namespace hawser {

struct HttpRequest::State {
  detail::ActiveCall& call;
  protocol::http::KeptHead head;
  std::string_view pattern;
  std::optional<Identity> identity = {};  // As an interceptor has set it.
  bool changed = false;                   // Interceptors have replaced the metadata.
  Buffer metadata = {};                   // The metadata then. `head` refers to it.
  std::deque<std::string> joined = {};    // Values that header() has joined.
};

namespace protocol::http {

// Makes the requests that handlers of routes receive.
struct RequestAccess {
  // `call` and `pattern` outlive the request.
  static HttpRequest make(detail::ActiveCall& call, KeptHead head, std::string_view pattern) {
    return HttpRequest(std::unique_ptr<HttpRequest::State>(new HttpRequest::State{call, std::move(head), pattern}));
  }
  // Makes what the interceptors have changed visible to the handler.
  static void apply(HttpRequest& request, const IncomingCall& info);
};

}  // namespace protocol::http
}  // namespace hawser
