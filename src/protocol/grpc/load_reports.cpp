#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

#include "base/try.h"
#include "hawser/any_stop.h"
#include "hawser/grpc.h"
#include "hawser/grpc_load_reports.h"
#include "protocol/grpc/own_method.h"
#include "protocol/grpc/status.h"
#include "rpc/port/load_report_message.h"
#include "rpc/server/live_options.h"

namespace hawser {
namespace {

using rpc::LoadReportBytes;

// The handler, which the server owns.
struct LoadReportService {
  const LoadReports reports;
  const GrpcLoadReportOptions options;

  Task<Result<void>> stream(Context& context, LoadReportBytes request, Writer<LoadReportBytes> out) {
    const Duration interval = std::max(options.interval_min, rpc::read_load_report_request(request.bytes));
    const AnyStop stop(context.token(), context.stopping());
    for (;;) {
      const LoadReportBytes report{rpc::load_report_message(reports.report(context.loop().now()))};
      CO_TRY(co_await out.write(report));
      static_cast<void>(co_await context.loop().sleep(interval, stop.token()));
      if (context.token().stop_requested()) co_return fail(ErrorCode::cancelled, "the caller reads no longer");
      if (context.stopping().stop_requested()) {
        co_return fail(grpc_error(static_cast<int>(protocol::grpc::GrpcStatus::unavailable), "the server is stopping"));
      }
    }
  }
};

}  // namespace

GrpcLoadReports::GrpcLoadReports(Server& server, LoadReports reports, GrpcLoadReportOptions options) {
  if (options.interval_min < std::chrono::milliseconds(1)) {
    throw std::invalid_argument("hawser: GrpcLoadReportOptions::interval_min is " +
                                rpc::option_text(options.interval_min) + ", and must be at least 1 ms");
  }
  const auto service = std::make_shared<LoadReportService>(std::move(reports), options);
  protocol::grpc::add_own_method<&LoadReportService::stream>(server, service,
                                                             method_name_override<&rpc::stream_core_metrics>);
}

}  // namespace hawser
