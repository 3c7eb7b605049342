#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/try.h"
#include "cli/call/latency.h"
#include "cli/call/outcome.h"
#include "cli/call/peer.h"
#include "cli/call/raw_call.h"
#include "cli/call/server_name.h"
#include "cli/command.h"
#include "hawser/http_client.h"
#include "hawser/loop.h"

namespace hawser::cli {
namespace {

struct PingOptions {
  PeerOptions peer;
  double timeout_s = 5;
  unsigned count = 10;
  double interval_s = 0.1;
  bool histogram = false;
  bool json = false;
};

// Measures one transport. Returns the JSON of its part.
Task<Result<std::string>> measure(const PingOptions& given, std::string transport, const Output& output) {
  PeerOptions options = given.peer;
  options.transports.clear();
  options.others = false;
  if (transport != "tcp") options.transports.push_back(transport);
  CO_TRY(const std::unique_ptr<CallPeer> peer, co_await connect_peer(options));
  // A client falls back to TCP by itself.
  const std::string used = peer->transport();
  if (used != transport && transport != "tcp") {
    co_return fail(ErrorCode::unavailable, fmt::format("{0} cannot be used, and the connection uses {1}: hawser doctor "
                                                       "--require {0} gives the reasons on this machine; the server "
                                                       "must have enabled {0}",
                                                       transport, used));
  }
  Latencies latencies;
  for (unsigned i = 0; i < given.count; ++i) {
    if (i != 0 && given.interval_s > 0) {
      co_await Loop::current()->sleep(duration_of(given.interval_s));
    }
    CO_TRY(const Duration time, co_await peer->ping());
    latencies.record(time);
  }
  if (!output.json) {
    output.line(fmt::format("{}: {}", used, latencies.text()));
    if (given.histogram) output.line(latencies.bars());
  }
  co_return fmt::format("{{\"transport\":\"{}\",\"latency_us\":{}}}", used, latencies.json());
}

Task<int> ping(PingOptions given, Output output) {
  std::vector<std::string> transports{"tcp"};
  transports.insert(transports.end(), given.peer.transports.begin(), given.peer.transports.end());
  std::string all;
  int status = succeeded;
  for (const std::string& transport : transports) {
    const Result<std::string> part = co_await measure(given, transport, output);
    if (!part) {
      status = output.error(part.error());
      continue;
    }
    all += (all.empty() ? "" : ",") + *part;
  }
  if (output.json && !all.empty()) output.line("[" + all + "]");
  co_return status;
}

struct HealthOptions {
  PeerOptions peer;
  double timeout_s = 5;
  std::string service;
  bool json = false;
};

std::string query_text(std::string_view value) {
  std::string text;
  for (const char c : value) text += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return text;
}

Task<int> health_http(HealthOptions given, Output output) {
  const auto addresses = co_await addresses_of(given.peer.address, given.peer.timeout);
  if (!addresses) co_return output.error(addresses.error());
  HttpClient client(*Loop::current(), {.security = given.peer.security});
  HttpClientRequest request;
  request.url = programs::scheme_of(given.peer.security) + "://hawser/health";
  if (!given.service.empty()) request.url += "?service=" + query_text(given.service);
  request.timeout = given.peer.timeout;
  request.headers = given.peer.metadata;
  const Result<HttpClientResponse> response = co_await send_to_any(client, *addresses, request);
  if (!response) co_return output.error(response.error());
  if (response->status == 404 && !given.service.empty()) {
    co_return output.error(Error::of_call(Initiator::peer, ErrorCode::invalid_argument,
                                          "the server has no health of the service " + given.service));
  }
  const std::string state = response->status == 200 ? "serving" : "not serving";
  output.line(output.json ? fmt::format("{{\"health\":\"{}\"}}", state) : state);
  co_return response->status == 200 ? succeeded : refused;
}

Task<int> health(HealthOptions given, Output output) {
  PeerOptions options = given.peer;
  if (options.protocol == "http") {
    co_return co_await health_http(std::move(given), output);
  }
  const Result<std::unique_ptr<CallPeer>> peer = co_await connect_peer(options);
  if (!peer) co_return output.error(peer.error());
  // HealthCheckRequest{service = 1}; HealthCheckResponse{status = 1}.
  const Method check = protobuf_method("grpc.health.v1.Health/Check", false, false);
  std::string request;
  if (!given.service.empty()) request = std::string{'\x0a', static_cast<char>(given.service.size())} + given.service;
  CallOptions with = options.call_options();
  RawCall call((*peer)->link(), check, std::move(request), std::move(with));
  call.send();
  const Result<RawCall::Answer> answer = co_await call.answer();
  std::string state;
  if (answer) {
    const bool serving = answer->body == "\x08\x01";
    state = serving ? "serving" : "not serving";
  } else if (answer.error().code == ErrorCode::unknown_method && options.protocol == "native") {
    const Result<bool> serving = co_await (*peer)->is_serving(given.service);
    if (!serving && (serving.error().code != ErrorCode::unknown_method || !given.service.empty())) {
      co_return output.error(serving.error());
    }
    if (!serving) {
      // The server does not describe itself, but it may answer.
      const Result<Duration> time = co_await (*peer)->ping();
      if (!time) co_return output.error(time.error());
    }
    state = serving.value_or(true) ? "serving" : "not serving";
  } else {
    co_return output.error(answer.error());
  }
  output.line(output.json ? fmt::format("{{\"health\":\"{}\"}}", state) : state);
  co_return state == "serving" ? succeeded : refused;
}

}  // namespace

Run add_ping(CLI::App& command) {
  auto options = std::make_shared<PingOptions>();
  command.add_option("address", options->peer.address, address_help)->required();
  command.add_option("--transport", options->peer.transports, "Transports to measure beside TCP")
      ->delimiter(',')
      ->check(CLI::IsMember({"shm", "rdma", "ucx"}));
  command.add_option("--timeout", options->timeout_s, "Seconds for connecting")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 86'400.0));
  command.add_option("--count", options->count, "Number of PINGs for each transport")
      ->capture_default_str()
      ->check(CLI::Range(1U, 100'000'000U));
  command.add_option("--interval", options->interval_s, "Seconds between two PINGs")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  programs::add_tls_client_options(command, options->peer.address, options->peer.security);
  command.add_flag("--histogram", options->histogram, "Print a histogram too");
  command.add_flag("--json", options->json, "Print JSON");
  command.footer(statuses);
  return [options] {
    options->peer.timeout = duration_of(options->timeout_s);
    return sync_wait(ping(*options, {.command = "ping", .json = options->json}));
  };
}

Run add_health(CLI::App& command) {
  auto options = std::make_shared<HealthOptions>();
  add_peer_options(command, options->peer, options->timeout_s);
  command.add_option("--service", options->service, "Service; absent: the whole server")
      ->check([](const std::string& name) {
        return name.size() < 128 ? std::string() : std::string("the name is longer than 127 bytes");
      });
  command.add_flag("--json", options->json, "Print JSON");
  command.footer(
      std::string("Asks grpc.health.v1.Health, a native server without it by hawser::is_serving. A native server that "
                  "has neither serves if it answers. "
                  "A server that is not serving gives status 1. ") +
      statuses);
  return [options] {
    options->peer.timeout = duration_of(options->timeout_s);
    return sync_wait(health(*options, {.command = "health", .json = options->json}));
  };
}

}  // namespace hawser::cli
