#include "cluster/xds/xds_methods.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <utility>

#include "base/try.h"
#include "cluster/xds/xds_fields.h"
#include "hawser/service_config.h"

namespace hawser::cluster {
namespace {

using protocol::grpc::ProtoField;

constexpr std::size_t keys_most = 16;
// The conditions of retry_on, with the names of the statuses in a service config. Others are ignored, as in gRFC A44.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> retry_conditions = {
    {{"cancelled", "CANCELLED"},
     {"deadline-exceeded", "DEADLINE_EXCEEDED"},
     {"internal", "INTERNAL"},
     {"resource-exhausted", "RESOURCE_EXHAUSTED"},
     {"unavailable", "UNAVAILABLE"}}};

std::vector<std::string_view> statuses_of(std::string_view retry_on) {
  std::vector<std::string_view> statuses;
  for (const auto& [condition, status] : retry_conditions) {
    for (std::size_t at = 0; at <= retry_on.size();) {
      const std::size_t end = std::min(retry_on.find(',', at), retry_on.size());
      std::string_view one = retry_on.substr(at, end - at);
      while (one.starts_with(' ')) one.remove_prefix(1);
      while (one.ends_with(' ')) one.remove_suffix(1);
      at = end + 1;
      if (one != condition) continue;
      statuses.push_back(status);
      break;
    }
  }
  return statuses;
}

// Nothing in it needs an escape in JSON.
bool is_plain(std::string_view name) {
  return std::ranges::all_of(name, [](char c) { return c > ' ' && c < 127 && c != '"' && c != '\\'; });
}

// HashPolicy. Those that are not by a header are ignored, as in gRFC A42.
Result<void> add_key(std::string_view message, std::vector<NamingPolicy::Key>& keys) {
  TRY(const std::string_view header, read_bytes(message, 1));
  TRY(const std::string_view written, read_bytes(header, 1));
  TRY(const std::string_view rewrite, read_bytes(header, 2));
  TRY(const std::uint64_t terminal, read_number(message, 4));
  std::string name = lower_case(written);  // As metadata is.
  if (name.empty() || name.ends_with("-bin")) return {};
  if (!rewrite.empty()) return refuse_resource("hash_policy.header.regex_rewrite is not supported");
  if (keys.size() == keys_most) {
    return refuse_resource("a route has more than " + std::to_string(keys_most) + " hash policies");
  }
  keys.push_back({.metadata = std::move(name), .terminal = terminal != 0});
  return {};
}

// MaxStreamDuration. 0 is without a limit.
Result<std::optional<Duration>> read_call_timeout(std::string_view message) {
  std::optional<Duration> header;
  std::optional<Duration> stream;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number == 1) return assign(stream, read_duration(field.bytes));
    if (field.number == 2) return assign(header, read_duration(field.bytes));
    return {};
  };
  TRY(read_fields(message, visit));
  const std::optional<Duration> timeout = header ? header : stream;
  return timeout == Duration::zero() ? std::nullopt : timeout;
}

std::string quoted_duration(Duration time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  std::string fraction = std::to_string((time - seconds).count());
  fraction.insert(0, 9 - fraction.size(), '0');
  return "\"" + std::to_string(seconds.count()) + "." + fraction + "s\"";
}

std::string config_of(const XdsMethodRoute& route) {
  std::string json = R"({"name":[{)";
  if (route.match.kind != XdsMatch::Kind::all) json += R"("service":")" + route.match.service + "\"";
  if (route.match.kind == XdsMatch::Kind::method) json += R"(,"method":")" + route.match.method + "\"";
  json += "}]";
  if (route.demands.timeout) json += R"(,"timeout":)" + quoted_duration(*route.demands.timeout);
  if (const auto& retry = route.demands.retry; retry && !retry->statuses.empty()) {
    json += R"(,"retryPolicy":{"maxAttempts":)" + std::to_string(retry->attempts) + R"(,"initialBackoff":)" +
            quoted_duration(retry->pause_first) + R"(,"maxBackoff":)" + quoted_duration(retry->pause_max) +
            R"(,"backoffMultiplier":2,"retryableStatusCodes":[)";
    for (std::size_t i = 0; i < retry->statuses.size(); ++i) {
      json += (i == 0 ? "\"" : ",\"") + std::string(retry->statuses[i]) + "\"";
    }
    json += "]}";
  }
  return json + "}";
}

