#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "transport/conformance/transport_suite_testing.h"
#include "transport/ucx/core/ucx_worker.h"
#include "transport/ucx/ucx_transport.h"

// The conformance suite over UCX: over the UCX transports of any machine, and over RDMA if there is a device.
namespace hawser::transport {
namespace {

// Returns the first IPv4 address in the GID tables of this machine's RDMA devices, or an empty string.
std::string rdma_address() {
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
    for (const auto& entry : std::filesystem::directory_iterator(device.path() / "ports/1/gids", none)) {
      std::string gid;
      std::ifstream(entry.path()) >> gid;
      constexpr std::string_view mapped = "0000:0000:0000:0000:0000:ffff:";
      unsigned high = 0;
      unsigned low = 0;
      if (!gid.starts_with(mapped) || std::sscanf(gid.c_str() + mapped.size(), "%x:%x", &high, &low) != 2) continue;
      return std::to_string(high >> 8) + "." + std::to_string(high & 255) + "." + std::to_string(low >> 8) + "." +
             std::to_string(low & 255);
    }
  }
  return {};
}

// Returns the test cases of `name` whose suffix is listed in `hows`.
std::vector<TransportCase> ucx_cases(const std::string& name, const UcxOptions& options,
                                     const std::vector<std::string>& hows) {
  // Computed once per process, because each test runs in a process of its own.
  static const Result<UcxReport> report = ucx_report({.tls = "tcp"});
  std::string absent = report ? "" : report.error().text;
  if (options.listener_address == ":0") absent = "no RDMA device of this machine has an IPv4 address";
  const auto make = [options] { return make_ucx_transport(options); };
  std::vector<TransportCase> cases = transport_cases(
      name, make, {UcxWorker::copied_bytes_max, options.packed_bytes_max, options.rendezvous_bytes_min}, absent);
  cases.push_back(cases[0]);
  cases.back().name = name + "_one_loop_busy_poll";
  cases.back().loop.wait = Wait::busy_poll;
  for (TransportCase& one : cases) {
    one.slow = options.tls.starts_with("rc_");  // Soft-RoCE on emulated processors.
    one.keeps_descriptors =
        "UCX keeps sockets of closed endpoints until their worker ends; UcxPath.ClosedEndpointsAreBounded";
  }
  std::erase_if(cases, [&](const TransportCase& one) {
    return std::none_of(hows.begin(), hows.end(), [&](const std::string& how) { return one.name == name + how; });
  });
  return cases;
}

const UcxOptions tcp{.tls = "tcp,self", .error_mode = UcxErrorMode::none, .wire_up = UcxWireUp::worker_address};
const UcxOptions tcp_peer{.tls = "tcp", .error_mode = UcxErrorMode::peer, .wire_up = UcxWireUp::worker_address};

// The sanitizers slow everything down, so that only TCP in both error modes is tested with them.
#ifdef HAWSER_SANITIZED
constexpr bool plain = false;
#else
constexpr bool plain = true;
#endif
const std::vector<std::string> none;

INSTANTIATE_TEST_SUITE_P(UcxTcp, TransportSuite,
                         testing::ValuesIn(ucx_cases(
                             "ucx_tcp", tcp,
                             plain ? std::vector<std::string>{"_one_loop_io_uring", "_two_loops", "_one_loop_busy_poll"}
                                   : std::vector<std::string>{"_two_loops"})),
                         name_of_transport_case);
INSTANTIATE_TEST_SUITE_P(UcxTcpPeer, TransportSuite,
                         testing::ValuesIn(ucx_cases("ucx_tcp_peer", tcp_peer, {"_two_loops_event"})),
                         name_of_transport_case);
INSTANTIATE_TEST_SUITE_P(UcxListener, TransportSuite,
                         testing::ValuesIn(ucx_cases("ucx_listener",
                                                     {.tls = "tcp",
                                                      .error_mode = UcxErrorMode::peer,
                                                      .wire_up = UcxWireUp::listener,
                                                      .listener_address = "127.0.0.1:0"},
                                                     plain ? std::vector<std::string>{"_two_loops"} : none)),
                         name_of_transport_case);
INSTANTIATE_TEST_SUITE_P(UcxPosix, TransportSuite,
                         testing::ValuesIn(ucx_cases("ucx_posix",
                                                     {.tls = "posix,cma,self",
                                                      .error_mode = UcxErrorMode::none,
                                                      .wire_up = UcxWireUp::worker_address},
                                                     plain ? std::vector<std::string>{"_two_loops_event"} : none)),
                         name_of_transport_case);
// These cases also run on Soft-RoCE. They use a listener, because worker addresses need UCX's UD transport, which does
// not work there.
INSTANTIATE_TEST_SUITE_P(UcxRdma, TransportSuite,
                         testing::ValuesIn(ucx_cases("ucx_rc",
                                                     {.tls = "rc_verbs,self",
                                                      .error_mode = UcxErrorMode::peer,
                                                      .wire_up = UcxWireUp::listener,
                                                      .listener_address = rdma_address() + ":0"},
                                                     plain ? std::vector<std::string>{"_two_loops_event"} : none)),
                         name_of_transport_case);

}  // namespace
}  // namespace hawser::transport
