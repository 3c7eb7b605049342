#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/naming.h"

namespace hawser::cluster {

// Returns why the endpoint may not be in a list; empty if it may. Bytes of the endpoint are escaped in the reason.
std::string why_invalid(const Endpoint& endpoint);

// Parses "host:port", then attributes "key=value", between which stands `separator` (one or more).
Result<Endpoint> parse_endpoint(std::string_view text, char separator);

// Parses endpoints that commas separate, with attributes behind semicolons.
Result<std::vector<Endpoint>> parse_endpoint_list(std::string_view text);

// Parses one endpoint a line, with attributes behind blanks. An error names the line.
Result<std::vector<Endpoint>> parse_endpoint_lines(std::string_view text);

}  // namespace hawser::cluster
