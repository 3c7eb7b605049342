#include "cluster/xds/xds_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "base/try.h"
#include "cluster/xds/xds_fields.h"

namespace hawser::cluster {
namespace {

using protocol::grpc::ProtoField;

constexpr unsigned choices_most = 10;                                        // More count as this number (gRFC A48).
constexpr std::uint64_t ring_size_most = 8'388'608;                          // Limit of what is accepted (gRFC A42).
constexpr std::uint64_t ring_points_used_most = 4096;                        // More count as this number.
constexpr Duration outlier_interval_least = std::chrono::milliseconds(100);  // Each interval costs work for the list.
constexpr Duration load_interval_least = std::chrono::milliseconds(100);     // As gRFC A58 has it.
constexpr unsigned policy_depth_most = 16;  // Levels of policies within policies (gRFC A52).
constexpr std::string_view typed_policies = "envoy.extensions.load_balancing_policies.";

// UInt32Value or UInt64Value of a field; `absent` if the field is absent.
Result<std::uint64_t> read_wrapped(std::string_view message, unsigned number, std::uint64_t absent) {
  std::uint64_t value = absent;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number != number) return {};
    return assign(value, read_wrapped_number(field.bytes));
  };
  TRY(read_fields(message, visit));
  return value;
}

// FloatValue. 0 if it is absent.
Result<double> read_wrapped_float(std::string_view message) {
  TRY(const std::string_view bytes, read_bytes(message, 1));
  if (bytes.empty()) return 0;
  if (bytes.size() != sizeof(float)) return refuse_resource("a FloatValue is malformed");
  std::uint32_t bits = 0;
  for (std::size_t i = sizeof bits; i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(bytes[i]);
  return std::bit_cast<float>(bits);
}

// LeastRequestLbConfig, or LeastRequest.
Result<void> set_least_request(std::string_view config, NamingPolicy& policy) {
  TRY(const std::uint64_t choices, read_wrapped(config, 1, policy.choices));
  if (choices < 2) return refuse_resource("choice_count of the least request policy is below 2");
  policy.balancing = Balancing::least_request;
  policy.choices = static_cast<unsigned>(std::min<std::uint64_t>(choices, choices_most));
  return {};
}

// The fields of one of the two messages for a ring.
struct RingFields {
  unsigned function = 0;
  std::uint64_t functions = 0;  // Numbers of hash functions below this are XX_HASH.
  unsigned size_min = 0;
  unsigned size_max = 0;
};
constexpr RingFields ring_of_cluster = {.function = 3, .functions = 1, .size_min = 1, .size_max = 4};
constexpr RingFields ring_of_policy = {.function = 1, .functions = 2, .size_min = 2, .size_max = 3};

Result<void> set_ring(std::string_view config, const RingFields& fields, NamingPolicy& policy) {
  TRY(const std::uint64_t function, read_number(config, fields.function));
  if (function >= fields.functions) return refuse_resource("the hash function of the ring is not XX_HASH");
  TRY(const std::uint64_t least, read_wrapped(config, fields.size_min, policy.ring_points_min));
  TRY(const std::uint64_t most, read_wrapped(config, fields.size_max, ring_size_most));
  if (least > most || most > ring_size_most || most == 0) {
    return refuse_resource("minimum_ring_size (" + std::to_string(least) + ") is above maximum_ring_size (" +
                           std::to_string(most) + "), or this is not from 1 to " + std::to_string(ring_size_most));
  }
  policy.balancing = Balancing::ring_hash;
  policy.ring_points_min = std::clamp<std::uint64_t>(least, 1, ring_points_used_most);
  policy.ring_points_max = std::min(most, ring_points_used_most);
  return {};
}

// ClientSideWeightedRoundRobin (gRFC A58). Intervals that are too short or too long are cut.
Result<LoadWeightOptions> read_load_weights(std::string_view message) {
  LoadWeightOptions weights;
  bool out_of_band = false;
  Duration interval = std::chrono::seconds(10);
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 1: {
        TRY(const std::uint64_t asks, read_wrapped_number(field.bytes));
        out_of_band = asks != 0;
        return {};
      }
      case 2: return assign(interval, read_duration(field.bytes));
      case 3: return assign(weights.blackout, read_duration(field.bytes));
      case 4: return assign(weights.expiry, read_duration(field.bytes));
      case 5: return assign(weights.update, read_duration(field.bytes));
      case 6: return assign(weights.error_penalty, read_wrapped_float(field.bytes));
      default: return {};
    }
  };
  TRY(read_fields(message, visit));
  if (!(weights.error_penalty >= 0) || !std::isfinite(weights.error_penalty)) {
    return refuse_resource("error_utilization_penalty of the weighted round robin policy is below 0, or not a number");
  }
  weights.update = std::max(weights.update, load_interval_least);
  weights.expiry = std::max(weights.expiry, load_interval_least);
  if (out_of_band) weights.out_of_band = std::clamp<Duration>(interval, load_interval_least, std::chrono::hours(24));
  return weights;
}

