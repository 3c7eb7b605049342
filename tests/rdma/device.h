#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "hawser/hawser.h"
#include "tests/rdma/counters.h"
#include "tests/testing.h"

// Tests of the whole over an RDMA device, as tools/rdma-guest has one. Elsewhere they are skipped.
namespace hawser::rdma_tests {

using namespace testing_tools;

// Why there is nothing to test with; empty if there is.
std::string absent();

// What the first device holds: "pd", "cq", "qp", "mr", "srq" and so on, as `rdma resource` counts.
std::map<std::string, std::uint64_t> resources();

// Over RDMA or not at all.
TransportOptions rdma_only(RdmaOptions options = {});

inline ServerOptions server_options(RdmaOptions options = {}) {
  ServerOptions server;
  server.loop.log = no_log();
  server.transports = rdma_only(std::move(options));
  return server;
}
inline ClientOptions client_options(RdmaOptions options = {}) { return {.transports = rdma_only(std::move(options))}; }

// No receiver that was not ready, and nothing left on the device: after every test.
class Device : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

 private:
  std::uint64_t not_ready_ = 0;
  std::map<std::string, std::uint64_t> resources_;
};

}  // namespace hawser::rdma_tests
