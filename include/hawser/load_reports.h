#pragma once

#include <memory>

#include "hawser/interceptor.h"

// The load of a server, which it sends to its clients in the format of ORCA (gRFC A51). Clients that balance by it send
// a server as many calls as it can serve: BalancingOptions::load_weights, and weighted_round_robin of gRPC.
//
//   const hawser::LoadReports load;
//   server.use(load);                             // A report beside each result.
//   hawser::GrpcLoadReports reports(server, load);   // Reports on demand: hawser/grpc_load_reports.h.
namespace hawser {

// xds.data.orca.v3.OrcaLoadReport, as far as balancing uses it. 0: unknown.
struct LoadReport {
  double cpu_utilization = 0;     // Processor time of the process, as a part of that of the processors that it may use.
  double memory_utilization = 0;  // From 0 to 1.
  double application_utilization = 0;  // The application says it. Precedes cpu_utilization. May exceed 1.
  double calls_per_second = 0;
  double errors_per_second = 0;
};

struct LoadReportOptions {
  // Rates and processor time are those of the last whole interval. At least 1 ms.
  Duration interval = std::chrono::seconds(1);
  bool processor_time = true;  // False: cpu_utilization stays 0, such as where processes share a limit of processors.
};

// An interceptor that counts the calls of a server, and sends a report as the metadata `endpoint-load-metrics-bin` of
// each result, over the library's own protocol and gRPC. Errors carry no metadata. Copies share their state. Any
// thread.
class LoadReports {
 public:
  static constexpr std::string_view metadata_name = "endpoint-load-metrics-bin";

  // Throws std::invalid_argument if an option is out of its range.
  explicit LoadReports(LoadReportOptions options = {});
  Task<Result<void>> operator()(IncomingCall& call, Next next) const;

  // Measurements of the application, such as the part of its workers that are busy. Throws std::invalid_argument for a
  // value that is negative or not finite, and for memory above 1.
  void set_application_utilization(double part) const;
  void set_memory_utilization(double part) const;
  // The report at this time, which is that of a loop.
  LoadReport report(Time now) const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace hawser
