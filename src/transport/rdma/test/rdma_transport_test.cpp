#include "transport/rdma/rdma_transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "transport/conformance/transport_suite_testing.h"
#include "transport/rdma/device/verbs.h"
#include "transport/rdma/protocol/sender.h"

namespace hawser::transport {
namespace {

// Returns why this machine has no RDMA device; empty if it has one. A device that exists and cannot be used is a
// failure, not an absence.
std::string absent() {
  const auto names = rdma::system_verbs()->devices();
  if (!names) return "no RDMA: " + names.error().text;
  return names->empty() ? "no RDMA device" : "";
}

RdmaOptions strict() {
  RdmaOptions options;
  options.rnr_retries = 0;  // A receiver that is not ready ends the connection, and so fails the test.
  options.memory_bytes_max = std::size_t{512} << 20;
  return options;
}

RdmaOptions shared() {
  RdmaOptions options = strict();
  options.shared_receive_queue = true;
  return options;
}

std::vector<TransportCase> cases() {
  const std::string why = absent();
  const RdmaOptions defaults;
  std::vector<TransportCase> all = transport_cases(
      "rdma", [] { return make_rdma_transport(strict()); },
      {defaults.inline_bytes, defaults.eager_bytes_max, defaults.chunk_bytes - 64, defaults.chunk_bytes}, why);
  const RdmaOptions small = shared();
  const std::vector<TransportCase> more = transport_cases(
      "rdma_shared", [] { return make_rdma_transport(shared()); },
      {small.shared_chunk_bytes - 64, small.shared_chunk_bytes}, why);
  // The loops differ in how they wait, which makes no difference to the queue pairs. Soft-RoCE on emulated processors
  // takes minutes for each configuration, so one waits by polling and one for events, each with its kind of receive
  // queue.
  std::erase_if(all, [](const TransportCase& one) { return one.name != "rdma_two_loops"; });
  std::copy_if(more.begin(), more.end(), std::back_inserter(all),
               [](const TransportCase& one) { return one.name == "rdma_shared_two_loops_event"; });
  for (TransportCase& one : all) {
    one.slow = true;
    // Everything that one side has posted, the other side's send window, and its copies.
    one.held_back_bytes_max = (std::size_t{4} << 20) + rdma::RendezvousOffers::copies_bytes_max;
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Rdma, TransportSuite, testing::ValuesIn(cases()), name_of_transport_case);

}  // namespace
}  // namespace hawser::transport
