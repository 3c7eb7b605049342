// Resources of many connections over RDMA.
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "hawser/rdma.h"
#include "tests/rdma/device.h"

namespace hawser::rdma_tests {

// Not in the unnamed namespace: GCC 12 warns of coroutines whose types have no linkage.
inline std::string_view back(std::string_view text) { return text; }

namespace {

std::size_t resident_bytes() {
  std::ifstream stream("/proc/self/statm");
  std::size_t pages = 0;
  stream >> pages >> pages;
  return pages * 4096;
}

struct Taken {
  std::size_t registered = 0;
  std::size_t resident = 0;
};

// Returns the resources of each end of `connections` connections that have made one call. Both ends are in this
// process.
Taken taken_by(unsigned connections, const RdmaOptions& options) {
  Server server(server_options(options));
  server.register_handler<back>();
  EXPECT_OK(server.start());
  Taken taken;
  sync_wait([](const std::string& address, const RdmaOptions& with, unsigned count, Taken& each) -> Task<void> {
    std::vector<std::unique_ptr<Client>> clients;
    std::size_t used_before = 0;
    std::size_t resident_before = 0;
    for (unsigned i = 0; i <= count; ++i) {
      clients.push_back(std::make_unique<Client>(client_options(with)));
      Client& client = *clients.back();
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      auto reply = co_await client.call<back>("once");
      REQUIRE_OK(reply);
      if (i == 0) {  // The first connection includes the resources of the device.
        used_before = rdma_counters(client).at(0).used_bytes;
        resident_before = resident_bytes();
      }
    }
    const RdmaCounters counters = rdma_counters(*clients.front()).at(0);
    EXPECT_GE(counters.connections, count);
    each.registered = (counters.used_bytes - used_before) / count / 2;
    each.resident = (resident_bytes() - resident_before) / count / 2;
  }(server.address(), options, connections, taken));
  expect_rest(server);
  return taken;
}

TEST_F(Device, AThousandIdleConnectionsTakeLessThan64KiBEach) {
  RdmaOptions options;
  options.shared_receive_queue = true;
  options.cq_entries = 30'000;
  const Taken taken = taken_by(1000, options);
  std::printf("1000 idle connections, shared receives: %zu bytes registered, %zu resident, each end\n",
              taken.registered, taken.resident);
  EXPECT_GT(taken.registered, 8U * 1024) << "not counted";
  EXPECT_LE(taken.registered, 64U * 1024);
}

TEST_F(Device, AnIdleConnectionOfDefaultsTakesLessThanThreeMiB) {
  const Taken taken = taken_by(16, {});
  std::printf("16 idle connections: %zu bytes registered, %zu resident, each end\n", taken.registered, taken.resident);
  EXPECT_GT(taken.registered, 1U << 20) << "not counted";
  EXPECT_LE(taken.registered, 3U << 20);
}

}  // namespace
}  // namespace hawser::rdma_tests
