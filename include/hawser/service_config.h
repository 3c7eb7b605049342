#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hawser/balancing.h"
#include "hawser/error.h"
#include "hawser/hedging.h"
#include "hawser/retry.h"
#include "hawser/time.h"

// Options of calls by gRPC's JSON (grpc/service_config/service_config.proto), so that those who run a service set them
// for all its clients. docs/clusters.md has the fields.
namespace hawser {

// A member of methodConfig.
struct MethodConfig {
  std::optional<Duration> timeout = {};  // The shorter one of this and the timeout of a call counts.
  // A call waits until its deadline for an endpoint that can be reached. Otherwise it fails at once if there is none.
  bool wait_for_ready = false;
  std::optional<RetryPolicy> retry = {};  // In place of ClusterOptions::retry.
  // In place of ClusterOptions::hedging. `retry` has the statuses that are not fatal for copies then.
  std::optional<HedgeOptions> hedging = {};
};

struct RetryThrottling {
  double tokens_max = 100;
  double tokens_per_success = 0.1;
};

class ServiceConfig {
 public:
  static constexpr std::size_t bytes_max = std::size_t{1} << 20;
  static constexpr std::size_t names_max = 10'000;  // Names of methods and services.

  // Fails with `invalid_argument`; the text names the field, such as "methodConfig[0].retryPolicy.maxAttempts". Fields
  // that are not known are ignored, as gRPC does.
  static Result<ServiceConfig> parse(std::string_view json);
  // Reads a file once. Fails with `invalid_argument`, too.
  static Result<ServiceConfig> read_file(const std::string& path);

  // The configuration of a method of that name: that of the method, or of its service, or of all. Null: none.
  // "shop.Cart" is the service of "shop.Cart/Add", and "shop::Cart" that of the function "shop::Cart::add".
  const MethodConfig* find(std::string_view method) const;
  // The first policy of loadBalancingConfig that is known.
  std::optional<Balancing> balancing() const noexcept { return balancing_; }
  std::optional<RetryThrottling> retry_throttling() const noexcept { return throttling_; }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::vector<MethodConfig> methods_;
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> names_;  // "Service/Method", "Service/", "".
  std::optional<Balancing> balancing_;
  std::optional<RetryThrottling> throttling_;
  friend class ServiceConfigReader;
};

}  // namespace hawser