// LoadBalancingPolicy: the first policy that is known. False: there is none. `weighs`: a policy around it demands that
// the weights of localities count.
Result<bool> set_typed_policy(std::string_view list, unsigned depth, bool weighs, NamingPolicy& policy);

Result<bool> set_one_policy(const XdsAny& config, unsigned depth, bool weighs, NamingPolicy& policy) {
  if (!config.type.starts_with(typed_policies)) return false;
  const std::string_view name = config.type.substr(typed_policies.size());
  if (name == "wrr_locality.v3.WrrLocality") {
    TRY(const std::string_view inner, read_bytes(config.value, 1));
    return set_typed_policy(inner, depth + 1, true, policy);
  }
  if (name == "least_request.v3.LeastRequest") {
    TRY(set_least_request(config.value, policy));
  } else if (name == "ring_hash.v3.RingHash") {
    TRY(set_ring(config.value, ring_of_policy, policy));
  } else if (name == "round_robin.v3.RoundRobin") {
    policy.balancing = weighs ? Balancing::weighted_round_robin : Balancing::round_robin;
  } else if (name == "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin") {
    policy.balancing = Balancing::weighted_round_robin;
    TRY(policy.load_weights, read_load_weights(config.value));
  } else if (name == "pick_first.v3.PickFirst") {
    policy.balancing = Balancing::pick_first;
  } else if (name == "random.v3.Random") {
    policy.balancing = Balancing::random;
  } else if (name == "maglev.v3.Maglev") {
    policy.balancing = Balancing::maglev;
  } else {
    return false;
  }
  return true;
}

Result<bool> set_typed_policy(std::string_view list, unsigned depth, bool weighs, NamingPolicy& policy) {
  if (depth > policy_depth_most) {
    return refuse_resource("load_balancing_policy has more than " + std::to_string(policy_depth_most) + " levels");
  }
  bool found = false;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number != 1 || found) return {};
    TRY(const std::string_view extension, read_bytes(field.bytes, 4));
    TRY(const std::string_view any, read_bytes(extension, 2));
    TRY(const XdsAny config, read_any(any));
    return assign(found, set_one_policy(config, depth, weighs, policy));
  };
  TRY(read_fields(list, visit));
  return found;
}

// Cluster.LbPolicy.
Result<void> set_policy_by_number(std::string_view cluster, NamingPolicy& policy) {
  TRY(const std::uint64_t number, read_number(cluster, 6));
  switch (number) {
    case 0: policy.balancing = Balancing::weighted_round_robin; return {};
    case 1: {
      TRY(const std::string_view config, read_bytes(cluster, 37));
      return set_least_request(config, policy);
    }
    case 2: {
      TRY(const std::string_view config, read_bytes(cluster, 23));
      return set_ring(config, ring_of_cluster, policy);
    }
    case 3: policy.balancing = Balancing::random; return {};
    case 5: policy.balancing = Balancing::maglev; return {};
    default:
      return refuse_resource("lb_policy " + std::to_string(number) +
                             " is not supported: use ROUND_ROBIN, LEAST_REQUEST, RING_HASH, RANDOM or MAGLEV");
  }
}

Result<void> set_part(std::string_view wrapped, const char* name, double& part) {
  TRY(const std::uint64_t percent, read_wrapped_number(wrapped));
  if (percent > 100) return refuse_resource("outlier_detection." + std::string(name) + " is above 100");
  part = static_cast<double>(percent) / 100;
  return {};
}

