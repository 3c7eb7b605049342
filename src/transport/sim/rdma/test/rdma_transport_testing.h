#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/loop.h"
#include "transport/common/pending_step.h"
#include "transport/conformance/loop_stream_testing.h"
#include "transport/rdma/connection/parameters.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/sim/rdma/fabric_poller.h"
#include "transport/sim/rdma/sim_device.h"

namespace hawser::transport {

// `x` and `y` are the last bytes of ::ffff:10.0.x.y.
inline rdma::Gid address_of(unsigned x, unsigned y) {
  rdma::Gid gid;
  gid.bytes[10] = gid.bytes[11] = std::byte{0xff};
  gid.bytes[12] = std::byte{10};
  gid.bytes[14] = static_cast<std::byte>(x);
  gid.bytes[15] = static_cast<std::byte>(y);
  return gid;
}

// Records the messages of a connection, and its end.
struct RecordingSink final : transport::MessageSink {
  void on_message(const transport::Message& message) override {
    messages.emplace_back(as_text(message.head));
    payload_bytes += message.payload.size();
  }
  transport::ReceiveBuffer select_receive_buffer(Bytes, std::size_t) override { return {}; }
  void on_drained() override {}
  void on_closed(const Error& reason) override { closed = reason; }

  std::vector<std::string> messages;
  std::size_t payload_bytes = 0;
  std::optional<Error> closed;
};

// The two sides of an RDMA transport on simulated devices, on one loop in virtual time. "sim0" is the client's device
// and "sim1" the server's.
class SimRdmaTransport : public testing::Test {
 protected:
  static constexpr transport::MessageLimits limits{1 << 20, 1 << 20};

  struct Side {
    std::shared_ptr<transport::Transport> transport;
    std::shared_ptr<transport::TransportWorker> worker;
  };
  // Two connections to each other.
  struct Pair {
    RecordingSink client_sink;
    RecordingSink server_sink;
    std::unique_ptr<transport::Connection> client;
    std::unique_ptr<transport::Connection> server;
  };

  Side side(const std::string& device, RdmaOptions options = {}) {
    options.device = device;
    options.huge_pages = false;
    Side made{transport::make_rdma_transport(options, fabric), nullptr};
    auto worker = made.transport->attach(loop);
    EXPECT_TRUE(worker) << (worker ? "" : worker.error().text);
    if (worker) made.worker = *worker;
    return made;
  }
  std::shared_ptr<SimDevice> device(const std::string& name) {
    return std::static_pointer_cast<SimDevice>(*fabric->open(name));
  }
  // The steps of a handshake.
  Result<std::unique_ptr<transport::PendingConnection>> select(Side& server, Side& client) {
    return finish_half(loop, server.worker->select(client.worker->offer(), limits));
  }
  Result<std::unique_ptr<transport::PendingConnection>> accept(transport::TransportWorker& client,
                                                               transport::PendingConnection& server) {
    return finish_half(loop, client.accept(server.parameters(), limits));
  }
  // Executes the whole handshake.
  std::unique_ptr<Pair> connect(Side& client, Side& server) {
    auto selected = select(server, client);
    if (!selected) return failed(selected.error());
    auto accepted = accept(*client.worker, **selected);
    if (!accepted) return failed(accepted.error());
    if (auto done = finish_connect(loop, **selected, (*accepted)->parameters()); !done) return failed(done.error());
    auto [a, b] = transport::LoopStream::make_pair();
    auto pair = std::make_unique<Pair>();
    pair->server = (*selected)->open(std::move(b));
    pair->client = (*accepted)->open(std::move(a));
    pair->server->start(pair->server_sink);
    pair->client->start(pair->client_sink);
    return pair;
  }
  static std::unique_ptr<Pair> failed(const Error& error) {
    ADD_FAILURE() << error.text;
    return nullptr;
  }
  static void send(transport::Connection& connection, std::string_view text) {
    std::byte* const room = connection.reserve(text.size());
    ASSERT_NE(room, nullptr);
    std::memcpy(room, text.data(), text.size());
    connection.commit(text.size(), {}, nullptr);
  }
  // Lets virtual time pass.
  void run_for(Duration duration) {
    loop.run([](Loop& on, Duration time) -> Task<void> { co_await on.sleep(time); }(loop, duration));
  }

  std::shared_ptr<SimFabric> fabric = SimFabric::create({}, 1);
  Loop loop{std::make_unique<FabricPoller>(fabric), {.log = no_log()}};
};

}  // namespace hawser::transport
