#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "hawser/cluster_client.h"
#include "hawser/grpc_client.h"
#include "hawser/hawser.h"
#include "hawser/scope.h"
#include "hawser/xds.h"
#include "protocol/grpc/proto_bytes.h"

// Calls to a name of xDS: tests/world/go/main.go. The bootstrap is in the environment.
//
//   hawser_test_world_xds NAME CALLS AT_ONCE PAUSE_MS FIRST_CALLS
//
// FIRST_CALLS are made before the others, and nothing is printed about them. Each of CALLS has the metadata x-user and
// prints a line: the number of the call, and the name of its server, or its error. AT_ONCE of them are made at once. A
// pause follows.
namespace hawser::xds_world {

Task<Result<protocol::grpc::ProtoBytes>> unary_call(Context&, protocol::grpc::ProtoBytes);

}  // namespace hawser::xds_world

template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::xds_world::unary_call> =
    "grpc.testing.TestService/UnaryCall";

namespace {

using hawser::Task;
using hawser::protocol::grpc::ProtoBytes;
using hawser::xds_world::unary_call;

struct Plan {
  std::string name;
  int numbers[4] = {};  // CALLS and so on.
};

Task<void> call(hawser::ClusterClient& client, int i, bool shown) {
  hawser::CallOptions options{.timeout = std::chrono::seconds(20), .idempotent = true};
  options.metadata.emplace_back("x-user", "user-" + std::to_string(i));
  const auto reply = co_await client.call<&unary_call>(options, ProtoBytes{});
  if (!shown) co_return;
  if (reply) {
    std::printf("%d %s\n", i, hawser::protocol::grpc::string_field(reply->bytes, 2).value_or("?").c_str());
  } else {
    const hawser::Error& error = reply.error();
    std::printf("%d %s %d: %s\n", i, std::string(to_string(error.code)).c_str(), error.application_code,
                error.text.c_str());
  }
}

Task<int> run(Plan plan) {
  hawser::ClusterOptions options;
  options.pool.client = hawser::grpc_client();
  // The other client has no breakers and no budget, and makes no call again unless the control plane demands it.
  options.balancing.breaker.failures_max = 0;
  options.retry_budget = std::make_shared<hawser::RetryBudget>(1000);
  options.retry.attempts_max = 1;
  options.naming.push_back(hawser::xds_naming());
  auto client = hawser::ClusterClient::create(plan.name, std::move(options));
  if (!client) {
    std::fprintf(stderr, "%s\n", client.error().text.c_str());
    co_return 1;
  }
  const auto [calls, at_once, pause_ms, first_calls] = plan.numbers;
  for (int i = 0; i < first_calls; ++i) {
    co_await call(**client, i, false);
    co_await hawser::Loop::current()->sleep(std::chrono::milliseconds(1));
  }
  for (int i = 0; i < calls;) {
    hawser::Scope scope;
    for (int j = 0; j < at_once && i < calls; ++j) scope.spawn(call(**client, i++, true));
    co_await scope.join();
    co_await hawser::Loop::current()->sleep(std::chrono::milliseconds(pause_ms));
  }
  co_return 0;
}

}  // namespace

int main(int count, char** words) {
  Plan plan;
  if (count != 6) {
    std::fprintf(stderr, "usage: %s NAME CALLS AT_ONCE PAUSE_MS FIRST_CALLS\n", words[0]);
    return 2;
  }
  plan.name = words[1];
  for (int i = 0; i < 4; ++i) {
    const std::string_view word = words[i + 2];
    if (std::from_chars(word.data(), word.data() + word.size(), plan.numbers[i]).ec != std::errc()) return 2;
  }
  return hawser::sync_wait(run(std::move(plan)));
}
