#include "hawser/service_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <utility>

#include "base/ascii_case.h"
#include "base/escaped_text.h"
#include "base/try.h"
#include "cluster/json_value.h"
#include "cluster/remote_duration.h"
#include "cluster/status_name.h"

namespace hawser {
namespace {

using cluster::JsonValue;
using cluster::StatusName;

constexpr std::size_t shown_name_bytes_max = 128;  // Limit of a name that an error repeats.
constexpr unsigned attempts_max_of_grpc = 5;       // Higher numbers of attempts count as this one (gRFC A6).

std::optional<Balancing> balancing_named(std::string_view name) {
  if (name == "round_robin") return Balancing::round_robin;
  if (name == "pick_first") return Balancing::pick_first;
  if (name == "weighted_round_robin") return Balancing::weighted_round_robin;
  if (name == "least_request_experimental") return Balancing::least_request;
  if (name == "ring_hash_experimental") return Balancing::ring_hash;
  if (name == "hawser_p2c") return Balancing::p2c;
  if (name == "hawser_random") return Balancing::random;
  if (name == "hawser_maglev") return Balancing::maglev;
  return std::nullopt;
}

std::unexpected<Error> bad_field(const std::string& path, const std::string& rule) {
  return fail(ErrorCode::invalid_argument, "service config: " + path + " " + rule);
}

std::string shown_name(std::string_view name) {
  std::string shown = "\"";
  append_escaped(shown, name, shown_name_bytes_max);
  return shown + '"';
}

// "1.5s", as Protocol Buffers write a Duration in JSON. At most nine digits behind the point.
std::optional<Duration> duration_of(std::string_view text) {
  if (!text.ends_with('s')) return std::nullopt;
  text.remove_suffix(1);
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string_view fraction = text.substr(point == text.size() ? point : point + 1);
  std::uint64_t seconds = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + point, seconds);
  if (status != std::errc() || end != text.data() + point || fraction.size() > 9) {
    return std::nullopt;
  }
  std::uint64_t nanoseconds = 0;
  if (point != text.size()) {
    const auto [stop, problem] = std::from_chars(fraction.data(), fraction.data() + fraction.size(), nanoseconds);
    if (problem != std::errc() || stop != fraction.data() + fraction.size()) return std::nullopt;
    for (std::size_t i = fraction.size(); i < 9; ++i) nanoseconds *= 10;
  }
  return cluster::remote_duration(seconds, nanoseconds);
}

}  // namespace

// Reads and checks the fields of one service config.
class ServiceConfigReader {
 public:
  Result<ServiceConfig> read(const JsonValue& whole) {
    if (whole.kind != JsonValue::Kind::object) return bad_field("the text", "must be an object");
    if (const JsonValue* const methods = whole.find("methodConfig")) {
      TRY(each(*methods, "methodConfig",
               [this](const JsonValue& one, const std::string& path) { return read_method(one, path); }));
    }
    TRY(read_balancing(whole));
    if (const JsonValue* const throttling = whole.find("retryThrottling")) {
      RetryThrottling read;
      TRY(read_number(*throttling, "retryThrottling", "maxTokens", read.tokens_max));
      TRY(read_number(*throttling, "retryThrottling", "tokenRatio", read.tokens_per_success));
      if (!(read.tokens_max > 0 && read.tokens_max <= 1000)) {
        return bad_field("retryThrottling.maxTokens", "must be above 0 and at most 1000");
      }
      if (!(read.tokens_per_success > 0)) return bad_field("retryThrottling.tokenRatio", "must be above 0");
      config_.throttling_ = read;
    }
    return std::move(config_);
  }

