#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/lent_block.h"
#include "transport/rdma/connection/half_open.h"
#include "transport/rdma/device/path_mtus.h"
#include "transport/sim/rdma/test/rdma_path_testing.h"

// The RDMA path's handshakes, bounds and events, on simulated devices.
namespace hawser::lab {
namespace {

namespace rdma = transport::rdma;
using namespace std::chrono_literals;
using rdma::DeviceEventKind;
using testing::HasSubstr;

std::vector<std::byte> with_address(const rdma::Gid& address, Bytes parameters) {
  auto changed = rdma::Parameters::decode(parameters);
  EXPECT_TRUE(changed);
  changed->gid = address;
  return changed->encode();
}

// A named device has several addresses, one for each network of its port: a wrong one leads to another network.
TEST_F(SimRdmaPath, TheAddressOfTheStreamIsTakenOnANamedDeviceToo) {
  const auto held = device("sim0");
  held->add_address({.index = 1, .gid = address_of(7, 1), .type = rdma::GidType::roce_v2});
  const Side client = side("sim0");
  EXPECT_EQ(rdma::Offer::decode(client.end->toward("10.0.7.1:4000").offer())->gid, address_of(7, 1));
  EXPECT_EQ(rdma::Offer::decode(client.end->toward("10.0.0.1:4000").offer())->gid, address_of(0, 1));
  EXPECT_EQ(rdma::Offer::decode(client.end->toward("unix:@x").offer())->gid, address_of(0, 1));
  const Side server = side("sim1");
  const auto proposed = server.end->propose(client.end->toward("10.0.7.1:4000").offer(), limits);
  ASSERT_TRUE(proposed);
  const auto accepted = client.end->toward("10.0.7.1:4000").accept((*proposed)->parameters(), limits);
  ASSERT_TRUE(accepted);
  EXPECT_EQ(rdma::Parameters::decode((*accepted)->parameters())->gid, address_of(7, 1));
}

TEST_F(SimRdmaPath, AClientMustConnectFromTheAddressThatItOffered) {
  Side client = side("sim0");
  Side server = side("sim1");
  const auto proposed = server.end->propose(client.end->offer(), limits);
  ASSERT_TRUE(proposed);
  const auto accepted = client.end->accept((*proposed)->parameters(), limits);
  ASSERT_TRUE(accepted);
  const auto refused = (*proposed)->connect(with_address(address_of(0, 99), (*accepted)->parameters()));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::protocol_error);
  EXPECT_THAT(refused.error().text, HasSubstr("10.0.0.99"));
  // The half is as it was.
  EXPECT_TRUE((*proposed)->connect((*accepted)->parameters()));
}

TEST_F(SimRdmaPath, HandshakesThatDoNotEndAreBoundedAndOldOnesGiveWay) {
  Side client = side("sim0");
  Side server = side("sim1", {.half_open_max = 3});
  const auto propose = [&] { return server.end->propose(client.end->offer(), limits); };
  std::vector<std::unique_ptr<transport::PathHalf>> halves;
  for (int i = 0; i < 3; ++i) {
    auto one = propose();
    ASSERT_TRUE(one);
    halves.push_back(std::move(*one));
  }
  const auto refused = propose();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::overloaded);
  EXPECT_THAT(refused.error().text, HasSubstr("half_open_max"));
  // One that ends has room for another one.
  halves.pop_back();
  auto fourth = propose();
  ASSERT_TRUE(fourth);
  run_for(1ms);
  EXPECT_EQ(server.path->memory()[0].connections, 3U);
  run_for(rdma::HalfOpen::patience);
  auto fifth = propose();
  ASSERT_TRUE(fifth);
  run_for(1s);
  EXPECT_EQ(server.path->memory()[0].connections, 3U);
  const auto late = client.end->accept(halves[1]->parameters(), limits);
  ASSERT_TRUE(late);
  const auto gone = halves[0]->connect((*late)->parameters());
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().text, HasSubstr("gave way"));
  EXPECT_TRUE(halves[1]->connect((*late)->parameters()));
  // One that is opened is not half-open any more.
  auto [a, b] = transport::LoopStream::make_pair();
  const auto opened = halves[1]->open(std::move(a));
  EXPECT_TRUE(propose());
}

