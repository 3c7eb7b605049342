#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"

namespace hawser::transport {

// The domains in which a name is looked for that is not a full one: resolv.conf(5), "search", "domain" and "ndots".
// c-ares reads them too, but version 1.34 does not return them, and its own search ends at the first SERVFAIL.
struct SearchDomains {
  std::vector<std::string> domains;  // In the order of the search.
  std::size_t dots_min = 1;          // A name with so many dots is asked for without a domain first.
};

// The environment variables that replace the domains and add options, as in the C library. Null if not set.
struct SearchVariables {
  const char* local_domain = nullptr;  // LOCALDOMAIN
  const char* res_options = nullptr;   // RES_OPTIONS
};

// Returns the domains of a resolv.conf with this text. The last line that has a value for "search" or "domain" is
// valid. Without one, the domain of `host`, the name of this machine, is.
SearchDomains search_domains_of(std::string_view text, const SearchVariables& variables, std::string_view host);

// The same for the file `path`, which may be absent, and for the variables and the name of this machine. Fails with
// `unavailable` if the file cannot be read now.
Result<SearchDomains> read_search_domains(const std::string& path);

}  // namespace hawser::transport
