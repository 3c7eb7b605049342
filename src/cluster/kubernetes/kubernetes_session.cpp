#include "cluster/kubernetes/kubernetes_session.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/try.h"
#include "cluster/bounded_file.h"
#include "cluster/kubernetes/endpoint_slice.h"
#include "cluster/spread_pause.h"
#include "hawser/tls.h"

namespace hawser::cluster {
namespace {

HttpClientOptions http_options(const KubernetesOptions& options) {
  HttpClientOptions http;
  http.connect_timeout = options.connect_timeout;
  http.request_timeout = options.request_timeout;
  http.stall_timeout = forever;  // A watch is silent while nothing changes. Its own timeout ends it.
  http.body_bytes_max = options.message_bytes_max;
  http.security = options.security;
  return http;
}

Result<std::string> server_of_pod() {
  const char* const host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* const port = std::getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr) {
    return fail(ErrorCode::invalid_argument,
                "KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set, so this process does not run in a pod: "
                "set KubernetesOptions::server to the URL of the API server");
  }
  const std::string address = host;
  return "https://" + (address.contains(':') ? "[" + address + "]" : address) + ":" + port;
}

// Each request reads this from files.
struct KubernetesAccount {
  std::string token;
  std::string name_space;
};

// Blocks.
Result<KubernetesAccount> read_account(const std::string& token_file, const std::string& name_space_file) {
  KubernetesAccount account;
  if (!token_file.empty()) {
    TRY(account.token, read_token_file(token_file));
  }
  if (name_space_file.empty()) return account;
  TRY(account.name_space, read_token_file(name_space_file));
  if (is_kubernetes_label(account.name_space)) return account;
  return fail(ErrorCode::unavailable, "file " + name_space_file + " does not have the name of a namespace");
}

}  // namespace

Result<KubernetesOptions> complete_kubernetes_options(KubernetesOptions options) {
  constexpr Duration hour = std::chrono::hours(1);
  const auto within = [&](Duration time, Duration shortest) { return time >= shortest && time <= hour; };
  if (!within(options.request_timeout, std::chrono::milliseconds(1)) ||
      !within(options.watch_time, std::chrono::seconds(1)) ||
      !within(options.retry_interval, std::chrono::milliseconds(1)) ||
      !within(options.retry_max, std::chrono::milliseconds(1))) {
    return fail(
        ErrorCode::invalid_argument,
        "KubernetesOptions: watch_time must be from 1 s to 1 h, request_timeout, retry_interval and retry_max from "
        "1 ms to 1 h");
  }
  TlsClientOptions tls;
  if (options.server.empty()) {
    TRY(options.server, server_of_pod());
    tls.ca_file = options.account_folder + "/ca.crt";
    if (options.token_file.empty()) options.token_file = options.account_folder + "/token";
  } else if (!options.server.starts_with("http://") && !options.server.starts_with("https://")) {
    return fail(ErrorCode::invalid_argument,
                "KubernetesOptions::server must be a URL that begins with http:// or https://");
  }
  while (options.server.ends_with('/')) options.server.pop_back();
  if (options.security == nullptr) options.security = TlsClient(std::move(tls));
  return options;
}

KubernetesSession::KubernetesSession(Loop& loop, KubernetesName name, const KubernetesOptions& options)
    : loop_(loop), name_(std::move(name)), options_(options), client_(loop, http_options(options_)) {}

Error KubernetesSession::refusal(int status, std::string_view body) {
  std::string remedy;
  if (status == 401) remedy = "; its token is not accepted";
  if (status == 403) remedy = "; its account needs the verbs list and watch for endpointslices of discovery.k8s.io";
  const std::string reason = body.empty() ? "it gives no reason" : kubernetes_reason(body);
  return Error::of_call(Initiator::peer, ErrorCode::unavailable,
                        "the API server has refused with " + std::to_string(status) + ": " + reason + remedy);
}

Task<Result<HttpClientRequest>> KubernetesSession::request(std::string query) {
  const std::string name_space_file = name_.name_space.empty() ? options_.account_folder + "/namespace" : "";
  KubernetesAccount account;
  if (!options_.token_file.empty() || !name_space_file.empty()) {
    CO_TRY(Result<KubernetesAccount> read, co_await loop_.offload([token_file = options_.token_file, name_space_file] {
      return read_account(token_file, name_space_file);
    }));
    CO_TRY(account, std::move(read));
  }
  if (!name_.name_space.empty()) account.name_space = name_.name_space;
  HttpClientRequest request;
  request.url = options_.server + "/apis/discovery.k8s.io/v1/namespaces/" + account.name_space +
                "/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D" + name_.service + query;
  request.headers.emplace_back("Accept", "application/json");
  if (!account.token.empty()) request.headers.emplace_back("Authorization", "Bearer " + account.token);
  co_return std::move(request);
}

Task<Result<std::string>> KubernetesSession::list() {
  CO_TRY(HttpClientRequest asked, co_await request(""));
  asked.gzip = true;
  Result<HttpClientResponse> sent = co_await client_.send(std::move(asked));
  if (!sent && sent.error().code == ErrorCode::limit_exceeded) {
    sent.error().text += "; the list may have message_bytes_max (" + std::to_string(options_.message_bytes_max) + ")";
  }
  CO_TRY(HttpClientResponse response, std::move(sent));
  if (response.status != 200) co_return fail(refusal(response.status, response.body));
  co_return std::move(response.body);
}

Task<Result<KubernetesSession::Opened>> KubernetesSession::watch(Begin begin, std::string version,
                                                                 std::stop_token token) {
  const Duration time = spread_pause(loop_, options_.watch_time);
  const auto seconds = std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::seconds>(time).count(), 1);
  std::string query = "&watch=1&allowWatchBookmarks=true&timeoutSeconds=" + std::to_string(seconds);
  query += begin == Begin::with_list ? "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
                                     : "&resourceVersion=" + version;
  CO_TRY(HttpClientRequest asked, co_await request(std::move(query)));
  asked.timeout = std::chrono::seconds(seconds) + options_.request_timeout;
  asked.token = std::move(token);
  CO_TRY(HttpClientStream stream, co_await client_.open(std::move(asked)));
  const int status = stream.status();
  co_return Opened{.status = status, .stream = std::move(stream)};
}

}  // namespace hawser::cluster
