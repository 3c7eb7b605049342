#include "cli/doctor/peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/doctor/serve.h"
#include "cli/doctor/test/testing.h"
#include "hawser/client.h"

namespace hawser::cli::doctor {
namespace {

using testing::HasSubstr;
using testing::Not;

TargetAddress port_of(const std::string& device, const std::string& gid, std::string type = "roce_v2") {
  TargetAddress port;
  port.device = device;
  port.number = 1;
  port.active = true;
  port.mtu_bytes = 1024;
  port.gbit_per_s = 25;
  port.interface = "eth0";
  port.gids = {{3, std::move(type), gid}};
  port.counters = {{"out_of_sequence", 7}, {"port_xmit_data", 100}};
  return port;
}

// Two hosts without a flaw.
PeerFacts sound() {
  PeerFacts facts;
  facts.address = "b.example:18540";
  facts.probe = {TcpProbe::Outcome::connected, {}, "10.0.0.1", "10.0.0.2", 1500};
  facts.here.hawser = facts.there.hawser = "0.1.0";
  facts.here.interfaces = {{"eth0", "up", 1500, 10'000, {"10.0.0.1/24", "fe80::1/64"}}};
  facts.there.interfaces = {{"eth0", "up", 1500, 10'000, {"10.0.0.2/24"}}};
  facts.here.ports = {port_of("mlx5_0", "::ffff:10.0.0.1")};
  facts.there.ports = {port_of("mlx5_0", "::ffff:10.0.0.2")};
  facts.here_after = facts.here;
  facts.there_after = facts.there;
  facts.traffic = {{"tcp", {}, 1000, 50, 90, 1100, 1000, {}, false},
                   {"shm", "another host"},
                   {"rdma", {}, 1000, 5, 9, 2900, 2800, {}, false}};
  return facts;
}

TEST(DoctorPeer, SoundHostsAreReportedSo) {
  const Section section = examine_peer(sound());
  EXPECT_TRUE(section.usable);
  for (const Finding& finding : section.findings) {
    EXPECT_EQ(finding.severity, Severity::good) << finding.id << ": " << finding.text;
  }
  EXPECT_THAT(find(section, "peer.transport").text, HasSubstr("round trip 50.0 us, 99 % below 90.0 us (1000 PINGs)"));
  EXPECT_THAT(find(section, "peer.transport").text, HasSubstr("the link has 10 Gbit/s"));
  EXPECT_THAT(find(section, "peer.gids").text, HasSubstr("pairs of GIDs in one network: 1"));
  EXPECT_FALSE(has(section, "peer.counter"));
}

TEST(DoctorPeer, EachWayToFailToConnectHasItsRemedy) {
  using Outcome = TcpProbe::Outcome;
  const struct {
    Outcome outcome;
    const char* text;
    const char* remedy;
  } cases[] = {
      {Outcome::refused, "nothing listens at port 18540", "hawser doctor --serve"},
      {Outcome::silent, "does not answer", "firewall"},
      {Outcome::unreachable, "is not reached", "ip route"},
      {Outcome::not_resolved, "has no address", "name servers"},
  };
  for (const auto& one : cases) {
    PeerFacts facts = sound();
    facts.probe.outcome = one.outcome;
    const Section section = examine_peer(facts);
    EXPECT_FALSE(section.usable);
    ASSERT_EQ(section.findings.size(), 1U);
    EXPECT_EQ(section.findings[0].severity, Severity::problem);
    EXPECT_THAT(section.findings[0].text, HasSubstr(one.text));
    EXPECT_THAT(section.findings[0].remedy, HasSubstr(one.remedy));
  }
  PeerFacts other = sound();
  other.error = "no method host::facts";
  EXPECT_THAT(find(examine_peer(other), "peer.reach").remedy, HasSubstr("same version"));
}

TEST(DoctorPeer, MtusAreCompared) {
  PeerFacts facts = sound();
  facts.there.interfaces[0].mtu_bytes = 9000;
  EXPECT_EQ(find(examine_peer(facts), "peer.mtu").severity, Severity::warning);
  facts = sound();
  facts.probe.path_mtu_bytes = 1400;
  EXPECT_EQ(find(examine_peer(facts), "peer.mtu").severity, Severity::note);
  facts = sound();
  facts.probe.remote = "192.0.2.7";
  EXPECT_THAT(find(examine_peer(facts), "peer.mtu").remedy, HasSubstr("NAT"));
  // The loopback interface has 65,536 bytes, and no packet has more than 65,535.
  facts = sound();
  facts.here.interfaces[0].mtu_bytes = facts.there.interfaces[0].mtu_bytes = 65'536;
  facts.probe.path_mtu_bytes = 65'535;
  EXPECT_EQ(find(examine_peer(facts), "peer.mtu").severity, Severity::good);
}

TEST(DoctorPeer, PacketsThatAreLostAndSlowLinksAreReported) {
  PeerFacts facts = sound();
  facts.traffic = {{"tcp", {}, 1000, 50, 90, 0, 0, "the deadline has passed", true}};
  Finding finding = find(examine_peer(facts), "peer.transport");
  EXPECT_EQ(finding.severity, Severity::problem);
  EXPECT_THAT(finding.remedy, HasSubstr("ping -M do"));
  facts.traffic = {{"tcp", {}, 1000, 50, 90, 1100, 500, {}, false}};
  finding = find(examine_peer(facts), "peer.transport");
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_THAT(finding.text, HasSubstr("40 % of the link (10 Gbit/s)"));
  facts.traffic = {{"tcp", {}, 3, 50, 90, 0, 0, "the connection ended", false}};
  EXPECT_EQ(find(examine_peer(facts), "peer.transport").severity, Severity::problem);
}

TEST(DoctorPeer, RdmaThatIsRefusedIsAProblemIfBothHaveIt) {
  PeerFacts facts = sound();
  facts.traffic = {{"rdma", "the queue pair did not connect"}};
  EXPECT_EQ(find(examine_peer(facts), "peer.transport").severity, Severity::problem);
  EXPECT_THAT(find(examine_peer(facts), "peer.transport").remedy, HasSubstr("4791"));
  facts.there.ports.clear();
  EXPECT_EQ(find(examine_peer(facts), "peer.transport").severity, Severity::note);
  EXPECT_THAT(find(examine_peer(facts), "peer.transport").remedy, HasSubstr("the peer has no active RDMA port"));
}

TEST(DoctorPeer, GidsMeetByTypeAndNetwork) {
  PeerFacts facts = sound();
  facts.there.ports[0].gids[0].gid = "::ffff:10.0.1.2";
  EXPECT_EQ(find(examine_peer(facts), "peer.gids").severity, Severity::note);
  facts.there.ports[0].gids[0].type = "roce_v1";
  EXPECT_EQ(find(examine_peer(facts), "peer.gids").severity, Severity::warning);
  facts.there.ports[0].mtu_bytes = 4096;
  EXPECT_THAT(find(examine_peer(facts), "peer.rdma_mtu").text, HasSubstr("1024 bytes here, 4096 there"));
  facts.there.ports[0].active = false;
  EXPECT_FALSE(has(examine_peer(facts), "peer.gids"));
  facts = sound();
  facts.here.ports[0].gids[0] = {0, "infiniband", "fe80:0000:0000:0000:0000:0000:0000:0001"};
  facts.there.ports[0].gids[0] = {0, "infiniband", "fe80:0000:0000:0000:0000:0000:0000:0002"};
  EXPECT_EQ(find(examine_peer(facts), "peer.gids").severity, Severity::good);
  facts.there.ports[0].gids[0].gid = "fe80:0000:0000:0001:0000:0000:0000:0002";
  EXPECT_EQ(find(examine_peer(facts), "peer.gids").severity, Severity::note);
}

TEST(DoctorPeer, CountersThatGrowAtEitherEndAreReported) {
  for (const bool here : {true, false}) {
    PeerFacts facts = sound();
    for (HostCounter& counter : (here ? facts.here_after : facts.there_after).ports[0].counters) counter.value += 5;
    const Section section = examine_peer(facts);
    const Finding finding = find(section, "peer.counter");
    EXPECT_EQ(finding.severity, Severity::warning);
    EXPECT_EQ(finding.subject, std::string(here ? "here" : "peer") + " mlx5_0/1 out_of_sequence");
    EXPECT_THAT(finding.text, HasSubstr("grew by 5 during the measurement"));
  }
}

TEST(DoctorPeer, EcnIsReportedWhereTheDriverShowsIt) {
  PeerFacts facts = sound();
  facts.here.ports[0].ecn = "none";
  EXPECT_THAT(find(examine_peer(facts), "peer.ecn").remedy, HasSubstr("/sys/class/net/eth0/ecn/roce_np/enable"));
  facts.here.ports[0].ecn = "3";
  EXPECT_EQ(find(examine_peer(facts), "peer.ecn").severity, Severity::good);
}

TEST(DoctorHost, FactsOfAPeerAreMadeHarmlessOrRefused) {
  HostFacts facts = sound().here;
  facts.kernel = "\x1b[2J" + std::string(1000, 'x');
  facts.interfaces[0].name = "eth\n0";
  facts.ports[0].counters[0].name = "a\x1b";
  facts.ports[0].gbit_per_s = -1;
  const Result<HostFacts> checked = checked_host(facts);
  ASSERT_TRUE(checked);
  EXPECT_THAT(checked->kernel, Not(HasSubstr("\x1b")));
  EXPECT_LE(checked->kernel.size(), 64U);
  EXPECT_EQ(checked->interfaces[0].name, "eth\\x0a0");
  EXPECT_EQ(checked->ports[0].counters[0].name, "a\\x1b");
  EXPECT_EQ(checked->ports[0].gbit_per_s, 0);
  HostFacts many = facts;
  many.interfaces.resize(65);
  EXPECT_FALSE(checked_host(many));
  many = facts;
  many.ports[0].gids.resize(257);
  EXPECT_FALSE(checked_host(many));
  many = facts;
  many.ports[0].counters.resize(257);
  EXPECT_FALSE(checked_host(many));
  facts.format = 2;
  ASSERT_FALSE(checked_host(facts));
  EXPECT_THAT(checked_host(facts).error().text, HasSubstr("format 2"));
}

TEST(DoctorHost, NetworksAreComparedByTheirPrefix) {
  EXPECT_TRUE(same_network("10.0.0.1/24", "10.0.0.200"));
  EXPECT_TRUE(same_network("10.0.0.1/24", "::ffff:10.0.0.200"));
  EXPECT_FALSE(same_network("10.0.0.1/24", "10.0.1.1"));
  EXPECT_TRUE(same_network("10.0.0.1/23", "10.0.1.1"));
  EXPECT_TRUE(same_network("fd00::1/64", "fd00::2"));
  EXPECT_FALSE(same_network("fd00::1/64", "fd00:0:0:1::2"));
  EXPECT_TRUE(same_network("10.0.0.1/0", "1.2.3.4"));
  for (const char* const wrong : {"10.0.0.1", "10.0.0.1/33", "10.0.0.1/x", "x/24", "10.0.0.1/", "10.0.0.1/24x"}) {
    EXPECT_FALSE(same_network(wrong, "10.0.0.2")) << wrong;
  }
  EXPECT_FALSE(same_network("10.0.0.1/24", "fd00::1"));
}

TEST(DoctorPeer, AddressesOfPeers) {
  const struct {
    const char* text;
    const char* host;
    const char* port;
  } cases[] = {{"b", "b", "18540"},       {"b:7", "b", "7"},       {"10.0.0.2:65535", "10.0.0.2", "65535"},
               {"[::1]", "::1", "18540"}, {"[::1]:7", "::1", "7"}, {"fd00::2", "fd00::2", "18540"}};
  for (const auto& one : cases) {
    const Result<PeerPlan> plan = peer_plan(one.text);
    ASSERT_TRUE(plan) << one.text;
    EXPECT_EQ(plan->host, one.host);
    EXPECT_EQ(plan->port, one.port);
  }
  for (const char* const wrong : {"", ":7", "b:", "b:0", "b:65536", "b:x", "b:7x", "[::1", "[::1]7", "[]:7"}) {
    EXPECT_FALSE(peer_plan(wrong)) << wrong;
  }
}

// Both ends in one process.
TEST(DoctorPeer, AServerIsExamined) {
  Server server(host_server_options("127.0.0.1:0"));
  add_host_methods(server);
  const Result<void> started = server.start();
  ASSERT_TRUE(started) << started.error().text;
  Result<PeerPlan> plan = peer_plan(server.address());
  ASSERT_TRUE(plan);
  plan->pings_max = 20;
  plan->blocks = std::chrono::milliseconds(20);
  plan->block_timeout = plan->connect_timeout = std::chrono::seconds(30);
  const PeerFacts facts = read_peer(*plan);
  EXPECT_EQ(facts.error, "");
  const Section section = examine_peer(facts);
  EXPECT_TRUE(section.usable);
  EXPECT_EQ(facts.probe.remote, "127.0.0.1");
  EXPECT_NE(interface_with(facts.there, "127.0.0.1"), nullptr);
  ASSERT_FALSE(facts.traffic.empty());
  EXPECT_EQ(facts.traffic[0].transport, "tcp");
  EXPECT_EQ(facts.traffic[0].error, "");
  EXPECT_EQ(facts.traffic[0].pings, 20U);
  EXPECT_GT(facts.traffic[0].sent_mbyte_per_s, 0);
  EXPECT_GT(facts.traffic[0].received_mbyte_per_s, 0);
  EXPECT_FALSE(has(section, "peer.counter"));
  // The server sends no more than a block.
  const Result<std::string> much = sync_wait([](std::string address) -> Task<Result<std::string>> {
    Client client;
    if (Result<void> connected = co_await client.connect(address); !connected) {
      co_return fail(connected.error());
    }
    co_return co_await client.call<host::produce>(block_bytes + 1);
  }(server.address()));
  ASSERT_FALSE(much);
  EXPECT_THAT(much.error().text, HasSubstr("at most 1048576 bytes"));
}

TEST(DoctorPeer, NothingListens) {
  Result<PeerPlan> plan = peer_plan("127.0.0.1:1");
  ASSERT_TRUE(plan);
  EXPECT_EQ(probe_tcp(*plan).outcome, TcpProbe::Outcome::refused);
  plan->host = "host.invalid";
  EXPECT_EQ(probe_tcp(*plan).outcome, TcpProbe::Outcome::not_resolved);
}

}  // namespace
}  // namespace hawser::cli::doctor
