#include "cluster/consul/consul_name.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/escaped_text.h"
#include "base/try.h"

namespace hawser::cluster {
namespace {

constexpr std::size_t name_bytes_max = 1024;
constexpr std::size_t shown_name_bytes_max = 80;

// These parameters decide which instances are listed. `index` and `wait` belong to the requests, and `token` to a file.
constexpr std::string_view parameters_known[] = {"cached", "consistent", "dc",      "filter", "near",
                                                 "ns",     "partition",  "passing", "stale",  "tag"};

std::unexpected<Error> bad_name(std::string_view target, std::string_view why) {
  std::string text = "'";
  append_escaped(text, target, shown_name_bytes_max);
  return fail(ErrorCode::invalid_argument, (text += "' is not a service of Consul: ") += why);
}

// Bytes that a path or a query may have, and '%' of those that are encoded.
bool is_part_of_url(std::string_view text) noexcept {
  return std::ranges::all_of(text, [](char one) {
    return (one >= '0' && one <= '9') || (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') ||
           std::string_view("-._~%!$'()*+,;:@=").contains(one);
  });
}

Result<std::string> read_parameters(std::string_view target, std::string_view written) {
  std::string query;
  while (!written.empty()) {
    const std::string_view one = written.substr(0, written.find('&'));
    written.remove_prefix(std::min(one.size() + 1, written.size()));
    const std::string_view key = one.substr(0, one.find('='));
    if (std::ranges::find(parameters_known, key) == std::end(parameters_known)) {
      return bad_name(target,
                      "the parameters are cached, consistent, dc, filter, near, ns, partition, passing, stale and tag, "
                      "as in Consul's /v1/health/service");
    }
    (query += '&') += one;
  }
  return query;
}

}  // namespace

Result<ConsulName> parse_consul_name(std::string_view target) {
  const std::size_t mark = target.find('?');
  const std::string_view path = target.substr(0, mark);
  const std::size_t slash = path.find('/');
  ConsulName name;
  if (slash != std::string_view::npos) name.agent = path.substr(0, slash);
  name.service = slash == std::string_view::npos ? path : path.substr(slash + 1);
  if (name.service.ends_with('/')) name.service.pop_back();
  const std::string_view written = mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
  const bool bracketed = name.agent.starts_with('[');
  if (name.service.empty() || target.size() > name_bytes_max || name.service == "." || name.service == ".." ||
      !is_part_of_url(name.service) || !std::ranges::all_of(written, [](char one) {
        return one == '&' || one == '/' || one == '?' || is_part_of_url({&one, 1});
      })) {
    return bad_name(target, "write consul://agent:port/service?tag=a, percent-encoded, of at most 1024 bytes");
  }
  if (slash == std::string_view::npos && name.service.contains(':')) {
    return bad_name(target, "it has no '/' between the agent and the service: write consul://agent:port/service");
  }
  if (!name.agent.empty() &&
      (!name.agent.contains(bracketed ? "]:" : ":") || name.agent.contains('@') || name.agent.contains('%'))) {
    return bad_name(target, "the agent must be host:port; tokens are read from ConsulOptions::token_file");
  }
  TRY(name.query, read_parameters(target, written));
  return name;
}

}  // namespace hawser::cluster