 private:
  template <class Function>
  static Result<void> each(const JsonValue& list, const std::string& path, Function function) {
    if (list.kind != JsonValue::Kind::list) return bad_field(path, "must be a list");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      TRY(function(list.items[i], path + "[" + std::to_string(i) + "]"));
    }
    return {};
  }

  Result<void> read_method(const JsonValue& from, const std::string& path) {
    if (from.kind != JsonValue::Kind::object) return bad_field(path, "must be an object");
    MethodConfig method;
    TRY(read_time(from, path, "timeout", method.timeout));
    if (const JsonValue* const wait = from.find("waitForReady")) {
      if (wait->kind != JsonValue::Kind::boolean) return bad_field(path + ".waitForReady", "must be true or false");
      method.wait_for_ready = wait->text == "true";
    }
    const JsonValue* const retry = from.find("retryPolicy");
    const JsonValue* const hedging = from.find("hedgingPolicy");
    if (retry != nullptr && hedging != nullptr) {
      return bad_field(path, "must have retryPolicy or hedgingPolicy, and not both");
    }
    if (retry != nullptr) TRY(read_retry(*retry, path + ".retryPolicy", method));
    if (hedging != nullptr) TRY(read_hedging(*hedging, path + ".hedgingPolicy", method));
    const std::size_t index = config_.methods_.size();
    config_.methods_.push_back(std::move(method));
    const JsonValue* const names = from.find("name");
    if (names == nullptr) return bad_field(path + ".name", "is missing");
    return each(*names, path + ".name",
                [&](const JsonValue& name, const std::string& place) { return read_name(name, place, index); });
  }

  Result<void> read_name(const JsonValue& from, const std::string& path, std::size_t index) {
    TRY(const std::string service, text(from, path, "service"));
    TRY(const std::string method, text(from, path, "method"));
    if (service.empty() && !method.empty()) return bad_field(path + ".method", "needs a service");
    const std::string key = service.empty() ? std::string() : service + "/" + method;
    if (config_.names_.size() == ServiceConfig::names_max) return bad_field(path, "is one name more than 10,000");
    if (!config_.names_.emplace(key, index).second) return bad_field(path, "repeats the name " + shown_name(key));
    return {};
  }

  static Result<std::string> text(const JsonValue& object, const std::string& path, std::string_view name) {
    const JsonValue* const value = object.find(name);
    if (value == nullptr) return std::string();
    if (value->kind != JsonValue::Kind::text) return bad_field(path + "." + std::string(name), "must be a text");
    return value->text;
  }

  static Result<void> read_time(const JsonValue& object, const std::string& path, std::string_view name,
                                std::optional<Duration>& out) {
    const JsonValue* const value = object.find(name);
    if (value == nullptr) return {};
    out = value->kind == JsonValue::Kind::text ? duration_of(value->text) : std::nullopt;
    if (!out) return bad_field(path + "." + std::string(name), "must be a time such as \"1.5s\", and not negative");
    return {};
  }

  static Result<void> read_number(const JsonValue& object, const std::string& path, std::string_view name,
                                  double& out) {
    const JsonValue* const value = object.find(name);
    if (value == nullptr) return bad_field(path + "." + std::string(name), "is missing");
    if (value->kind != JsonValue::Kind::number) return bad_field(path + "." + std::string(name), "must be a number");
    out = value->number;
    return {};
  }

  static Result<unsigned> attempts_of(const JsonValue& policy, const std::string& path) {
    double number = 0;
    TRY(read_number(policy, path, "maxAttempts", number));
    if (!(number >= 2 && std::floor(number) == number)) {
      return bad_field(path + ".maxAttempts", "must be a whole number of at least 2");
    }
    return static_cast<unsigned>(std::min<double>(number, attempts_max_of_grpc));
  }

  static Result<void> read_statuses(const JsonValue& policy, const std::string& path, std::string_view field,
                                    RetryPolicy& out) {
    out.codes.clear();
    const JsonValue* const list = policy.find(field);
    if (list == nullptr) return {};
    return each(*list, path + "." + std::string(field), [&out](const JsonValue& one, const std::string& place) {
      const StatusName* const status = one.kind == JsonValue::Kind::text ? cluster::status_named(one.text) : nullptr;
      if (status == nullptr) {
        return Result<void>(bad_field(place, "must be the name of a status, such as \"UNAVAILABLE\""));
      }
      if (std::ranges::find(out.application_codes, status->number) != out.application_codes.end())
        return Result<void>();
      out.codes.insert(out.codes.end(), status->codes.begin(), status->codes.end());
      out.application_codes.push_back(status->number);
      return Result<void>();
    });
  }

  static Result<void> read_retry(const JsonValue& from, const std::string& path, MethodConfig& method) {
    RetryPolicy policy;
    TRY(const unsigned attempts, attempts_of(from, path));
    policy.attempts_max = attempts;
    std::optional<Duration> first;
    std::optional<Duration> most;
    TRY(read_time(from, path, "initialBackoff", first));
    TRY(read_time(from, path, "maxBackoff", most));
    TRY(read_number(from, path, "backoffMultiplier", policy.backoff_factor));
    if (!first || *first == Duration::zero()) return bad_field(path + ".initialBackoff", "must be above 0");
    if (!most || *most == Duration::zero()) return bad_field(path + ".maxBackoff", "must be above 0");
    if (!(policy.backoff_factor > 0)) return bad_field(path + ".backoffMultiplier", "must be above 0");
    policy.backoff_first = *first;
    policy.backoff_max = *most;
    TRY(read_statuses(from, path, "retryableStatusCodes", policy));
    if (policy.application_codes.empty()) return bad_field(path + ".retryableStatusCodes", "must have a status");
    method.retry = std::move(policy);
    return {};
  }

  // gRPC executes copies of any method that has this policy. Here a call needs CallOptions::idempotent, too.
  static Result<void> read_hedging(const JsonValue& from, const std::string& path, MethodConfig& method) {
    HedgeOptions hedging;
    TRY(const unsigned attempts, attempts_of(from, path));
    hedging.attempts_max = attempts;
    hedging.delay = Duration::zero();
    TRY(read_time(from, path, "hedgingDelay", hedging.delay));
    hedging.budget = attempts - 1;  // retryThrottling limits the copies.
    RetryPolicy policy;
    policy.attempts_max = 1;
    TRY(read_statuses(from, path, "nonFatalStatusCodes", policy));
    method.hedging = hedging;
    method.retry = std::move(policy);
    return {};
  }

  Result<void> read_balancing(const JsonValue& whole) {
    const JsonValue* const list = whole.find("loadBalancingConfig");
    if (list == nullptr) {
      TRY(std::string name, text(whole, "the service config", "loadBalancingPolicy"));
      if (name.empty()) return {};
      config_.balancing_ = balancing_named(in_lower_case(name));
      if (!config_.balancing_) return bad_field("loadBalancingPolicy", "is not known: " + shown_name(name));
      return {};
    }
    TRY(each(*list, "loadBalancingConfig", [this](const JsonValue& one, const std::string& path) {
      if (one.kind != JsonValue::Kind::object || one.names.size() != 1) {
        return Result<void>(bad_field(path, "must be an object with one member, the name of a policy"));
      }
      if (!config_.balancing_) config_.balancing_ = balancing_named(one.names.front());
      return Result<void>();
    }));
    if (!config_.balancing_ && !list->items.empty()) {
      return bad_field("loadBalancingConfig", "has no policy that is known here");
    }
    return {};
  }

  ServiceConfig config_;
};

