#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hawser/transport/remote_memory.h"
#include "heap/external_block.h"
#include "transport/rdma/connection/half_open.h"
#include "transport/rdma/device/path_mtus.h"
#include "transport/sim/rdma/test/rdma_transport_testing.h"

// Tests the RDMA transport's handshakes, bounds and events on simulated devices.
namespace hawser::transport {
namespace {

using namespace std::chrono_literals;
using rdma::DeviceEventKind;
using testing::HasSubstr;

std::vector<std::byte> with_address(const rdma::Gid& address, Bytes parameters) {
  auto changed = rdma::RdmaParameters::decode(parameters);
  EXPECT_TRUE(changed);
  changed->gid = address;
  return changed->encode();
}

// A device that is selected by name has several addresses, one for each network of its port. A wrong address leads to
// another network.
TEST_F(SimRdmaTransport, TheAddressOfTheStreamIsTakenOnANamedDeviceToo) {
  const auto held = device("sim0");
  held->add_address({.index = 1, .gid = address_of(7, 1), .type = rdma::GidType::roce_v2});
  const Side client = side("sim0");
  EXPECT_EQ(rdma::RdmaOffer::decode(client.worker->select_device("10.0.7.1:4000").offer())->gid, address_of(7, 1));
  EXPECT_EQ(rdma::RdmaOffer::decode(client.worker->select_device("10.0.0.1:4000").offer())->gid, address_of(0, 1));
  EXPECT_EQ(rdma::RdmaOffer::decode(client.worker->select_device("unix:@x").offer())->gid, address_of(0, 1));
  const Side server = side("sim1");
  const auto selected =
      finish_half(loop, server.worker->select(client.worker->select_device("10.0.7.1:4000").offer(), limits));
  ASSERT_TRUE(selected);
  const auto accepted = accept(client.worker->select_device("10.0.7.1:4000"), **selected);
  ASSERT_TRUE(accepted);
  EXPECT_EQ(rdma::RdmaParameters::decode((*accepted)->parameters())->gid, address_of(7, 1));
}

TEST_F(SimRdmaTransport, AClientMustConnectFromTheAddressThatItOffered) {
  Side client = side("sim0");
  Side server = side("sim1");
  const auto selected = select(server, client);
  ASSERT_TRUE(selected);
  const auto accepted = accept(*client.worker, **selected);
  ASSERT_TRUE(accepted);
  const auto refused = finish_connect(loop, **selected, with_address(address_of(0, 99), (*accepted)->parameters()));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::protocol_error);
  EXPECT_THAT(refused.error().text, HasSubstr("10.0.0.99"));
  // The pending connection has not changed.
  EXPECT_TRUE(finish_connect(loop, **selected, (*accepted)->parameters()));
}

// Nobody can sign what a device does. So a connection of signed or sealed messages gives the peer's device no access.
TEST_F(SimRdmaTransport, AConnectionOfProtectedMessagesServesNoReads) {
  Side client = side("sim0");
  Side server = side("sim1");
  constexpr transport::MessageLimits protect{1 << 20, 1 << 20, true};
  const auto selected = finish_half(loop, server.worker->select(client.worker->offer(), protect));
  ASSERT_TRUE(selected);
  EXPECT_EQ(rdma::RdmaParameters::decode((*selected)->parameters())->reads, 0U);
  // The client's side serves reads, such as that of an earlier version. Nevertheless neither side has access.
  const auto accepted = accept(*client.worker, **selected);
  ASSERT_TRUE(accepted);
  EXPECT_NE(rdma::RdmaParameters::decode((*accepted)->parameters())->reads, 0U);
  ASSERT_TRUE(finish_connect(loop, **selected, (*accepted)->parameters()));
  auto [a, b] = transport::LoopStream::make_pair();
  RecordingSink sinks[2];
  const auto at_server = (*selected)->open(std::move(b));
  const auto at_client = (*accepted)->open(std::move(a));
  at_server->start(sinks[0]);
  at_client->start(sinks[1]);
  EXPECT_EQ(at_server->remote_memory()->domain(), 0U);
  EXPECT_EQ(at_client->remote_memory()->domain(), 0U);
}

TEST_F(SimRdmaTransport, HandshakesThatDoNotEndAreBoundedAndOldOnesGiveWay) {
  Side client = side("sim0");
  Side server = side("sim1", {.half_open_max = 3});
  std::vector<std::unique_ptr<transport::PendingConnection>> pendings;
  for (int i = 0; i < 3; ++i) {
    auto one = select(server, client);
    ASSERT_TRUE(one);
    pendings.push_back(std::move(*one));
  }
  const auto refused = select(server, client);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::overloaded);
  EXPECT_THAT(refused.error().text, HasSubstr("half_open_max"));
  // A pending connection that ends makes room for another one.
  pendings.pop_back();
  auto fourth = select(server, client);
  ASSERT_TRUE(fourth);
  run_for(1ms);
  EXPECT_EQ(server.transport->memory()[0].connections, 3U);
  run_for(rdma::HalfOpen::patience);
  auto fifth = select(server, client);
  ASSERT_TRUE(fifth);
  run_for(1s);
  EXPECT_EQ(server.transport->memory()[0].connections, 3U);
  const auto late = accept(*client.worker, *pendings[1]);
  ASSERT_TRUE(late);
  const auto gone = finish_connect(loop, *pendings[0], (*late)->parameters());
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().text, HasSubstr("gave way"));
  EXPECT_TRUE(finish_connect(loop, *pendings[1], (*late)->parameters()));
  // A connection that is opened is not half-open any more.
  auto [a, b] = transport::LoopStream::make_pair();
  const auto opened = pendings[1]->open(std::move(a));
  EXPECT_TRUE(select(server, client));
}

