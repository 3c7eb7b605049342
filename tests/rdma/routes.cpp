// Machines with several devices: the route to the peer determines which device carries a connection.
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "hawser/rdma.h"
#include "tests/rdma/device.h"
#include "tests/rdma/own_device.h"

namespace hawser::rdma_tests {

inline std::uint64_t size_of_it(Context& context) { return context.attachment().size(); }

inline RdmaCounters counters_of(const Server& server, const std::string& device) {
  for (RdmaCounters& one : rdma_counters(server)) {
    if (one.device == device) return one;
  }
  return {};
}

// Client and server are on one machine, so both pending connections use the device to which the address belongs.
TEST_F(Device, AConnectionTakesTheDeviceThatHasItsAddress) {
  const std::array<OwnDevice, 2> devices{OwnDevice(2), OwnDevice(3)};
  NEEDS_OWN_DEVICE(devices[0]);
  NEEDS_OWN_DEVICE(devices[1]);
  Loop loop({.log = no_log()});
  ServerOptions options = server_options();
  options.listen = "0.0.0.0:0";
  Server server(loop, options);
  server.register_handler<size_of_it>();
  ASSERT_TRUE(server.start());
  const std::string port = server.address().substr(server.address().rfind(':'));
  loop.run([](Loop& on, Server& serving, const std::array<OwnDevice, 2>& own, std::string behind) -> Task<void> {
    Result<RegisteredBuffer> theirs = RegisteredBuffer::allocate(serving, 1 << 20);
    REQUIRE_OK(theirs);
    Result<ExposedRegion> region = theirs->expose(0, theirs->size(), RegionAccess::read_write);
    REQUIRE_OK(region);
    std::vector<std::unique_ptr<Client>> clients;
    for (std::size_t round = 1; round <= 3; ++round) {
      for (const OwnDevice& device : own) {
        clients.push_back(std::make_unique<Client>(on, client_options()));
        Client& client = *clients.back();
        auto connected = co_await client.connect(device.address() + behind);
        REQUIRE_OK(connected);
        EXPECT_EQ(client.transport(), "rdma");
        const RdmaCounters before = counters_of(serving, device.name());
        EXPECT_EQ(before.connections, 2 * round) << device.name();
        // Memory is registered with the device that the connection uses.
        Result<RegisteredBuffer> buffer = RegisteredBuffer::allocate(client, 1 << 20);
        REQUIRE_OK(buffer);
        const CallOptions size_options{.attachment = buffer->memory()};
        auto size = co_await client.call<size_of_it>(size_options);
        REQUIRE_OK(size);
        EXPECT_EQ(*size, buffer->size());
        EXPECT_EQ(counters_of(serving, device.name()).buffer_sends, before.buffer_sends + 1);
        RemoteMemory remote(client);
        const char letter = static_cast<char>('a' + clients.size());
        std::memset(buffer->memory().data(), letter, buffer->size());
        auto written = co_await remote.write(region->handle(), 0, buffer->memory());
        EXPECT_OK(written);
        EXPECT_EQ(as_text(theirs->memory()).find_first_not_of(letter), std::string_view::npos);
      }
    }
    // The address belongs to no device, so the first device is used.
    Client other(on, client_options());
    auto connected = co_await other.connect("127.0.0.1" + behind);
    REQUIRE_OK(connected);
    EXPECT_EQ(other.transport(), "rdma");
  }(loop, server, devices, port));
}

// A device that the options name is used, whatever the route.
TEST_F(Device, TheDeviceThatIsNamedIsTakenWhateverTheAddress) {
  const OwnDevice named(2);
  const OwnDevice other(3);
  NEEDS_OWN_DEVICE(named);
  NEEDS_OWN_DEVICE(other);
  RdmaOptions rdma;
  rdma.device = named.name();
  Loop loop({.log = no_log()});
  ServerOptions options = server_options(rdma);
  options.listen = "0.0.0.0:0";
  Server server(loop, options);
  server.register_handler<size_of_it>();
  ASSERT_TRUE(server.start());
  loop.run([](Loop& on, Server& serving, RdmaOptions with, std::string to, std::string device) -> Task<void> {
    Client client(on, client_options(with));
    auto connected = co_await client.connect(to);
    REQUIRE_OK(connected);
    REQUIRE(rdma_counters(serving).size() == 1);
    EXPECT_EQ(counters_of(serving, device).connections, 2U);
  }(loop, server, rdma, other.address() + server.address().substr(server.address().rfind(':')), named.name()));
}

}  // namespace hawser::rdma_tests
