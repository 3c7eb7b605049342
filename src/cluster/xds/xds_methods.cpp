#include "cluster/xds/xds_methods.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "base/try.h"
#include "cluster/status_name.h"
#include "cluster/xds/xds_fields.h"

namespace hawser::cluster {
namespace {

using protocol::grpc::ProtoField;

constexpr std::size_t keys_most = 16;
constexpr std::uint64_t attempts_most = 5;  // As in a service config.
// The conditions of retry_on, with the names of the statuses. Others are ignored, as in gRFC A44.
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

MethodConfig config_of(const XdsDemands& demands) {
  MethodConfig config{.timeout = demands.timeout};
  if (!demands.retry) return config;
  RetryPolicy policy{.attempts_max = static_cast<unsigned>(std::min(demands.retry->attempts, attempts_most)),
                     .backoff_first = demands.retry->pause_first,
                     .backoff_max = demands.retry->pause_max,
                     .codes = {}};
  for (const std::string_view name : demands.retry->statuses) {
    const StatusName* const status = status_named(name);
    policy.codes.insert(policy.codes.end(), status->codes.begin(), status->codes.end());
    policy.application_codes.push_back(status->number);
  }
  config.retry = std::move(policy);
  return config;
}

}  // namespace hawser::cluster