// The handshake runs step by step, without blocking. At each step, either pending connection may be destroyed or give
// way. It leaves no resources.
TEST_F(SimRdmaTransport, PendingConnectionsGoAtEachStepOfTheirMaking) {
  Side client = side("sim0");
  Side server = side("sim1", {.half_open_max = 1});
  const auto expect_nothing = [&](const char* when) {
    run_for(1s);
    for (const Side* const one : {&client, &server}) {
      EXPECT_EQ(one->transport->memory()[0].connections, 0U) << when;
      EXPECT_EQ(one->transport->memory()[0].used_bytes, 0U) << when;
    }
  };
  const transport::PendingConnection::Ready never = [](const Result<void>&) { ADD_FAILURE() << "it has gone"; };
  const auto wait = [&](transport::PendingConnection& pending) {
    std::optional<Result<void>> outcome;
    pending.when_ready([&](const Result<void>& how) { outcome.emplace(how); });
    EXPECT_FALSE(outcome) << "within the call";
    run_for(1ms);
    EXPECT_TRUE(outcome && *outcome);
  };
  for (int step = 0; step < 6; ++step) {
    auto selected = server.worker->select(client.worker->offer(), limits);
    ASSERT_TRUE(selected);
    if (step == 0) {
      (*selected)->when_ready(never);
      selected->reset();
      expect_nothing("the server's half is being made");
      continue;
    }
    wait(**selected);
    auto accepted = client.worker->accept((*selected)->parameters(), limits);
    ASSERT_TRUE(accepted);
    if (step == 1) {
      (*accepted)->when_ready(never);
      accepted->reset();
      selected->reset();
      expect_nothing("the client's half is being made");
      continue;
    }
    wait(**accepted);
    if (step == 2) {
      (*selected)->connect((*accepted)->parameters(), never);
      selected->reset();
      accepted->reset();
      expect_nothing("the server's half is being connected");
      continue;
    }
    std::optional<Result<void>> outcome;
    const auto note = [&](const Result<void>& how) { outcome.emplace(how); };
    if (step == 3) {
      run_for(rdma::HalfOpen::patience);
      (*selected)->connect((*accepted)->parameters(), note);
      auto newer = server.worker->select(client.worker->offer(), limits);
      ASSERT_TRUE(newer);
      run_for(1ms);
      ASSERT_TRUE(outcome);
      ASSERT_FALSE(*outcome);
      EXPECT_THAT(outcome->error().text, HasSubstr("gave way"));
      newer->reset();
    } else if (step == 4) {
      (*selected)->connect((*accepted)->parameters(), note);
      device("sim1")->raise(
          {.kind = DeviceEventKind::completion_queue_overrun,
           .queue = static_cast<rdma::CompletionQueue*>(device("sim1")->completion_queues().front())});
      run_for(1ms);
      ASSERT_TRUE(outcome) << "nobody is told";
      EXPECT_FALSE(*outcome);
      server.worker = *server.transport->attach(loop);
    } else {
      (*selected)->connect((*accepted)->parameters(), note);
      run_for(1ms);
      ASSERT_TRUE(outcome && *outcome);
      // A connected pending connection is not half-open any more.
      EXPECT_TRUE(server.worker->select(client.worker->offer(), limits));
    }
    selected->reset();
    accepted->reset();
    expect_nothing("later");
  }
}

// Each handshake needs 2.3 MiB with the default options, so the limit of their memory depends on the available memory.
TEST_F(SimRdmaTransport, HalfOpenHandshakesHoldAQuarterOfTheMemoryAtMost) {
  Side client = side("sim0");
  Side server = side("sim1", {.chunk_bytes = 64 << 10, .memory_bytes_max = 8 << 20, .arena_bytes = 1 << 20});
  std::vector<std::unique_ptr<transport::PendingConnection>> pendings;
  while (pendings.size() < 64) {
    auto one = select(server, client);
    if (!one) {
      EXPECT_THAT(one.error().text, HasSubstr("half_open_max"));
      break;
    }
    pendings.push_back(std::move(*one));
  }
  EXPECT_EQ(pendings.size(), 4U);
}

