#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hawser/loop.h"
#include "hawser/task.h"
#include "hawser/transport/remote_memory.h"
#include "heap/external_block.h"
#include "transport/common/pending_step.h"
#include "transport/rdma/connection/parameters.h"
#include "transport/rdma/connection/rdma_worker.h"
#include "transport/rdma/protocol/records.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/sim/rdma/fabric_poller.h"
#include "transport/sim/rdma/quiet_stream.h"
#include "transport/sim/rdma/sim_device.h"

// Servers of the RDMA transport on a simulated device, well-behaved clients of them, and an attacker with a bare queue
// pair.
namespace hawser::transport {

using std::chrono::milliseconds;

// Records the messages of one connection.
struct CountingSink final : transport::MessageSink {
  void on_message(const transport::Message& message) override {
    ++messages;
    cut = message.cut;
    last.assign(reinterpret_cast<const char*>(message.head.data()), message.head.size());
    if (keep) kept.push_back(message.keep_head());
    if (abort != nullptr) abort->abort();
  }
  transport::ReceiveBuffer select_receive_buffer(Bytes, std::size_t bytes) override {
    selected_bytes += bytes;
    return {};
  }
  detail::ReceiveAccount* receive_account() noexcept override { return account; }
  void on_drained() override {}
  void on_closed(const Error& error) override {
    closed = true;
    reason = error;
  }
  detail::ReceiveAccount* account = nullptr;  // Set before the connection starts.
  std::size_t messages = 0;
  bool cut = false;  // The last message was cut.
  std::string last;
  std::size_t selected_bytes = 0;
  bool closed = false;
  Error reason;
  bool keep = false;
  std::vector<Buffer> kept;
  transport::Connection* abort = nullptr;  // Aborted on the first message.
};

// One connection of a well-behaved client. Both ends are on the loop of the test.
struct HonestPair {
  CountingSink at_server;
  CountingSink at_client;
  std::unique_ptr<transport::Connection> server;
  std::unique_ptr<transport::Connection> client;
};

class RdmaAttack : public ::testing::Test {
 protected:
  static constexpr transport::MessageLimits limits{std::size_t{64} << 20, std::size_t{64} << 20};

  void build(RdmaOptions options, const SimParameters& parameters = {}) {
    fabric_ = SimFabric::create(parameters, 1);
    loop_ = std::make_unique<Loop>(std::make_unique<FabricPoller>(fabric_), LoopOptions{.log = no_log()});
    client_device_ = *fabric_->open("sim0");
    server_device_ = *fabric_->open("sim1");
    options.device = "sim0";
    client_transport_ = transport::make_rdma_transport(options, fabric_);
    options.device = "sim1";
    server_transport_ = transport::make_rdma_transport(options, fabric_);
    client_worker_ = *client_transport_->attach(*loop_);
    server_worker_ = *server_transport_->attach(*loop_);
  }
  static RdmaOptions shared_options() {
    RdmaOptions options;
    options.shared_receive_queue = true;
    return options;
  }

  // If there is an `account`, it pays for the server's connection.
  std::unique_ptr<HonestPair> honest(detail::ReceiveAccount* account = nullptr) {
    auto pair = std::make_unique<HonestPair>();
    pair->at_server.account = account;
    auto server = *finish_half(*loop_, server_worker_->select(client_worker_->offer(), limits));
    auto client = *finish_half(*loop_, client_worker_->accept(server->parameters(), limits));
    EXPECT_TRUE(finish_connect(*loop_, *server, client->parameters()));
    pair->server = server->open(std::make_unique<QuietStream>());
    pair->server->start(pair->at_server);
    pair->client = client->open(std::make_unique<QuietStream>());
    pair->client->start(pair->at_client);
    return pair;
  }
  static void send(transport::Connection& connection, std::string_view text) {
    std::byte* const room = connection.reserve(text.size());
    if (room == nullptr) return;
    std::memcpy(room, text.data(), text.size());
    connection.commit(text.size(), {}, nullptr);
    connection.flush();
  }
  // Lets this virtual time pass.
  void pass(Duration time) {
    loop_->run([](Loop& loop, Duration wait) -> Task<void> { co_await loop.sleep(wait); }(*loop_, time));
  }
  // Checks that `count` messages reach the server, each within a short time.
  void expect_served(HonestPair& pair, std::size_t count = 10) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t before = pair.at_server.messages;
      send(*pair.client, "honest " + std::to_string(i));
      pass(milliseconds(1));
      ASSERT_EQ(pair.at_server.messages, before + 1) << "of an honest client: " << pair.at_client.reason.text;
      EXPECT_EQ(pair.at_server.last, "honest " + std::to_string(i));
    }
  }
  rdma::RdmaWorker& server_worker() { return static_cast<rdma::RdmaWorker&>(server_worker_->select_device({})); }
  SimDevice& server_device() { return static_cast<SimDevice&>(*server_device_); }
  std::size_t used_bytes() { return server_transport_->memory().front().used_bytes; }
  std::size_t connections() { return server_transport_->memory().front().connections; }

  std::shared_ptr<SimFabric> fabric_;
  std::unique_ptr<Loop> loop_;
  std::shared_ptr<rdma::Device> client_device_;
  std::shared_ptr<rdma::Device> server_device_;
  std::shared_ptr<transport::Transport> client_transport_;
  std::shared_ptr<transport::Transport> server_transport_;
  std::shared_ptr<transport::TransportWorker> client_worker_;
  std::shared_ptr<transport::TransportWorker> server_worker_;
};

}  // namespace hawser::transport