// Without blocking, step by step: either half may go, or give way, at each of them, and leaves nothing.
TEST_F(SimRdmaPath, HalvesGoAtEachStepOfTheirMaking) {
  Side client = side("sim0");
  Side server = side("sim1", {.half_open_max = 1});
  const auto expect_nothing = [&](const char* when) {
    run_for(1s);
    for (const Side* const one : {&client, &server}) {
      EXPECT_EQ(one->path->memory()[0].connections, 0U) << when;
      EXPECT_EQ(one->path->memory()[0].used_bytes, 0U) << when;
    }
  };
  const transport::PathHalf::Ready never = [](const Result<void>&) { ADD_FAILURE() << "it has gone"; };
  const auto wait = [&](transport::PathHalf& half) {
    std::optional<Result<void>> outcome;
    half.when_ready([&](const Result<void>& how) { outcome.emplace(how); });
    EXPECT_FALSE(outcome) << "within the call";
    run_for(1ms);
    EXPECT_TRUE(outcome && *outcome);
  };
  for (int step = 0; step < 6; ++step) {
    auto proposed = server.end->begin_propose(client.end->offer(), limits);
    ASSERT_TRUE(proposed);
    if (step == 0) {
      (*proposed)->when_ready(never);
      proposed->reset();
      expect_nothing("the server's half is being made");
      continue;
    }
    wait(**proposed);
    auto accepted = client.end->begin_accept((*proposed)->parameters(), limits);
    ASSERT_TRUE(accepted);
    if (step == 1) {
      (*accepted)->when_ready(never);
      accepted->reset();
      proposed->reset();
      expect_nothing("the client's half is being made");
      continue;
    }
    wait(**accepted);
    if (step == 2) {
      (*proposed)->begin_connect((*accepted)->parameters(), never);
      proposed->reset();
      accepted->reset();
      expect_nothing("the server's half is being connected");
      continue;
    }
    std::optional<Result<void>> outcome;
    const auto note = [&](const Result<void>& how) { outcome.emplace(how); };
    if (step == 3) {
      run_for(rdma::HalfOpen::patience);
      (*proposed)->begin_connect((*accepted)->parameters(), note);
      auto newer = server.end->begin_propose(client.end->offer(), limits);
      ASSERT_TRUE(newer);
      run_for(1ms);
      ASSERT_TRUE(outcome);
      ASSERT_FALSE(*outcome);
      EXPECT_THAT(outcome->error().text, HasSubstr("gave way"));
      newer->reset();
    } else if (step == 4) {
      (*proposed)->begin_connect((*accepted)->parameters(), note);
      device("sim1")->raise(
          {.kind = DeviceEventKind::completion_queue_overrun,
           .queue = static_cast<rdma::CompletionQueue*>(device("sim1")->completion_queues().front())});
      run_for(1ms);
      ASSERT_TRUE(outcome) << "nobody is told";
      EXPECT_FALSE(*outcome);
      server.end = *server.path->attach(loop);
    } else {
      (*proposed)->begin_connect((*accepted)->parameters(), note);
      run_for(1ms);
      ASSERT_TRUE(outcome && *outcome);
      // Connected, it is not half-open any more.
      EXPECT_TRUE(server.end->begin_propose(client.end->offer(), limits));
    }
    proposed->reset();
    accepted->reset();
    expect_nothing("later");
  }
}

// 2.3 MiB each with the default options: what they may hold depends on the memory that there is.
TEST_F(SimRdmaPath, HalfOpenHandshakesHoldAQuarterOfTheMemoryAtMost) {
  Side client = side("sim0");
  Side server = side("sim1", {.chunk_bytes = 64 << 10, .memory_bytes_max = 8 << 20, .arena_bytes = 1 << 20});
  std::vector<std::unique_ptr<transport::PathHalf>> halves;
  while (halves.size() < 64) {
    auto one = server.end->propose(client.end->offer(), limits);
    if (!one) {
      EXPECT_THAT(one.error().text, HasSubstr("half_open_max"));
      break;
    }
    halves.push_back(std::move(*one));
  }
  EXPECT_EQ(halves.size(), 4U);
}

TEST_F(SimRdmaPath, PortIsAskedForEachConnection) {
  Side client = side("sim0");
  Side server = side("sim1");
  const auto held = device("sim1");
  rdma::PortStatus changed = *held->port(1);
  changed.mtu_bytes = 1024;
  changed.lid = 77;
  held->set_port(changed);
  const auto proposed = server.end->propose(client.end->offer(), limits);
  ASSERT_TRUE(proposed);
  const auto told = rdma::Parameters::decode((*proposed)->parameters());
  EXPECT_EQ(told->mtu_bytes, 1024U);
  EXPECT_EQ(told->lid, 77U);
  changed.active = false;
  held->set_port(changed);
  const auto refused = server.end->propose(client.end->offer(), limits);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr("is down"));
}

// A link that flaps ends nothing: the devices repeat what was lost.
TEST_F(SimRdmaPath, APortThatIsDownForAMomentEndsNothing) {
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
  // Its return is seen without an event too.
  set_active(false);
  run_for(100ms);
  status.active = true;
  held->set_port(status);
  run_for(2s);
  EXPECT_FALSE(pair->server_sink.closed);
  send(*pair->client, "still there");
  run_for(100ms);
  EXPECT_THAT(pair->server_sink.messages, testing::ElementsAre("still there"));
  // Another port's fate is not its own.
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
  // The end stays: what is made once the port is up again works.
  EXPECT_TRUE(server.end->usable());
  set_active(true);
  run_for(1ms);
  EXPECT_NE(connect(client, server), nullptr);
}

