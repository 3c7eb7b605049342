#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "transport/conformance/transport_suite_testing.h"
#include "transport/ucx/core/ucx_worker.h"
#include "transport/ucx/ucx_transport.h"

// What every path promises, over the UCX transports that a machine without RDMA has.
namespace hawser::transport {
namespace {

// The first IPv4 address that an RDMA device of this machine has, from its table of GIDs; empty if there is none.
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

// Each of `hows` that a path can be tested in.
std::vector<TransportCase> ucx_cases(const std::string& name, const UcxOptions& options,
                                     const std::vector<std::string>& hows) {
  // Once a process, as each test is one.
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

const UcxOptions tcp{.tls = "tcp,self"};
const UcxOptions tcp_peer{.tls = "tcp", .error_mode = UcxErrorMode::peer};

// The sanitizers slow everything down: with them TCP in both error modes has to do.
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
                         testing::ValuesIn(ucx_cases("ucx_posix", {.tls = "posix,cma,self"},
                                                     plain ? std::vector<std::string>{"_two_loops_event"} : none)),
                         name_of_transport_case);
// Soft-RoCE among them, over which UCX's UD transport, which worker addresses need, does not work.
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
