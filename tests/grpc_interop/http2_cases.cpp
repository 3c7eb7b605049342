#include "tests/grpc_interop/http2_cases.h"

#include <algorithm>
#include <array>
#include <utility>

#include "hawser/grpc_client.h"
#include "tests/grpc_interop/service.h"
#include "tests/testing.h"

namespace hawser::grpc_interop {
namespace http2_cases {

using testing_tools::patience;

constexpr std::array<std::string_view, 6> names = {"goaway", "rst_after_header", "rst_during_data", "rst_after_data",
                                                   "ping",   "max_streams"};

Task<EndedCall<messages::SimpleResponse>> large_call(GrpcClient& client) {
  messages::TestService::Stub stub(client);
  const CallOptions options{.timeout = patience};
  messages::SimpleRequest request;
  request.set_response_size(314'159);
  request.mutable_payload()->set_body(std::string(271'828, '\0'));
  auto reply = co_await stub.UnaryCall(options, request).with_outcome();
  if (reply.result && reply.result->payload().body().size() != 314'159) {
    co_return fail(ErrorCode::internal,
                   "a payload of " + std::to_string(reply.result->payload().body().size()) + " bytes");
  }
  co_return reply;
}

Task<void> count_call(GrpcClient& client, int& done, std::string& failure) {
  auto reply = co_await large_call(client);
  if (!reply.result) failure = reply.result.error().describe();
  ++done;
}

// The calls wait in the client while the server's single stream is in use.
Task<std::string> many_calls(GrpcClient& client) {
  constexpr int calls = 15;
  int done = 0;
  std::string failure;
  Scope scope;
  for (int i = 0; i < calls; ++i) scope.spawn(count_call(client, done, failure));
  auto all = co_await testing_tools::eventually(*Loop::current(), [&] { return done == calls; });
  if (!all) failure = "only " + std::to_string(done) + " calls have ended";
  co_return failure;
}

// The connection ends after the last call that the server has accepted.
Task<std::string> call_on_a_new_connection(GrpcClient& client, const std::string& address) {
  auto ended = co_await testing_tools::eventually(*Loop::current(), [&] { return !client.connected(); });
  if (!ended) co_return "the connection is open after GOAWAY";
  auto connected = co_await client.connect(address);
  if (!connected) co_return connected.error().describe();
  auto reply = co_await large_call(client);
  co_return reply.result ? "" : reply.result.error().describe();
}

Task<std::string> run(GrpcClient& client, std::string_view name, const std::string& address) {
  auto connected = co_await client.connect(address);
  if (!connected) co_return connected.error().describe();
  auto ended = co_await large_call(client);
  const auto& reply = ended.result;
  if (name.starts_with("rst_")) {
    if (reply) co_return "the call succeeded, although the server reset its stream";
    // The handler may have run. INTERNAL is the status of gRPC for a reset with NO_ERROR before the trailers.
    if (reply.error().code != ErrorCode::application || reply.error().application_code != 13 ||
        ended.outcome.status != -1) {
      co_return reply.error().describe() + ", status " + std::to_string(ended.outcome.status);
    }
    co_return "";
  }
  if (!reply) co_return reply.error().describe();
  if (name == "goaway") {
    auto failure = co_await call_on_a_new_connection(client, address);
    co_return failure;
  }
  if (name == "max_streams") {
    auto failure = co_await many_calls(client);
    co_return failure;
  }
  co_return "";
}

}  // namespace http2_cases

std::span<const std::string_view> http2_case_names() { return http2_cases::names; }

std::string run_http2_case(std::string_view name, const std::string& address) {
  Loop loop;
  GrpcClient client(loop);
  return loop.run(http2_cases::run(client, name, address));
}

}  // namespace hawser::grpc_interop
