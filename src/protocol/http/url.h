#pragma once

#include <string>
#include <string_view>

#include "hawser/error.h"

namespace hawser::protocol::http {

// The parts of a URL that a client needs.
struct Url {
  bool secure = false;    // https.
  std::string address;    // "host:port", for Network::connect(). Without a port in the URL it is 80, or 443 for https.
  std::string authority;  // The value of the field Host.
  std::string target;     // Path and query; "/" at least.
};

// Parses "http[s]://host[:port][/path][?query]". Errors: `invalid_argument`.
Result<Url> parse_url(std::string_view text);

}  // namespace hawser::protocol::http
