#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "hawser/hawser.h"
#include "tests/at_rest.h"
#include "tests/rdma/counters.h"
#include "tests/testing.h"

// Tests of the whole library over an RDMA device, such as that of tools/rdma-guest. They are skipped without a device.
namespace hawser::rdma_tests {

using namespace testing_tools;

// Returns why no device can be used; empty if one can.
std::string absent();

// Returns the resources in use on the first device: "pd", "cq", "qp", "mr", "srq" and so on, as `rdma resource` counts.
std::map<std::string, std::uint64_t> resources();

// Returns options that require RDMA.
TransportOptions rdma_only(RdmaOptions options = {});

inline ServerOptions server_options(RdmaOptions options = {}) {
  ServerOptions server;
  server.loop.log = no_log();
  server.handshake_timeout = patience;
  server.transports = rdma_only(std::move(options));
  return server;
}
inline ClientOptions client_options(RdmaOptions options = {}) {
  return {.connect_timeout = patience, .transports = rdma_only(std::move(options))};
}

// Checks after every test that no receiver was not ready, and that no resource is left on the device.
class Device : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

 private:
  std::uint64_t not_ready_ = 0;
  std::map<std::string, std::uint64_t> resources_;
};

}  // namespace hawser::rdma_tests
