#include "tests/grpc_interop/cases.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <stop_token>
#include <utility>
#include <vector>

#include "hawser/grpc_client.h"
#include "tests/grpc_interop/service.h"
#include "tests/testing.h"

// Ends a case with a text that names what does not hold.
#define DEMAND(condition) \
  if (!(condition)) co_return "line " + std::to_string(__LINE__) + ": " #condition
#define DEMAND_OK(result)                         \
  if (const auto& demanded = (result); !demanded) \
  co_return "line " + std::to_string(__LINE__) + ": " #result " failed: " + demanded.error().describe()

namespace hawser::grpc_interop {
namespace interop_cases {

using messages::ResponseParameters;
using messages::StreamingOutputCallRequest;
using testing_tools::patience;

// Two connections to one server, for a case. The second one compresses each request. The address and the options are
// for more connections.
struct Peers {
  GrpcClient& plain;
  GrpcClient& compressing;
  std::string address;
  GrpcClientOptions options;
};

CallOptions patient() { return {.timeout = patience}; }

messages::SimpleRequest large_request() {
  messages::SimpleRequest request;
  request.set_response_size(314'159);
  request.mutable_payload()->set_body(std::string(271'828, '\0'));
  return request;
}

StreamingOutputCallRequest stream_request(std::initializer_list<int> sizes, std::size_t payload = 0) {
  StreamingOutputCallRequest request;
  for (const int size : sizes) request.add_response_parameters()->set_size(size);
  if (payload != 0) request.mutable_payload()->set_body(std::string(payload, '\0'));
  return request;
}

bool has_status(const Error& error, int status, std::string_view text) {
  return error.code == ErrorCode::application && error.application_code == status && error.text == text;
}

Task<std::string> empty_unary(Peers peers) {
  messages::TestService::Stub stub(peers.plain);
  const CallOptions options = patient();
  const messages::Empty request;
  auto reply = co_await stub.EmptyCall(options, request);
  DEMAND_OK(reply);
  DEMAND(reply->ByteSizeLong() == 0);
  co_return "";
}

Task<std::string> large_unary(Peers peers) {
  messages::TestService::Stub stub(peers.plain);
  const CallOptions options = patient();
  const messages::SimpleRequest request = large_request();
  auto reply = co_await stub.UnaryCall(options, request);
  DEMAND_OK(reply);
  DEMAND(reply->payload().body() == std::string(314'159, '\0'));
  co_return "";
}

Task<std::string> client_compressed_unary(Peers peers) {
  messages::TestService::Stub plain(peers.plain);
  messages::TestService::Stub compressing(peers.compressing);
  const CallOptions options = patient();
  messages::SimpleRequest request = large_request();
  request.mutable_expect_compressed()->set_value(true);
  auto refused = co_await plain.UnaryCall(options, request);
  DEMAND(!refused);
  DEMAND(refused.error().application_code == 3);
  auto packed = co_await compressing.UnaryCall(options, request);
  DEMAND_OK(packed);
  DEMAND(packed->payload().body().size() == 314'159);
  request.mutable_expect_compressed()->set_value(false);
  auto unpacked = co_await plain.UnaryCall(options, request);
  DEMAND_OK(unpacked);
  DEMAND(unpacked->payload().body().size() == 314'159);
  co_return "";
}

Task<std::string> server_compressed_unary(Peers peers) {
  messages::TestService::Stub stub(peers.plain);
  const CallOptions options = patient();
  for (const bool compressed : {true, false}) {
    messages::SimpleRequest request = large_request();
    request.mutable_response_compressed()->set_value(compressed);
    auto reply = co_await stub.UnaryCall(options, request).with_outcome();
    DEMAND_OK(reply.result);
    DEMAND(reply.outcome.compressed == compressed);
    DEMAND(reply.result->payload().body() == std::string(314'159, '\0'));
  }
  co_return "";
}

// The sizes of the items are those of the case of the suite: compressed, and not compressed.
Task<std::string> client_compressed_streaming(Peers peers) {
  const CallOptions options = patient();
  messages::StreamingInputCallRequest packed;
  packed.mutable_expect_compressed()->set_value(true);
  packed.mutable_payload()->set_body(std::string(27182, '\0'));
  messages::StreamingInputCallRequest unpacked;
  unpacked.mutable_expect_compressed()->set_value(false);
  unpacked.mutable_payload()->set_body(std::string(45904, '\0'));
  messages::TestService::Stub plain(peers.plain);
  auto probe = co_await plain.StreamingInputCall(options);
  DEMAND_OK(probe);
  auto probing = probe->writer();
  DEMAND(!set_grpc_compression(probing, GrpcCompression::gzip));
  auto probed = co_await probing.write(packed);
  DEMAND_OK(probed);
  auto refused = co_await probe->finish();
  DEMAND(!refused);
  DEMAND(refused.error().application_code == 3);
  messages::TestService::Stub compressing(peers.compressing);
  auto call = co_await compressing.StreamingInputCall(options);
  DEMAND_OK(call);
  auto writer = call->writer();
  DEMAND(!set_grpc_compression(writer, GrpcCompression::zstd));
  for (const bool compressed : {true, false, true}) {
    DEMAND(set_grpc_compression(writer, compressed ? GrpcCompression::gzip : GrpcCompression::none));
    auto written = co_await writer.write(compressed ? packed : unpacked);
    DEMAND_OK(written);
  }
  auto reply = co_await call->finish();
  DEMAND_OK(reply);
  DEMAND(reply->aggregated_payload_size() == 27182 + 45904 + 27182);
  DEMAND(!set_grpc_compression(writer, GrpcCompression::none));
  co_return "";
}

Task<std::string> client_streaming(Peers peers) {
  messages::TestService::Stub stub(peers.plain);
  const CallOptions options = patient();
  auto call = co_await stub.StreamingInputCall(options);
  DEMAND_OK(call);
  auto writer = call->writer();
  for (const std::size_t size : {27182UZ, 8UZ, 1828UZ, 45904UZ}) {
    messages::StreamingInputCallRequest request;
    request.mutable_payload()->set_body(std::string(size, '\0'));
    auto written = co_await writer.write(request);
    DEMAND_OK(written);
  }
  auto reply = co_await call->finish();
  DEMAND_OK(reply);
  DEMAND(reply->aggregated_payload_size() == 74922);
  co_return "";
}

// Makes a StreamingOutputCall, and expects replies of the sizes that the request has.
Task<std::string> expect_replies(GrpcClient& client, const StreamingOutputCallRequest& request) {
  messages::TestService::Stub stub(client);
  const CallOptions options = patient();
  auto call = co_await stub.StreamingOutputCall(options, request);
  DEMAND_OK(call);
  auto reader = call->reader();
  for (const ResponseParameters& parameters : request.response_parameters()) {
    auto reply = co_await reader.next();
    DEMAND_OK(reply);
    DEMAND(reply->has_value());
    DEMAND((*reply)->payload().body() == std::string(static_cast<std::size_t>(parameters.size()), '\0'));
    if (parameters.has_compressed()) DEMAND(is_grpc_item_compressed(reader) == parameters.compressed().value());
  }
  auto last = co_await reader.next();
  DEMAND_OK(last);
  DEMAND(!last->has_value());
  auto result = co_await call->finish();
  DEMAND_OK(result);
  co_return "";
}

Task<std::string> server_streaming(Peers peers) {
  const StreamingOutputCallRequest request = stream_request({31415, 9, 2653, 58979});
  auto failure = co_await expect_replies(peers.plain, request);
  co_return failure;
}

Task<std::string> server_compressed_streaming(Peers peers) {
  StreamingOutputCallRequest request = stream_request({31415, 92653});
  request.mutable_response_parameters(0)->mutable_compressed()->set_value(true);
  request.mutable_response_parameters(1)->mutable_compressed()->set_value(false);
  auto failure = co_await expect_replies(peers.plain, request);
  co_return failure;
}

Task<std::string> ping_pong(Peers peers) {
  constexpr std::array<int, 4> reply_sizes = {31415, 9, 2653, 58979};
  constexpr std::array<std::size_t, 4> request_sizes = {27182, 8, 1828, 45904};
  messages::TestService::Stub stub(peers.plain);
  const CallOptions options = patient();
  auto call = co_await stub.FullDuplexCall(options);
  DEMAND_OK(call);
  auto writer = call->writer();
  auto reader = call->reader();
  for (std::size_t i = 0; i < reply_sizes.size(); ++i) {
    const StreamingOutputCallRequest request = stream_request({reply_sizes[i]}, request_sizes[i]);
    auto written = co_await writer.write(request);
    DEMAND_OK(written);
    auto reply = co_await reader.next();
    DEMAND_OK(reply);
    DEMAND(reply->has_value());
    DEMAND((*reply)->payload().body().size() == static_cast<std::size_t>(reply_sizes[i]));
  }
  writer.end();
  auto last = co_await reader.next();
  DEMAND_OK(last);
  DEMAND(!last->has_value());
  auto result = co_await call->finish();
  DEMAND_OK(result);
  co_return "";
}

Task<std::string> empty_stream(Peers peers) {
  messages::TestService::Stub stub(peers.plain);
  const CallOptions options = patient();
  auto call = co_await stub.FullDuplexCall(options);
  DEMAND_OK(call);
  call->writer().end();
  auto reader = call->reader();
  auto reply = co_await reader.next();
  DEMAND_OK(reply);
  DEMAND(!reply->has_value());
  auto result = co_await call->finish();
  DEMAND_OK(result);
  co_return "";
}

// A stop takes effect in the loop's next tick. Before that, finish() would send the end of the stream, and the server's
// result could arrive first.
Task<void> cancel(std::stop_source& stop) {
  stop.request_stop();
  co_await Loop::current()->sleep(std::chrono::milliseconds(1));
}

Task<std::string> cancel_after_begin(Peers peers) {
  messages::TestService::Stub stub(peers.plain);
  std::stop_source stop;
  CallOptions options = patient();
  options.token = stop.get_token();
  auto call = co_await stub.StreamingInputCall(options);
  DEMAND_OK(call);
  co_await cancel(stop);
  auto result = co_await call->finish();
  DEMAND(!result);
  DEMAND(result.error().code == ErrorCode::cancelled);
  co_return "";
}

Task<std::string> cancel_after_first_response(Peers peers) {
  messages::TestService::Stub stub(peers.plain);
  std::stop_source stop;
  CallOptions options = patient();
  options.token = stop.get_token();
  auto call = co_await stub.FullDuplexCall(options);
  DEMAND_OK(call);
  auto writer = call->writer();
  auto reader = call->reader();
  const StreamingOutputCallRequest request = stream_request({31415}, 27182);
  auto written = co_await writer.write(request);
  DEMAND_OK(written);
  auto reply = co_await reader.next();
  DEMAND_OK(reply);
  DEMAND(reply->has_value());
  co_await cancel(stop);
  auto result = co_await call->finish();
  DEMAND(!result);
  DEMAND(result.error().code == ErrorCode::cancelled);
  co_return "";
}

Task<std::string> timeout_on_sleeping_server(Peers peers) {
  messages::TestService::Stub stub(peers.plain);
  const CallOptions options{.timeout = std::chrono::milliseconds(1)};
  auto call = co_await stub.FullDuplexCall(options);
  if (!call) {
    DEMAND(call.error().code == ErrorCode::deadline_exceeded);
    co_return "";
  }
  auto writer = call->writer();
  auto reader = call->reader();
  const StreamingOutputCallRequest request = stream_request({}, 27182);
  auto written = co_await writer.write(request);  // Fails if the deadline has passed.
  static_cast<void>(written);
  auto reply = co_await reader.next();
  DEMAND(!reply || !reply->has_value());
  auto result = co_await call->finish();
  DEMAND(!result);
  DEMAND(result.error().code == ErrorCode::deadline_exceeded);
  co_return "";
}

Task<std::string> custom_metadata(Peers peers) {
  messages::TestService::Stub stub(peers.plain);
  CallOptions options = patient();
  options.metadata = {{"x-grpc-test-echo-initial", "test_initial_metadata_value"},
                      {"x-grpc-test-echo-trailing-bin", "\xAB\xAB\xAB"}};
  const messages::SimpleRequest request = large_request();
  auto reply = co_await stub.UnaryCall(options, request).reply();
  DEMAND_OK(reply);
  const Metadata given = reply->metadata().copy();
  for (const auto& expected : options.metadata) {
    DEMAND(std::count(given.begin(), given.end(), expected) == 1);
  }
  auto call = co_await stub.FullDuplexCall(options);
  DEMAND_OK(call);
  auto writer = call->writer();
  auto reader = call->reader();
  const StreamingOutputCallRequest item = stream_request({314'159}, 271'828);
  auto written = co_await writer.write(item);
  DEMAND_OK(written);
  writer.end();
  auto answer = co_await reader.next();
  DEMAND_OK(answer);
  DEMAND(answer->has_value());
  auto ended = co_await call->finish_with_outcome();
  DEMAND_OK(ended.result);
  for (const auto& expected : options.metadata) {
    DEMAND(std::count(ended.outcome.metadata.begin(), ended.outcome.metadata.end(), expected) == 1);
  }
  co_return "";
}

Task<std::string> status_code_and_message(Peers peers) {
  constexpr std::string_view text = "test status message";
  messages::TestService::Stub stub(peers.plain);
  const CallOptions options = patient();
  messages::SimpleRequest request;
  request.mutable_response_status()->set_code(2);
  request.mutable_response_status()->set_message(std::string(text));
  auto reply = co_await stub.UnaryCall(options, request);
  DEMAND(!reply);
  DEMAND(has_status(reply.error(), 2, text));
  auto call = co_await stub.FullDuplexCall(options);
  DEMAND_OK(call);
  StreamingOutputCallRequest item;
  *item.mutable_response_status() = request.response_status();
  auto writer = call->writer();
  auto written = co_await writer.write(item);
  DEMAND_OK(written);
  auto result = co_await call->finish();
  DEMAND(!result);
  DEMAND(has_status(result.error(), 2, text));
  co_return "";
}

Task<std::string> special_status_message(Peers peers) {
  constexpr std::string_view text =
      "\t\ntest with whitespace\r\nand Unicode BMP \xE2\x98\xBA and non-BMP \xF0\x9F\x98\x88\t\n";
  messages::TestService::Stub stub(peers.plain);
  const CallOptions options = patient();
  messages::SimpleRequest request;
  request.mutable_response_status()->set_code(2);
  request.mutable_response_status()->set_message(std::string(text));
  auto reply = co_await stub.UnaryCall(options, request);
  DEMAND(!reply);
  DEMAND(has_status(reply.error(), 2, text));
  co_return "";
}

Task<std::string> unimplemented_method(Peers peers) {
  messages::TestService::Stub stub(peers.plain);
  const CallOptions options = patient();
  const messages::Empty request;
  auto reply = co_await stub.UnimplementedCall(options, request);
  DEMAND(!reply);
  DEMAND(reply.error().code == ErrorCode::unknown_method);
  co_return "";
}

Task<std::string> unimplemented_service(Peers peers) {
  messages::UnimplementedService::Stub stub(peers.plain);
  const CallOptions options = patient();
  const messages::Empty request;
  auto reply = co_await stub.UnimplementedCall(options, request);
  DEMAND(!reply);
  DEMAND(reply.error().code == ErrorCode::unknown_method);
  co_return "";
}

Task<std::string> pick_first_unary(Peers peers) {
  messages::TestService::Stub stub(peers.plain);
  const CallOptions options = patient();
  messages::SimpleRequest request;
  request.set_response_size(1);
  request.set_fill_server_id(true);
  std::string id;
  for (int i = 0; i < 100; ++i) {
    auto reply = co_await stub.UnaryCall(options, request);
    DEMAND_OK(reply);
    DEMAND(!reply->server_id().empty());
    DEMAND(i == 0 || reply->server_id() == id);
    id = reply->server_id();
  }
  co_return "";
}

constexpr int soak_iterations = 10;

Task<std::string> rpc_soak(Peers peers) {
  for (int i = 0; i < soak_iterations; ++i) {
    auto failure = co_await large_unary(peers);
    if (!failure.empty()) co_return failure;
  }
  co_return "";
}

// As rpc_soak, with a connection for each call.
Task<std::string> channel_soak(Peers peers) {
  for (int i = 0; i < soak_iterations; ++i) {
    GrpcClient client(*Loop::current(), peers.options);
    auto connected = co_await client.connect(peers.address);
    DEMAND_OK(connected);
    const Peers one{client, client, peers.address, peers.options};
    auto failure = co_await large_unary(one);
    if (!failure.empty()) co_return failure;
  }
  co_return "";
}

messages::TestOrcaReport example_report(double cpu) {
  messages::TestOrcaReport report;
  report.set_cpu_utilization(cpu);
  report.set_memory_utilization(0.5847);
  (*report.mutable_utilization())["util"] = 0.30499;
  return report;
}

bool same_report(const orca::OrcaLoadReport& one, const messages::TestOrcaReport& other) {
  const orca::OrcaLoadReport expected = load_report(other);
  const auto same = [](const auto& left, const auto& right) {
    return left.size() == right.size() && std::all_of(left.begin(), left.end(), [&](const auto& pair) {
             const auto found = right.find(pair.first);
             return found != right.end() && found->second == pair.second;
           });
  };
  return one.cpu_utilization() == expected.cpu_utilization() && one.mem_utilization() == expected.mem_utilization() &&
         same(one.request_cost(), expected.request_cost()) && same(one.utilization(), expected.utilization());
}

Task<std::string> orca_per_rpc(Peers peers) {
  messages::TestService::Stub stub(peers.plain);
  const CallOptions options = patient();
  messages::SimpleRequest request;
  *request.mutable_orca_per_query_report() = example_report(0.8210);
  (*request.mutable_orca_per_query_report()->mutable_request_cost())["cost"] = 3456.32;
  auto reply = co_await stub.UnaryCall(options, request).reply();
  DEMAND_OK(reply);
  const auto sent = reply->metadata().find(load_report_name);
  DEMAND(sent.has_value());
  orca::OrcaLoadReport report;
  DEMAND(report.ParseFromString(std::string(*sent)));
  DEMAND(same_report(report, request.orca_per_query_report()));
  co_return "";
}

// A server that receives a report on one stream sends it on the other one.
Task<std::string> orca_oob(Peers peers) {
  messages::TestService::Stub stub(peers.plain);
  orca::OpenRcaService::Stub reports_stub(peers.plain);
  const CallOptions options = patient();
  auto call = co_await stub.FullDuplexCall(options);
  DEMAND_OK(call);
  auto writer = call->writer();
  auto reader = call->reader();
  orca::OrcaLoadReportRequest wish;
  wish.mutable_report_interval()->set_nanos(100'000'000);
  auto watching = co_await reports_stub.StreamCoreMetrics(options, wish);
  DEMAND_OK(watching);
  auto reports = watching->reader();
  for (const double cpu : {0.8210, 0.29309}) {
    StreamingOutputCallRequest item = stream_request({1});
    *item.mutable_orca_oob_report() = example_report(cpu);
    auto written = co_await writer.write(item);
    DEMAND_OK(written);
    auto reply = co_await reader.next();
    DEMAND_OK(reply);
    DEMAND(reply->has_value());
    for (bool same = false; !same;) {
      auto report = co_await reports.next();
      DEMAND_OK(report);
      DEMAND(report->has_value());
      same = same_report(**report, item.orca_oob_report());
    }
  }
  writer.end();
  auto result = co_await call->finish();
  DEMAND_OK(result);
  co_return "";
}

struct Case {
  std::string_view name;
  Task<std::string> (*run)(Peers);
};

constexpr std::array cases = {
    Case{"empty_unary", &empty_unary},
    Case{"large_unary", &large_unary},
    Case{"client_compressed_unary", &client_compressed_unary},
    Case{"server_compressed_unary", &server_compressed_unary},
    Case{"client_compressed_streaming", &client_compressed_streaming},
    Case{"client_streaming", &client_streaming},
    Case{"server_streaming", &server_streaming},
    Case{"server_compressed_streaming", &server_compressed_streaming},
    Case{"ping_pong", &ping_pong},
    Case{"empty_stream", &empty_stream},
    Case{"cancel_after_begin", &cancel_after_begin},
    Case{"cancel_after_first_response", &cancel_after_first_response},
    Case{"timeout_on_sleeping_server", &timeout_on_sleeping_server},
    Case{"custom_metadata", &custom_metadata},
    Case{"status_code_and_message", &status_code_and_message},
    Case{"special_status_message", &special_status_message},
    Case{"unimplemented_method", &unimplemented_method},
    Case{"unimplemented_service", &unimplemented_service},
    Case{"pick_first_unary", &pick_first_unary},
    Case{"rpc_soak", &rpc_soak},
    Case{"channel_soak", &channel_soak},
    Case{"orca_per_rpc", &orca_per_rpc},
    Case{"orca_oob", &orca_oob},
};

Task<std::string> connect_and_run(const Case& chosen, Peers peers) {
  for (GrpcClient* const client : {&peers.plain, &peers.compressing}) {
    auto connected = co_await client->connect(peers.address);
    if (!connected) co_return "connect(" + peers.address + ") failed: " + connected.error().describe();
  }
  co_return co_await chosen.run(peers);
}

}  // namespace interop_cases

std::span<const std::string_view> case_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const interop_cases::Case& one : interop_cases::cases) all.push_back(one.name);
    return all;
  }();
  return names;
}

std::string run_case(std::string_view name, const std::string& address,
                     std::shared_ptr<transport::ClientSecurity> security) {
  const auto chosen = std::find_if(interop_cases::cases.begin(), interop_cases::cases.end(),
                                   [&](const interop_cases::Case& one) { return one.name == name; });
  if (chosen == interop_cases::cases.end()) return "there is no case " + std::string(name);
  Loop loop;
  GrpcClientOptions options;
  options.security = std::move(security);
  GrpcClientOptions compressing = options;
  compressing.compression = GrpcCompression::gzip;
  GrpcClient plain(loop, options);
  GrpcClient compressed(loop, compressing);
  const interop_cases::Peers peers{plain, compressed, address, options};
  return loop.run(interop_cases::connect_and_run(*chosen, peers));
}

}  // namespace hawser::grpc_interop