// A route that matches by what is not supported may be left out only if the calls that it takes would get the same.
Result<void> check_other_routes(std::span<const XdsMethodRoute> routes) {
  bool same = true;  // All routes behind `i` and the one at `i` demand the same.
  for (std::size_t i = routes.size() - 1; i-- > 0;) {
    same = same && routes[i].demands == routes.back().demands;
    if (routes[i].match.kind == XdsMatch::Kind::other && !same) {
      return refuse_resource(
          "route " + std::to_string(i) +
          " has demands of its own or precedes such routes, and matches by more than a path '/service/"
          "method' or a prefix '/service/', which is not supported");
    }
    if (routes[i].demands.keys != routes.back().demands.keys) {
      return refuse_resource("route " + std::to_string(i) +
                             " has other hash policies than the route for all methods, which is not supported");
    }
  }
  return {};
}

}  // namespace

Result<XdsRetry> read_retry_policy(std::string_view message) {
  XdsRetry retry;
  std::optional<Duration> pause_max;
  std::uint64_t retries = 1;
  std::string_view back_off;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number == 1) retry.statuses = statuses_of(field.bytes);
    if (field.number == 2) return assign(retries, read_wrapped_number(field.bytes));
    if (field.number == 8) back_off = field.bytes;
    return {};
  };
  TRY(read_fields(message, visit));
  const auto visit_pauses = [&](const ProtoField& field) -> Result<void> {
    if (field.number == 1) return assign(retry.pause_first, read_duration(field.bytes));
    if (field.number == 2) return assign(pause_max, read_duration(field.bytes));
    return {};
  };
  TRY(read_fields(back_off, visit_pauses));
  if (retries == 0) return refuse_resource("retry_policy.num_retries is 0");
  retry.attempts = std::min<std::uint64_t>(retries, 1000) + 1;
  retry.pause_max = pause_max.value_or(retry.pause_first * 10);
  if (retry.pause_first == Duration::zero() || retry.pause_max < retry.pause_first) {
    return refuse_resource("retry_policy.retry_back_off: base_interval is 0, or max_interval is below it");
  }
  return retry;
}

Result<XdsMatch> read_route_match(std::string_view message) {
  using Kind = XdsMatch::Kind;
  XdsMatch match;
  std::optional<std::string_view> prefix;
  std::string_view path;
  bool other = false;
  bool any_case = false;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 1: prefix = field.bytes; break;
      case 2: path = field.bytes; break;
      case 4: {
        TRY(const std::uint64_t sensitive, read_wrapped_number(field.bytes));
        any_case = sensitive == 0;
        break;
      }
      default: other = true; break;
    }
    return {};
  };
  TRY(read_fields(message, visit));
  if (other) return match;
  if (prefix && (prefix->empty() || prefix == "/")) {
    match.kind = Kind::all;
    return match;
  }
  std::string_view name = prefix.value_or(path);
  if (any_case || !name.starts_with('/') || !is_plain(name)) return match;
  name.remove_prefix(1);
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos || slash == 0 || name.find('/', slash + 1) != std::string_view::npos)
    return match;
  match.service = name.substr(0, slash);
  match.method = name.substr(slash + 1);
  if (prefix.has_value() == match.method.empty()) match.kind = prefix ? Kind::service : Kind::method;
  return match;
}

Result<XdsDemands> read_route_demands(std::string_view action, const std::optional<XdsRetry>& retry) {
  XdsDemands demands{.retry = retry};
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number == 9) return assign(demands.retry, read_retry_policy(field.bytes));
    if (field.number == 15) return add_key(field.bytes, demands.keys);
    if (field.number == 36) return assign(demands.timeout, read_call_timeout(field.bytes));
    return {};
  };
  TRY(read_fields(action, visit));
  if (demands.retry && demands.retry->statuses.empty()) demands.retry.reset();
  return demands;
}

Result<std::string> service_config_of(std::span<const XdsMethodRoute> routes) {
  TRY(check_other_routes(routes));
  const bool demanding = std::ranges::any_of(
      routes, [](const XdsMethodRoute& route) { return route.demands.timeout || route.demands.retry; });
  if (!demanding) return std::string();
  std::set<std::string> matched;  // Services and methods that an earlier route matches.
  std::string json = R"({"methodConfig":[)";
  for (const XdsMethodRoute& route : routes) {
    const XdsMatch& match = route.match;
    if (match.kind == XdsMatch::Kind::other || matched.contains(match.service + "/")) continue;
    const bool all = match.kind == XdsMatch::Kind::all;
    if (!all && !matched.insert(match.service + "/" + match.method).second) continue;
    json += (json.ends_with('[') ? "" : ",") + config_of(route);
  }
  json += "]}";
  if (const auto read = ServiceConfig::parse(json); !read) {
    return refuse_resource("the routes have too many demands: " + read.error().text);
  }
  return json;
}

}  // namespace hawser::cluster
