#include "tests/grpc_interop/service.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hawser/grpc.h"

namespace hawser::grpc_interop {
namespace service_parts {

constexpr int response_bytes_max = 4 << 20;

// Sends back the metadata that the cases name.
void echo_metadata(Context& context) {
  constexpr std::string_view initial = "x-grpc-test-echo-initial";
  constexpr std::string_view trailing = "x-grpc-test-echo-trailing-bin";
  if (const auto value = context.metadata().find(initial)) {
    add_grpc_initial_metadata(context, std::string(initial), std::string(*value));
  }
  if (const auto value = context.metadata().find(trailing)) {
    add_grpc_trailing_metadata(context, std::string(trailing), std::string(*value));
  }
}

Result<void> fill(messages::Payload& payload, int bytes) {
  if (bytes < 0 || bytes > response_bytes_max) {
    return fail(ErrorCode::invalid_argument, "a response of " + std::to_string(bytes) + " bytes: the most is 4 MiB");
  }
  payload.set_body(std::string(static_cast<std::size_t>(bytes), '\0'));
  return {};
}

Task<Result<void>> respond(Context& context, const messages::StreamingOutputCallRequest& request,
                           Writer<messages::StreamingOutputCallResponse>& replies) {
  for (const messages::ResponseParameters& parameters : request.response_parameters()) {
    if (parameters.interval_us() > 0) {
      const auto paused =
          co_await context.loop().sleep(std::chrono::microseconds(parameters.interval_us()), context.token());
      if (!paused) co_return paused;
    }
    if (parameters.has_compressed()) {
      set_grpc_compression(context, parameters.compressed().value() ? GrpcCompression::gzip : GrpcCompression::none);
    }
    messages::StreamingOutputCallResponse reply;
    const Result<void> filled = fill(*reply.mutable_payload(), parameters.size());
    if (!filled) co_return filled;
    const auto written = co_await replies.write(reply);
    if (!written) co_return written;
  }
  if (request.has_response_status() && request.response_status().code() != 0) {
    co_return std::unexpected(grpc_error(request.response_status().code(), request.response_status().message()));
  }
  co_return Result<void>{};
}

// The pause between two load reports. A report is sent at least every minute, so that the end of the caller is noticed.
std::chrono::nanoseconds report_interval(const orca::OrcaLoadReportRequest& request) {
  const std::chrono::seconds seconds(std::clamp<std::int64_t>(request.report_interval().seconds(), 0, 60));
  const std::chrono::nanoseconds asked = seconds + std::chrono::nanoseconds(request.report_interval().nanos());
  return std::max<std::chrono::nanoseconds>(asked, std::chrono::milliseconds(10));
}

}  // namespace service_parts

orca::OrcaLoadReport load_report(const messages::TestOrcaReport& given) {
  orca::OrcaLoadReport report;
  report.set_cpu_utilization(given.cpu_utilization());
  report.set_mem_utilization(given.memory_utilization());
  *report.mutable_request_cost() = given.request_cost();
  *report.mutable_utilization() = given.utilization();
  return report;
}

void LoadReports::set(const messages::TestOrcaReport& given) {
  const std::lock_guard lock(mutex_);
  last_ = load_report(given);
}

Task<Result<void>> LoadReports::StreamCoreMetrics(Context& context, const orca::OrcaLoadReportRequest& request,
                                                  Writer<orca::OrcaLoadReport> reports) {
  while (!context.token().stop_requested()) {
    orca::OrcaLoadReport report;
    {
      const std::lock_guard lock(mutex_);
      report = last_;
    }
    const auto written = co_await reports.write(report);
    if (!written) co_return written;
    const auto paused = co_await context.loop().sleep(service_parts::report_interval(request), context.token());
    if (!paused) co_return paused;
  }
  co_return Result<void>{};
}

Task<Result<messages::Empty>> Service::EmptyCall(Context&, const messages::Empty&) { co_return messages::Empty(); }

Task<Result<messages::SimpleResponse>> Service::UnaryCall(Context& context, const messages::SimpleRequest& request) {
  service_parts::echo_metadata(context);
  if (request.has_expect_compressed() && request.expect_compressed().value() != is_grpc_request_compressed(context)) {
    co_return fail(ErrorCode::invalid_argument, "the request's compression is not what expect_compressed says");
  }
  if (request.has_response_status() && request.response_status().code() != 0) {
    co_return std::unexpected(grpc_error(request.response_status().code(), request.response_status().message()));
  }
  if (request.has_response_compressed()) {
    set_grpc_compression(context,
                         request.response_compressed().value() ? GrpcCompression::gzip : GrpcCompression::none);
  }
  messages::SimpleResponse reply;
  const Result<void> filled = service_parts::fill(*reply.mutable_payload(), request.response_size());
  if (!filled) co_return std::unexpected(filled.error());
  if (request.fill_server_id()) reply.set_server_id("hawser");
  if (request.has_orca_per_query_report()) {
    add_grpc_trailing_metadata(context, std::string(load_report_name),
                               load_report(request.orca_per_query_report()).SerializeAsString());
  }
  co_return reply;
}

Task<Result<void>> Service::StreamingOutputCall(Context& context, const messages::StreamingOutputCallRequest& request,
                                                Writer<messages::StreamingOutputCallResponse> replies) {
  co_return co_await service_parts::respond(context, request, replies);
}

Task<Result<messages::StreamingInputCallResponse>> Service::StreamingInputCall(
    Context& context, Reader<messages::StreamingInputCallRequest> requests) {
  messages::StreamingInputCallResponse reply;
  while (true) {
    const auto request = co_await requests.next();
    if (!request) co_return std::unexpected(request.error());
    if (!*request) co_return reply;
    if ((*request)->has_expect_compressed() &&
        (*request)->expect_compressed().value() != is_grpc_request_compressed(context)) {
      co_return fail(ErrorCode::invalid_argument, "an item's compression is not what expect_compressed says");
    }
    reply.set_aggregated_payload_size(reply.aggregated_payload_size() +
                                      static_cast<int>((*request)->payload().body().size()));
  }
}

Task<Result<void>> Service::FullDuplexCall(Context& context, Reader<messages::StreamingOutputCallRequest> requests,
                                           Writer<messages::StreamingOutputCallResponse> replies) {
  service_parts::echo_metadata(context);
  while (true) {
    const auto request = co_await requests.next();
    if (!request) co_return std::unexpected(request.error());
    if (!*request) co_return Result<void>{};
    if ((*request)->has_orca_oob_report()) load_reports_.set((*request)->orca_oob_report());
    const auto responded = co_await service_parts::respond(context, **request, replies);
    if (!responded) co_return responded;
  }
}

Task<Result<void>> Service::HalfDuplexCall(Context& context, Reader<messages::StreamingOutputCallRequest> requests,
                                           Writer<messages::StreamingOutputCallResponse> replies) {
  messages::StreamingOutputCallRequest all;
  while (true) {
    const auto request = co_await requests.next();
    if (!request) co_return std::unexpected(request.error());
    if (!*request) break;
    all.MergeFrom(**request);
  }
  co_return co_await service_parts::respond(context, all, replies);
}

}  // namespace hawser::grpc_interop
