#pragma once

#include "hawser/load_reports.h"
#include "hawser/server.h"

namespace hawser {

struct GrpcLoadReportOptions {
  // Clients that ask for more frequent reports get them in this interval. At least 1 ms.
  Duration interval_min = std::chrono::seconds(30);
};

// The service xds.service.orca.v3.OpenRcaService, whose clients receive reports of the load in the interval that they
// ask for, without calls. Link hawser::grpc.
class GrpcLoadReports {
 public:
  // Registers the service, which the server owns. Call it before the server starts. Throws std::invalid_argument if an
  // option is out of its range.
  GrpcLoadReports(Server& server, LoadReports reports, GrpcLoadReportOptions options = {});
};

}  // namespace hawser