Result<void> set_count(std::string_view wrapped, std::uint32_t& count) {
  TRY(const std::uint64_t number, read_wrapped_number(wrapped));
  count = static_cast<std::uint32_t>(std::min<std::uint64_t>(number, std::numeric_limits<std::uint32_t>::max()));
  return {};
}

// OutlierDetection. Its rules for failures in a row are those of Envoy, and are ignored as in gRFC A50.
Result<OutlierOptions> read_outliers(std::string_view message) {
  OutlierOptions outliers;
  outliers.failure_enforced = 0;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 2: return assign(outliers.interval, read_duration(field.bytes));
      case 3: return assign(outliers.base_time, read_duration(field.bytes));
      case 4: return set_part(field.bytes, "max_ejection_percent", outliers.excluded_max);
      case 6: return set_part(field.bytes, "enforcing_success_rate", outliers.success_rate_enforced);
      case 7: return assign(outliers.endpoints_min, read_wrapped_number(field.bytes));
      case 8: return set_count(field.bytes, outliers.success_rate_calls_min);
      case 9: {
        TRY(const std::uint64_t thousandths, read_wrapped_number(field.bytes));
        outliers.success_rate_deviations = static_cast<double>(thousandths) / 1000;
        return {};
      }
      case 16: return set_part(field.bytes, "failure_percentage_threshold", outliers.failure_part);
      case 17: return set_part(field.bytes, "enforcing_failure_percentage", outliers.failure_enforced);
      case 19: return assign(outliers.failure_endpoints_min, read_wrapped_number(field.bytes));
      case 20: return set_count(field.bytes, outliers.failure_calls_min);
      case 21: return assign(outliers.time_max, read_duration(field.bytes));
      default: return {};
    }
  };
  TRY(read_fields(message, visit));
  outliers.interval = std::max(outliers.interval, outlier_interval_least);
  return outliers;
}

// CircuitBreakers: max_requests of the priority DEFAULT.
Result<std::optional<std::uint32_t>> read_calls_max(std::string_view message) {
  bool found = false;
  std::optional<std::uint32_t> most;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number != 1 || found) return {};
    TRY(const std::uint64_t priority, read_number(field.bytes, 1));
    if (priority != 0) return {};
    found = true;
    constexpr std::uint64_t absent = std::numeric_limits<std::uint64_t>::max();
    TRY(const std::uint64_t number, read_wrapped(field.bytes, 4, absent));
    if (number != absent) {
      most = static_cast<std::uint32_t>(std::min<std::uint64_t>(number, std::numeric_limits<std::uint32_t>::max()));
    }
    return {};
  };
  TRY(read_fields(message, visit));
  return most;
}

// FractionalPercent.
Result<double> read_percentage(std::string_view message) {
  TRY(const std::uint64_t numerator, read_number(message, 1));
  TRY(const std::uint64_t denominator, read_number(message, 2));
  const double whole = denominator == 0 ? 100 : denominator == 1 ? 10'000 : 1'000'000;
  return std::min(1.0, static_cast<double>(numerator) / whole);
}

}  // namespace

Result<NamingPolicy> read_cluster_policy(std::string_view message) {
  NamingPolicy policy;
  bool typed = false;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 10: return assign(policy.calls_max, read_calls_max(field.bytes));
      case 19: return assign(policy.outliers, read_outliers(field.bytes));
      case 41: {
        typed = true;
        TRY(const bool known, set_typed_policy(field.bytes, 0, false, policy));
        if (!known) return refuse_resource("load_balancing_policy has no policy that is supported");
        return {};
      }
      default: return {};
    }
  };
  TRY(read_fields(message, visit));
  if (!typed) TRY(set_policy_by_number(message, policy));
  return policy;
}

Result<double> read_dropped_part(std::string_view message) {
  TRY(const std::string_view policy, read_bytes(message, 4));
  double kept = 1;  // Each of several categories drops a part of what the earlier ones keep.
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number != 2) return {};
    TRY(const std::string_view percentage, read_bytes(field.bytes, 2));
    TRY(const double part, read_percentage(percentage));
    kept *= 1 - part;
    return {};
  };
  TRY(read_fields(policy, visit));
  return 1 - kept;
}

}  // namespace hawser::cluster