Result<ServiceConfig> ServiceConfig::parse(std::string_view json) {
  if (json.size() > bytes_max) return bad_field("the text", "must have at most 1 MiB");
  auto whole = cluster::read_json(json);
  if (!whole) return bad_field("the text", "is malformed: " + whole.error().text);
  return ServiceConfigReader().read(*whole);
}

Result<ServiceConfig> ServiceConfig::read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(bytes_max + 1, '\0');
  if (!file) return bad_field(path, "cannot be opened");
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return bad_field(path, "cannot be read");
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse(text);
}

const MethodConfig* ServiceConfig::find(std::string_view method) const {
  if (names_.empty()) return nullptr;
  const auto of = [this](std::string_view name) {
    const auto known = names_.find(name);
    return known == names_.end() ? nullptr : &methods_[known->second];
  };
  std::size_t slash = method.rfind('/');
  std::size_t next = slash + 1;
  if (slash == std::string_view::npos) {
    slash = method.rfind("::");
    next = slash + 2;
  }
  if (slash != std::string_view::npos) {
    const std::string service = std::string(method.substr(0, slash)) + "/";
    if (const MethodConfig* const found = of(service + std::string(method.substr(next)))) return found;
    if (const MethodConfig* const found = of(service)) return found;
  }
  return of("");
}

}  // namespace hawser
