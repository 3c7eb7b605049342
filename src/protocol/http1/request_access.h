#pragma once

#include <memory>

#include "hawser/http.h"
#include "protocol/http1/http_session.h"

namespace hawser {

struct HttpRequest::State {
  detail::ActiveCall& call;
  http1::KeptHead head;
  std::string_view pattern;
};

namespace http1 {

// Makes the requests that handlers of routes receive.
struct RequestAccess {
  // `call` and `pattern` outlive the request.
  static HttpRequest make(detail::ActiveCall& call, KeptHead head, std::string_view pattern) {
    return HttpRequest(std::unique_ptr<HttpRequest::State>(new HttpRequest::State{call, std::move(head), pattern}));
  }
};

}  // namespace http1
}  // namespace hawser
