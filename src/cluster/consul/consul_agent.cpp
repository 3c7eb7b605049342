#include "cluster/consul/consul_agent.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/escaped_text.h"
#include "base/try.h"
#include "cluster/bounded_file.h"
#include "hawser/tls.h"

namespace hawser::cluster {
namespace {

constexpr std::size_t consul_reason_bytes_max = 300;
constexpr std::string_view socket_scheme = "unix://";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

HttpClientOptions http_options(const ConsulOptions& options) {
  HttpClientOptions http;
  http.connect_timeout = options.connect_timeout;
  http.request_timeout = options.request_timeout;
  http.body_bytes_max = options.message_bytes_max;
  http.security = options.security;
  return http;
}

std::string server_of(const ConsulName& name, const ConsulOptions& options) {
  if (!name.agent.empty()) return (options.security == nullptr ? "http://" : "https://") + name.agent;
  return options.agent.starts_with(socket_scheme) ? "http://localhost" : options.agent;
}

std::string address_of(const ConsulName& name, const ConsulOptions& options) {
  if (!name.agent.empty() || !options.agent.starts_with(socket_scheme)) return {};
  return "unix:" + options.agent.substr(socket_scheme.size());
}

std::uint64_t index_of(const HttpClientResponse& response) noexcept {
  const std::string_view written = response.header("X-Consul-Index").value_or("");
  std::uint64_t index = 0;
  const char* const end = written.data() + written.size();
  const auto [stop, status] = std::from_chars(written.data(), end, index);
  return status == std::errc() && stop == end ? index : 0;
}

Error refusal_of(const HttpClientResponse& response) {
  std::string text = "the agent has refused with " + std::to_string(response.status) + ": ";
  std::string_view reason = response.body;
  while (reason.ends_with('\n')) reason.remove_suffix(1);
  if (reason.empty()) text += "it gives no reason";
  append_escaped(text, reason, consul_reason_bytes_max);
  if (response.status == 401 || response.status == 403) text += "; its token needs service:read and node:read";
  return Error::of_call(Initiator::peer, ErrorCode::unavailable, std::move(text));
}

}  // namespace

Result<ConsulOptions> complete_consul_options(ConsulOptions options) {
  const auto within = [](Duration time, Duration shortest, Duration longest) {
    return time >= shortest && time <= longest;
  };
  constexpr Duration hour = std::chrono::hours(1);
  constexpr Duration shortest = std::chrono::milliseconds(1);
  if (!within(options.wait_time, std::chrono::seconds(1), std::chrono::minutes(10)) ||
      !within(options.request_timeout, shortest, hour) || !within(options.retry_interval, shortest, hour) ||
      !within(options.retry_max, shortest, hour)) {
    return fail(ErrorCode::invalid_argument,
                "ConsulOptions: wait_time must be from 1 s to 10 min, request_timeout, retry_interval and retry_max "
                "from 1 ms to 1 h");
  }
  if (options.agent.empty()) options.agent = variable("CONSUL_HTTP_ADDR");
  if (options.agent.empty()) options.agent = "127.0.0.1:8500";
  if (options.token_file.empty()) options.token_file = variable("CONSUL_HTTP_TOKEN_FILE");
  if (!options.agent.contains("://")) {
    const bool secure = options.security != nullptr || variable("CONSUL_HTTP_SSL") == "true";
    options.agent.insert(0, secure ? "https://" : "http://");
  }
  const auto begins = [&](std::string_view scheme) { return options.agent.starts_with(scheme); };
  if (!begins("http://") && !begins("https://") && !begins(socket_scheme)) {
    return fail(ErrorCode::invalid_argument,
                "ConsulOptions::agent or CONSUL_HTTP_ADDR must begin with http://, https:// or unix://");
  }
  while (options.agent.ends_with('/')) options.agent.pop_back();
  if (options.security == nullptr && begins("https://")) options.security = TlsClient();
  return options;
}

ConsulAgent::ConsulAgent(Loop& loop, const ConsulName& name, const ConsulOptions& options)
    : loop_(loop),
      options_(options),
      server_(server_of(name, options_)),
      address_(address_of(name, options_)),
      path_("/v1/health/service/" + name.service +
            "?wait=" + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(options_.wait_time).count()) +
            "s" + name.query),
      client_(loop, http_options(options_)) {}

Task<Result<ConsulAnswer>> ConsulAgent::ask(std::uint64_t index) {
  std::string token = variable("CONSUL_HTTP_TOKEN");
  if (!options_.token_file.empty()) {
    CO_TRY(Result<std::string> read,
           co_await loop_.offload([path = options_.token_file] { return read_token_file(path); }));
    CO_TRY(token, std::move(read));
  }
  HttpClientRequest request;
  request.url = server_ + path_;
  request.address = address_;
  request.gzip = true;
  if (index != 0) {
    request.url += "&index=" + std::to_string(index);
    // The agent adds up to a sixteenth by chance.
    request.timeout = options_.wait_time + options_.wait_time / 16 + options_.request_timeout;
  }
  if (!token.empty()) request.headers.emplace_back("X-Consul-Token", std::move(token));
  Result<HttpClientResponse> sent = co_await client_.send(std::move(request));
  if (!sent && sent.error().code == ErrorCode::limit_exceeded) {
    sent.error().text += "; the answer may have message_bytes_max (" + std::to_string(options_.message_bytes_max) + ")";
  }
  CO_TRY(HttpClientResponse response, std::move(sent));
  if (response.status != 200) co_return fail(refusal_of(response));
  co_return ConsulAnswer{.index = index_of(response),
                         .led = response.header("X-Consul-KnownLeader") != "false",
                         .hidden = response.header("X-Consul-Results-Filtered-By-ACLs") == "true",
                         .body = std::move(response.body)};
}

}  // namespace hawser::cluster
