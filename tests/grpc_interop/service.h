#pragma once

#include <mutex>

#include "hawser/hawser.h"
#include "interop.hawser.h"
#include "orca.hawser.h"

// The services of gRPC's interoperability tests.
namespace hawser::grpc_interop {

namespace messages = ::grpc::testing;
namespace orca = ::xds::service::orca::v3;

// The name of the trailing metadata with the load report of a call.
inline constexpr std::string_view load_report_name = "endpoint-load-metrics-bin";

orca::OrcaLoadReport load_report(const messages::TestOrcaReport& given);

// Sends the report that was set last, at the interval for which the caller asks.
class LoadReports final : public orca::OpenRcaService {
 public:
  Task<Result<void>> StreamCoreMetrics(Context& context, const orca::OrcaLoadReportRequest& request,
                                       Writer<orca::OrcaLoadReport> reports) override;
  // May be called on any thread.
  void set(const messages::TestOrcaReport& given);

 private:
  std::mutex mutex_;
  orca::OrcaLoadReport last_;
};

class Service final : public messages::TestService {
 public:
  // Registers this service and that of the load reports.
  void add_to(Server& server) {
    server.add_service(this);
    server.add_service(&load_reports_);
  }
  Task<Result<messages::Empty>> EmptyCall(Context& context, const messages::Empty& request) override;
  Task<Result<messages::SimpleResponse>> UnaryCall(Context& context, const messages::SimpleRequest& request) override;
  Task<Result<void>> StreamingOutputCall(Context& context, const messages::StreamingOutputCallRequest& request,
                                         Writer<messages::StreamingOutputCallResponse> replies) override;
  Task<Result<messages::StreamingInputCallResponse>> StreamingInputCall(
      Context& context, Reader<messages::StreamingInputCallRequest> requests) override;
  Task<Result<void>> FullDuplexCall(Context& context, Reader<messages::StreamingOutputCallRequest> requests,
                                    Writer<messages::StreamingOutputCallResponse> replies) override;
  Task<Result<void>> HalfDuplexCall(Context& context, Reader<messages::StreamingOutputCallRequest> requests,
                                    Writer<messages::StreamingOutputCallResponse> replies) override;

 private:
  LoadReports load_reports_;
};

}  // namespace hawser::grpc_interop
