#include <algorithm>

#include "transport/path_suite_testing.h"
#include "transport/ucx/ucx_path.h"
#include "transport/ucx/ucx_worker.h"

// What every path promises, over the UCX transports that a machine without RDMA has.
namespace hawser::transport {
namespace {

// Each of `hows` that a path can be tested in; all of them if none is named.
std::vector<PathCase> ucx_cases(const std::string& name, const UcxOptions& options,
                                const std::vector<std::string>& hows = {}) {
  std::string absent;
  if (const Result<UcxReport> report = ucx_report(options); !report) absent = report.error().text;
  const auto make = [options] { return make_ucx_path(options); };
  std::vector<PathCase> cases = path_cases(
      name, make, {UcxWorker::copied_bytes_max, options.packed_bytes_max, options.rendezvous_bytes_min}, absent);
  cases.push_back(cases[2]);
  cases.back().name = name + "_two_loops_busy_poll";
  cases.back().loop.wait = Wait::busy_poll;
  for (PathCase& one : cases) {
    one.keeps_descriptors =
        "UCX keeps sockets of closed endpoints until their worker ends; UcxPath.ClosedEndpointsAreBounded";
  }
  std::erase_if(cases, [&](const PathCase& one) {
    return !hows.empty() &&
           std::none_of(hows.begin(), hows.end(), [&](const std::string& how) { return one.name == name + how; });
  });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(UcxTcp, PathSuite, testing::ValuesIn(ucx_cases("ucx_tcp", {.tls = "tcp,self"})),
                         name_of_path_case);
INSTANTIATE_TEST_SUITE_P(UcxTcpPeer, PathSuite,
                         testing::ValuesIn(ucx_cases("ucx_tcp_peer", {.tls = "tcp", .error_mode = UcxErrorMode::peer},
                                                     {"_two_loops_event"})),
                         name_of_path_case);
INSTANTIATE_TEST_SUITE_P(UcxListener, PathSuite,
                         testing::ValuesIn(ucx_cases("ucx_listener",
                                                     {.tls = "tcp",
                                                      .error_mode = UcxErrorMode::peer,
                                                      .wire_up = UcxWireUp::listener,
                                                      .listener_address = "127.0.0.1:0"},
                                                     {"_two_loops", "_two_loops_busy_poll"})),
                         name_of_path_case);
INSTANTIATE_TEST_SUITE_P(UcxPosix, PathSuite,
                         testing::ValuesIn(ucx_cases("ucx_posix", {.tls = "posix,cma,self"},
                                                     {"_two_loops", "_two_loops_event"})),
                         name_of_path_case);

}  // namespace
}  // namespace hawser::transport