// Without its completion queue an end carries nothing any more: it is replaced, and no other end is.
TEST_F(SimRdmaPath, AnEndWhoseCompletionQueueOverranIsReplaced) {
  Side client = side("sim0");
  Side server = side("sim1");
  const auto pair = connect(client, server);
  ASSERT_NE(pair, nullptr);
  const auto held = device("sim1");
  int other = 0;
  held->raise({.kind = DeviceEventKind::completion_queue_overrun, .queue = &other});
  run_for(10ms);
  EXPECT_FALSE(pair->server_sink.closed);
  EXPECT_TRUE(server.end->usable());
  const std::weak_ptr<transport::PathEnd> before = server.end;
  // More entries than it has: those of a queue pair that nobody reaps.
  const auto queue = held->completion_queues().front();
  for (std::size_t i = 0; i <= RdmaOptions{}.completion_queue; ++i) {
    queue->add({.id = 1, .queue_pair = 0xffffff}, fabric->now_ns(), false);
  }
  run_for(10ms);
  ASSERT_TRUE(pair->server_sink.closed);
  EXPECT_THAT(pair->server_sink.closed->text, HasSubstr("ran over"));
  EXPECT_FALSE(server.end->usable());
  EXPECT_FALSE(server.end->propose(client.end->offer(), limits)) << "over a queue that carries nothing";
  const auto anew = server.path->attach(loop);
  ASSERT_TRUE(anew);
  ASSERT_NE(*anew, before.lock());
  server.end = *anew;
  EXPECT_TRUE(server.end->usable());
  const auto again = connect(client, server);
  ASSERT_NE(again, nullptr);
  send(*again->client, "anew");
  run_for(10ms);
  EXPECT_THAT(again->server_sink.messages, testing::ElementsAre("anew"));
}

// The client lowers what both sides use toward a server that its long packets do not reach, for a time.
TEST_F(SimRdmaPath, ShorterPacketsAreUsedTowardAPeerThatLongOnesDoNotReach) {
  Side client = side("sim0");
  Side server = side("sim1");
  const auto mtu_of_next = [&]() -> unsigned {
    const auto proposed = server.end->propose(client.end->offer(), limits);
    const auto accepted = client.end->accept((*proposed)->parameters(), limits);
    EXPECT_TRUE((*proposed)->connect((*accepted)->parameters()));
    return rdma::Parameters::decode((*accepted)->parameters())->mtu_bytes;
  };
  const auto parameters = (*server.end->propose(client.end->offer(), limits))->parameters();
  EXPECT_EQ(mtu_of_next(), 4096U);
  EXPECT_EQ(client.end->probe_bytes(), 2 * 4096U);
  for (const unsigned mtu : {1024U, 512U, 256U}) {
    EXPECT_TRUE(client.end->use_shorter_packets(parameters));
    EXPECT_EQ(mtu_of_next(), mtu);
  }
  EXPECT_FALSE(client.end->use_shorter_packets(parameters));
  const auto another = with_address(address_of(0, 9), parameters);
  EXPECT_TRUE(client.end->use_shorter_packets(another));
  EXPECT_EQ(mtu_of_next(), 256U);
  run_for(rdma::PathMtus::lifetime);
  EXPECT_EQ(mtu_of_next(), 4096U);
  EXPECT_FALSE(client.end->use_shorter_packets(Bytes{}));
}

// Ports agree on 4096 bytes, and a switch on the way does not pass them.
TEST_F(SimRdmaPath, ShorterPacketsPassWhereLongOnesAreLost) {
  Side client = side("sim0");
  Side server = side("sim1");
  for (const char* const name : {"sim0", "sim1"}) device(name)->lose_packets_beyond(1500);
  const std::string text(transport::path_probe_bytes_max, 'x');
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
  EXPECT_TRUE(client.end->use_shorter_packets((*server.end->propose(client.end->offer(), limits))->parameters()));
  const auto after = connect(client, server);
  ASSERT_NE(after, nullptr);
  send(*after->client, text);
  send(*after->server, text);
  run_for(1s);
  EXPECT_THAT(after->server_sink.messages, testing::ElementsAre(text));
  EXPECT_THAT(after->client_sink.messages, testing::ElementsAre(text));
}

struct Counted final : LentBlock {
  Counted() : LentBlock([](LentBlock&) noexcept {}) {}
};

TEST_F(SimRdmaPath, ExposingGoesOnWithoutTheDevicesThatRefuse) {
  fabric = SimFabric::create({}, 1, 5);
  const auto path = transport::make_rdma_path({.huge_pages = false}, fabric);
  std::vector<std::byte> memory(8192);
  Counted block;
  auto registered = path->register_memory(memory, block, false);
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

TEST_F(SimRdmaPath, AnExposureSaysThatItsDeviceWasReset) {
  const Side server = side("sim1");
  std::vector<std::byte> memory(8192);
  Counted block;
  auto registered = server.path->register_memory(memory, block, false);
  ASSERT_TRUE(registered);
  auto exposed = (*registered)->expose(memory, true, true);
  ASSERT_TRUE(exposed);
  EXPECT_FALSE((*exposed)->lost());
  device("sim1")->raise({.kind = DeviceEventKind::device_fatal});
  run_for(1ms);
  EXPECT_TRUE((*exposed)->lost());
  EXPECT_FALSE(server.end->usable());
  auto anew = (*registered)->expose(memory, true, true);
  ASSERT_TRUE(anew);
  EXPECT_FALSE((*anew)->lost());
}

}  // namespace
}  // namespace hawser::lab