TEST_F(SimRdmaTransport, PortIsAskedForEachConnection) {
  Side client = side("sim0");
  Side server = side("sim1");
  const auto held = device("sim1");
  rdma::PortStatus changed = *held->port(1);
  changed.mtu_bytes = 1024;
  changed.lid = 77;
  held->set_port(changed);
  const auto selected = select(server, client);
  ASSERT_TRUE(selected);
  const auto sent = rdma::RdmaParameters::decode((*selected)->parameters());
  EXPECT_EQ(sent->mtu_bytes, 1024U);
  EXPECT_EQ(sent->lid, 77U);
  changed.active = false;
  held->set_port(changed);
  const auto refused = select(server, client);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr("is down"));
}

// A link that fails for a moment ends no connection: the devices send lost packets again.
TEST_F(SimRdmaTransport, APortThatIsDownForAMomentEndsNothing) {
  Side client = side("sim0");
  Side server = side("sim1", {.port_down_grace = 500ms});
  const auto pair = connect(client, server);
  ASSERT_NE(pair, nullptr);
  const auto held = device("sim1");
  rdma::PortStatus status = *held->port(1);
  const auto set_active = [&](bool active) {
    status.active = active;
    held->set_port(status);
    held->raise({.kind = active ? DeviceEventKind::port_up : DeviceEventKind::port_down, .port = 1});
  };
  for (int i = 0; i < 3; ++i) {
    set_active(false);
    run_for(400ms);
    set_active(true);
    run_for(400ms);
  }
  // The worker notices without an event that the port is up again.
  set_active(false);
  run_for(100ms);
  status.active = true;
  held->set_port(status);
  run_for(2s);
  EXPECT_FALSE(pair->server_sink.closed);
  send(*pair->client, "still there");
  run_for(100ms);
  EXPECT_THAT(pair->server_sink.messages, testing::ElementsAre("still there"));
  // The state of another port does not matter.
  held->raise({.kind = DeviceEventKind::port_down, .port = 2});
  run_for(1s);
  EXPECT_FALSE(pair->server_sink.closed);
  set_active(false);
  run_for(499ms);
  EXPECT_FALSE(pair->server_sink.closed);
  run_for(2ms);
  ASSERT_TRUE(pair->server_sink.closed);
  EXPECT_THAT(pair->server_sink.closed->text, HasSubstr("port is down"));
  EXPECT_EQ(pair->server_sink.closed->scope, ErrorScope::transport);
  // The worker remains: connections that are made after the port is up again work.
  EXPECT_TRUE(server.worker->usable());
  set_active(true);
  run_for(1ms);
  EXPECT_NE(connect(client, server), nullptr);
}

// A worker without its completion queue carries nothing any more. It is replaced, and no other worker is.
TEST_F(SimRdmaTransport, AnEndWhoseCompletionQueueOverranIsReplaced) {
  Side client = side("sim0");
  Side server = side("sim1");
  const auto pair = connect(client, server);
  ASSERT_NE(pair, nullptr);
  const auto held = device("sim1");
  int other = 0;
  held->raise({.kind = DeviceEventKind::completion_queue_overrun, .queue = &other});
  run_for(10ms);
  EXPECT_FALSE(pair->server_sink.closed);
  EXPECT_TRUE(server.worker->usable());
  const std::weak_ptr<transport::TransportWorker> before = server.worker;
  // Adds more entries than the queue has: those of a queue pair that nobody polls.
  const auto queue = held->completion_queues().front();
  for (std::size_t i = 0; i <= RdmaOptions{}.cq_entries; ++i) {
    queue->add({.id = 1, .queue_pair = 0xffffff}, fabric->now_ns(), false);
  }
  run_for(10ms);
  ASSERT_TRUE(pair->server_sink.closed);
  EXPECT_THAT(pair->server_sink.closed->text, HasSubstr("ran over"));
  EXPECT_FALSE(server.worker->usable());
  EXPECT_FALSE(select(server, client)) << "over a queue that carries nothing";
  const auto anew = server.transport->attach(loop);
  ASSERT_TRUE(anew);
  ASSERT_NE(*anew, before.lock());
  server.worker = *anew;
  EXPECT_TRUE(server.worker->usable());
  const auto again = connect(client, server);
  ASSERT_NE(again, nullptr);
  send(*again->client, "anew");
  run_for(10ms);
  EXPECT_THAT(again->server_sink.messages, testing::ElementsAre("anew"));
}

