#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "hawser/rdma.h"
#include "tests/at_rest.h"
#include "tests/tls/attacked_wire.h"
#include "tests/tls/fixture.h"

namespace hawser::testing_tools {

inline std::string return_order(std::string text) { return text; }

// A server and clients with TLS at the ends of an attacked wire. The server returns the texts that it gets.
class RdmaWireFixture : public TlsFixture {
 protected:
  void SetUp() override {
    NEEDS_ATTACKED_WIRE(wire);
    rdma_options.ack_timeout = 14;  // 67 ms. The attacker loses packets.
    options.listen = rdma_tests::Cable::address(1) + ":0";
  }
  void TearDown() override {
    wire.set_carry(nullptr);
    EXPECT_EQ(wire.not_understood(), 0U);
  }
  // The transports of both sides.
  TransportOptions over_rdma(bool required) const {
    TransportOptions transports;
    transports.enabled = {rdma(rdma_options)};
    transports.retry_min = std::chrono::hours(1);
    if (required) transports.required = "rdma";
    return transports;
  }
  TlsClient client_tls(TlsProtection level) const {
    TlsClientOptions made = client_options();
    made.server_name = "localhost";
    made.protection = level;
    return TlsClient(made);
  }
  ClientOptions client_at(const TlsClient& tls, bool required = true) const {
    // The test carries each packet. Large calls take a minute on emulated processors that have other work.
    ClientOptions with{.connect_timeout = patience, .call_timeout = 5 * patience};
    with.transports = over_rdma(required);
    with.security = tls;
    return with;
  }
  // A server at the end 1 of the wire, on this thread's loop.
  std::unique_ptr<Server> server_on(Loop& loop, ServerOptions with) {
    if (tls_options.certificates.empty() && tls_options.shared_keys.empty()) {
      tls_options.certificates = {authority.issue("server")};
    }
    security = std::make_unique<TlsServer>(tls_options);
    with.security = *security;
    with.transports = over_rdma(false);
    auto made = std::make_unique<Server>(loop, with);
    made->register_handler<return_order>();
    return made;
  }
  LoopOptions quiet() const {
    LoopOptions with;
    with.log = options.loop.log;
    return with;
  }

  AttackedWire wire;
  RdmaOptions rdma_options;
};

}  // namespace hawser::testing_tools