// For a limited time, the client reduces the packets of both sides toward a server that its long packets do not reach.
TEST_F(SimRdmaTransport, ShorterPacketsAreUsedTowardAPeerThatLongOnesDoNotReach) {
  Side client = side("sim0");
  Side server = side("sim1");
  const auto mtu_of_next = [&]() -> unsigned {
    const auto selected = select(server, client);
    const auto accepted = accept(*client.worker, **selected);
    EXPECT_TRUE(finish_connect(loop, **selected, (*accepted)->parameters()));
    return rdma::RdmaParameters::decode((*accepted)->parameters())->mtu_bytes;
  };
  const auto parameters = (*select(server, client))->parameters();
  EXPECT_EQ(mtu_of_next(), 4096U);
  EXPECT_EQ(client.worker->probe_bytes(), 2 * 4096U);
  for (const unsigned mtu : {1024U, 512U, 256U}) {
    EXPECT_TRUE(client.worker->use_shorter_packets(parameters));
    EXPECT_EQ(mtu_of_next(), mtu);
  }
  EXPECT_FALSE(client.worker->use_shorter_packets(parameters));
  const auto another = with_address(address_of(0, 9), parameters);
  EXPECT_TRUE(client.worker->use_shorter_packets(another));
  EXPECT_EQ(mtu_of_next(), 256U);
  run_for(rdma::PathMtus::lifetime);
  EXPECT_EQ(mtu_of_next(), 4096U);
  EXPECT_FALSE(client.worker->use_shorter_packets(Bytes{}));
}

// The ports agree on 4096 bytes, and a switch between them does not pass such packets.
TEST_F(SimRdmaTransport, ShorterPacketsPassWhereLongOnesAreLost) {
  Side client = side("sim0");
  Side server = side("sim1");
  for (const char* const name : {"sim0", "sim1"}) device(name)->lose_packets_beyond(1500);
  const std::string text(transport::transport_probe_bytes_max, 'x');
  const auto before = connect(client, server);
  ASSERT_NE(before, nullptr);
  send(*before->client, "short");
  run_for(1ms);
  EXPECT_EQ(before->server_sink.messages.size(), 1U);
  send(*before->client, text);
  run_for(20s);
  ASSERT_TRUE(before->client_sink.closed);
  EXPECT_THAT(before->client_sink.closed->text, HasSubstr("does not answer"));
  EXPECT_EQ(before->server_sink.messages.size(), 1U);
  EXPECT_TRUE(client.worker->use_shorter_packets((*select(server, client))->parameters()));
  const auto after = connect(client, server);
  ASSERT_NE(after, nullptr);
  send(*after->client, text);
  send(*after->server, text);
  run_for(1s);
  EXPECT_THAT(after->server_sink.messages, testing::ElementsAre(text));
  EXPECT_THAT(after->client_sink.messages, testing::ElementsAre(text));
}

struct Counted final : ExternalBlock {
  Counted() : ExternalBlock([](ExternalBlock&) noexcept {}) {}
};

TEST_F(SimRdmaTransport, ExposingGoesOnWithoutTheDevicesThatRefuse) {
  fabric = SimFabric::create({}, 1, 5);
  const auto transport = transport::make_rdma_transport({.huge_pages = false}, fabric);
  std::vector<std::byte> memory(8192);
  Counted block;
  auto registered = transport->register_memory(memory, block, false);
  ASSERT_TRUE(registered) << registered.error().text;
  std::vector<std::shared_ptr<SimDevice>> devices;
  for (int i = 0; i < 5; ++i) devices.push_back(device("sim" + std::to_string(i)));
  devices[3]->refuse_memory(true);
  auto exposed = (*registered)->expose(memory, true, true);
  ASSERT_TRUE(exposed) << exposed.error().text;
  EXPECT_EQ((*exposed)->places().size(), 4U);
  EXPECT_THAT((*exposed)->left_out(), testing::ElementsAre(HasSubstr("sim3: ")));
  for (const auto& one : devices) one->refuse_memory(true);
  const auto refused = (*registered)->expose(memory, true, true);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::overloaded);
}

TEST_F(SimRdmaTransport, AnExposureSaysThatItsDeviceWasReset) {
  const Side server = side("sim1");
  std::vector<std::byte> memory(8192);
  Counted block;
  auto registered = server.transport->register_memory(memory, block, false);
  ASSERT_TRUE(registered);
  auto exposed = (*registered)->expose(memory, true, true);
  ASSERT_TRUE(exposed);
  EXPECT_FALSE((*exposed)->lost());
  device("sim1")->raise({.kind = DeviceEventKind::device_fatal});
  run_for(1ms);
  EXPECT_TRUE((*exposed)->lost());
  EXPECT_FALSE(server.worker->usable());
  auto anew = (*registered)->expose(memory, true, true);
  ASSERT_TRUE(anew);
  EXPECT_FALSE((*anew)->lost());
}

}  // namespace
}  // namespace hawser::transport
