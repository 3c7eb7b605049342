// A man in the middle of a network of Soft-RoCE devices: what he can do at each level of protection.
#include "tests/tls/rdma_wire.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hawser/memory.h"
#include "hawser/when.h"
#include "tests/at_rest.h"

namespace hawser {
namespace {

using namespace testing_tools;

// Memory of a server that its clients may access.
class AccessedMemory {
 public:
  explicit AccessedMemory(const Server& server) : buffer_(*RegisteredBuffer::allocate(server, 65536)) {
    std::ranges::fill(buffer_.memory(), std::byte{'-'});
    region_ = *buffer_.expose(0, buffer_.size(), RegionAccess::read_write);
  }
  RemoteRegion open() { return region_->handle(); }
  MutableBytes part(std::size_t at, std::size_t bytes) { return buffer_.memory().subspan(at, bytes); }

 private:
  RegisteredBuffer buffer_;
  std::optional<ExposedRegion> region_;
};

void write_at(MutableBytes to, std::string_view text) { std::ranges::copy(as_bytes(text), to.begin()); }

class TlsRdmaWire : public RdmaWireFixture {
 protected:
  void SetUp() override {
    RdmaWireFixture::SetUp();
    // 1 s, eight times. The attacker loses no packet on purpose, but its thread may be slow, and a full queue of the
    // system loses packets, which are sent again.
    rdma_options.ack_timeout = 18;
  }
};

// The control of the other tests: packets that the attacker has changed are accepted.
TEST_F(TlsRdmaWire, AnAttackerCanChangeAuthenticatedMessages) {
  const std::string order = "pay 100 to alice";
  const std::string forged = "pay 999 to malet";
  wire.set_carry([&](std::size_t from, RocePacket packet) {
    const auto found = std::ranges::search(packet.payload, as_bytes(order));
    if (from == 0 && !found.empty()) std::ranges::copy(as_bytes(forged), found.begin());
    wire.send(1 - from, packet);
  });
  for (const TlsProtection level :
       {TlsProtection::authenticated, TlsProtection::signed_messages, TlsProtection::sealed_messages}) {
    SCOPED_TRACE(static_cast<int>(level));
    Loop loop(quiet());
    const auto served = server_on(loop, options);
    ASSERT_TRUE(served->start());
    const TlsClient tls = client_tls(level);
    loop.run([](Server& at, ClientOptions with, const std::string& text, const std::string& wrong,
                TlsProtection protection) -> Task<void> {
      Client client(std::move(with));
      auto connected = co_await client.connect(at.address());
      REQUIRE_OK(connected);
      EXPECT_EQ(client.transport(), "rdma");
      auto reply = co_await client.call<return_order>(text);
      if (protection == TlsProtection::authenticated) {
        REQUIRE_OK(reply);
        EXPECT_EQ(*reply, wrong);
      } else if (protection == TlsProtection::signed_messages) {
        EXPECT_FALSE(reply);
      } else {
        REQUIRE_OK(reply);  // The attacker does not recognise the order.
        EXPECT_EQ(*reply, text);
      }
      client.close();
    }(*served, client_at(tls), order, forged, level));
    EXPECT_EQ(security->counters().path_messages_refused, level == TlsProtection::signed_messages ? 1U : 0U);
    loop.run(reach_rest(loop, *served));
  }
}

// One-sided access has no protection but the key, which travels in the packets.
TEST_F(TlsRdmaWire, AnAttackerCanAccessMemoryWhoseKeyWasUsed) {
  AttackedLink link;
  std::optional<RocePacket::Access> seen;
  std::optional<std::uint32_t> reading;
  std::atomic<bool> forge = false;
  // The packet of the client behind the forged ones, which they are sent again with.
  std::optional<std::uint32_t> behind;
  std::string stolen;
  wire.set_carry([&](std::size_t from, RocePacket packet) {
    if (from == 0 && packet.access()) seen = packet.access();
    if (from == 1 && packet.read_response()) {
      if (packet.psn() == reading) stolen = as_text(packet.payload);
      return;
    }
    const std::uint32_t own = packet.psn();
    const bool forges =
        from == 0 && packet.code() == RoceCode::send_only_immediate && forge && behind.value_or(own) == own;
    if (forges && !behind) {
      behind = own;
      link.numbers[0].insert(own, 2);
    }
    link.renumber(from, packet);
    if (forges) {
      RocePacket write = packet;
      write.set_psn(packet.psn() - 2);
      write.set_access(RoceCode::write_only, {seen->address + 1000, seen->key, 6});
      write.payload = octets("forged");
      wire.send(1, write);
      RocePacket read = packet;
      read.set_access(RoceCode::read_request, {seen->address + 2000, seen->key, 6});
      read.payload.clear();
      read.set_psn(packet.psn() - 1);
      reading = read.psn();
      wire.send(1, read);
    }
    wire.send(1 - from, packet);
  });
  Loop loop(quiet());
  const auto served = server_on(loop, options);
  AccessedMemory memory(*served);
  served->register_handler<&AccessedMemory::open>(&memory);
  ASSERT_TRUE(served->start());
  write_at(memory.part(2000, 6), "secret");
  const TlsClient tls = client_tls(TlsProtection::authenticated);
  loop.run(
      [](Loop& on, Server& at, ClientOptions with, AccessedMemory& accessed, std::atomic<bool>& attack) -> Task<void> {
        Client client(on, std::move(with));
        auto connected = co_await client.connect(at.address());
        REQUIRE_OK(connected);
        Result<RegisteredBuffer> buffer = RegisteredBuffer::allocate(client, 4096);
        REQUIRE_OK(buffer);
        auto region = co_await client.call<&AccessedMemory::open>();
        REQUIRE_OK(region);
        write_at(buffer->memory(), "honest");
        RemoteMemory remote(client);
        EXPECT_TRUE(remote.capabilities().one_sided);
        auto written = co_await remote.write(*region, 0, buffer->memory().first(6));
        REQUIRE_OK(written);
        attack = true;
        for (int i = 0; i < 3; ++i) {
          auto reply = co_await client.call<return_order>("still connected");
          REQUIRE_OK(reply);
        }
        EXPECT_EQ(as_text(accessed.part(0, 6)), "honest");
        EXPECT_EQ(as_text(accessed.part(1000, 6)), "forged");
        client.close();
      }(loop, *served, client_at(tls), memory, forge));
  wire.set_carry(nullptr);
  EXPECT_EQ(stolen, "secret");
  loop.run(reach_rest(loop, *served));
}

// Payloads that a side has received lie in memory which its device lets the peer read. The attacker has seen its key
// on a connection that is not protected.
TEST_F(TlsRdmaWire, AnAttackerCannotReadMemoryThroughAProtectedConnection) {
  constexpr std::uint32_t forged_bytes = 1 << 18;
  constexpr std::uint32_t forged_packets = forged_bytes / 4096;  // The answer has so many.
  const std::string secret = "[a text that nobody else may read]";
  std::string text;
  while (text.size() < 300'000) text += secret;
  Loop loop(quiet());
  const auto served = server_on(loop, options);
  ASSERT_TRUE(served->start());
  std::optional<RocePacket::Access> seen;
  for (const TlsProtection level :
       {TlsProtection::authenticated, TlsProtection::signed_messages, TlsProtection::sealed_messages}) {
    SCOPED_TRACE(static_cast<int>(level));
    AttackedLink link;
    std::size_t accesses = 0;
    std::atomic<bool> forge = false;
    std::optional<std::uint32_t> behind;
    std::string stolen;
    wire.set_carry([&](std::size_t from, RocePacket packet) {
      if (packet.access()) ++accesses;
      if (from == 1 && packet.access()) seen = packet.access();
      if (from == 0 && packet.read_response() && behind) {
        stolen.append(as_text(packet.payload));
        return;
      }
      const std::uint32_t own = packet.psn();
      const bool forges =
          from == 1 && packet.code() == RoceCode::send_only_immediate && forge && seen && behind.value_or(own) == own;
      if (forges && !behind) {
        behind = own;
        link.numbers[1].insert(own, forged_packets);
      }
      link.renumber(from, packet);
      if (forges) {
        RocePacket read = packet;
        read.set_psn(packet.psn() - forged_packets);
        read.set_access(RoceCode::read_request, {seen->address, seen->key, forged_bytes});
        read.payload.clear();
        wire.send(0, read);
      }
      wire.send(1 - from, packet);
    });
    const TlsClient tls = client_tls(level);
    loop.run([](Loop& on, Server& at, ClientOptions with, const std::string& sent,
                std::atomic<bool>& attack) -> Task<void> {
      Client client(on, std::move(with));
      auto connected = co_await client.connect(at.address());
      REQUIRE_OK(connected);
      EXPECT_EQ(client.transport(), "rdma");
      auto large = co_await client.call<return_order>(sent);
      REQUIRE_OK(large);
      EXPECT_EQ(*large, sent);
      attack = true;
      for (int i = 0; i < 3; ++i) {
        auto reply = co_await client.call<return_order>("small");  // Fails where the device refuses the forged read.
      }
      client.close();
    }(loop, *served, client_at(tls), text, forge));
    wire.set_carry(nullptr);
    EXPECT_TRUE(behind);
    if (level == TlsProtection::authenticated) {
      EXPECT_GE(accesses, 1U);
      EXPECT_NE(stolen.find(secret), std::string::npos) << "the attacker cannot read what lies in the memory";
    } else {
      EXPECT_EQ(accesses, 0U);
      EXPECT_EQ(stolen.size(), 0U);
    }
  }
  loop.run(reach_rest(loop, *served));
}

// Connects each of two clients with the server's queue pair of the other one, by changing the numbers of queue pairs
// and packets. An attacker who changes GIDs and queue pair numbers before queue pairs are connected reaches the same.
class Crossing {
 public:
  // Without TLS the server sends nothing before the client.
  Crossing(AttackedWire& wire, bool plain) : wire_(wire), plain_(plain) {}
  void carry(std::size_t from, RocePacket packet) {
    waiting_.push_back({from, std::move(packet)});
    // A packet that makes a link known lets earlier ones pass.
    for (std::size_t before = 0; before != waiting_.size();) {
      before = waiting_.size();
      std::erase_if(waiting_, [this](const Carried& one) { return passes(one.from, one.packet); });
    }
  }
  // True when the first client has sent its first packet, and the server one to it.
  bool first_known() const { return !links_[0].empty() && (plain_ || !links_[1].empty()); }
  std::size_t crossed = 0;

 private:
  // The queue pair that packets of an end go to, and the number of the first one.
  struct Way {
    std::uint32_t queue_pair;
    std::uint32_t psn;
  };
  struct Carried {
    std::size_t from;
    RocePacket packet;
  };
  // Passes the packet on, unless a link that it needs is not known yet.
  bool passes(std::size_t from, RocePacket packet) {
    const std::size_t link = link_of(from, packet);
    if (link > 1) {
      wire_.send(1 - from, packet);
      return true;
    }
    const std::size_t sender = packet.response() ? 1 - from : from;
    if (links_[from].size() < 2 || links_[sender].size() < 2) return false;
    if (plain_ && from == 0 && link == 1 && links_[1].empty()) return false;
    const std::size_t other = 1 - link;
    packet.set_psn(packet.psn() + links_[sender][other].psn - links_[sender][link].psn);
    packet.set_queue_pair(links_[from][other].queue_pair);
    ++crossed;
    wire_.send(1 - from, packet);
    return true;
  }
  // The index of the client that the packet is from, or for.
  std::size_t link_of(std::size_t from, const RocePacket& packet) {
    std::vector<Way>& ways = links_[from];
    const auto found = std::ranges::find(ways, packet.queue_pair(), &Way::queue_pair);
    if (found != ways.end() || ways.size() == 2 || packet.response()) {
      return found == ways.end() ? ways.size() : static_cast<std::size_t>(found - ways.begin());
    }
    const Way way{packet.queue_pair(), packet.psn()};
    // Without TLS the server answers first to the second client, which is connected with what the first one has sent.
    const bool reverse = plain_ && from == 1;
    return static_cast<std::size_t>(ways.insert(reverse ? ways.begin() : ways.end(), way) - ways.begin());
  }

  AttackedWire& wire_;
  const bool plain_;
  std::array<std::vector<Way>, 2> links_;
  std::vector<Carried> waiting_;
};

TEST_F(TlsRdmaWire, NobodyIsConnectedWithAnotherQueuePairThanThatAgreedOn) {
  enum class Kind : std::uint8_t { plain_text, certificates, shared_keys };
  const std::string key = folder.path().string() + "/cluster.key";
  std::ofstream(key) << std::string(64, 'a');
  for (const Kind kind : {Kind::plain_text, Kind::certificates, Kind::shared_keys}) {
    SCOPED_TRACE(static_cast<int>(kind));
    Crossing crossing(wire, kind == Kind::plain_text);
    std::atomic<bool> first_known = false;
    wire.set_carry([&](std::size_t from, RocePacket packet) {
      crossing.carry(from, std::move(packet));
      if (crossing.first_known()) first_known = true;
    });
    tls_options.policy = TlsPolicy::allowed;
    if (kind == Kind::shared_keys) {
      tls_options.certificates.clear();
      tls_options.shared_keys = {{"cluster", key}};
    }
    Loop loop(quiet());
    const auto served = server_on(loop, options);
    ASSERT_TRUE(served->start());
    TlsClientOptions of_client = client_options();
    of_client.server_name = "localhost";
    if (kind == Kind::shared_keys) of_client = {.shared_key = {"cluster", key}};
    const TlsClient tls(of_client);
    ClientOptions with = client_at(tls, false);
    if (kind == Kind::plain_text) with.security = nullptr;
    loop.run([](Loop& on, Server& at, ClientOptions given, std::atomic<bool>& known, bool plain) -> Task<void> {
      Client first(on, given);
      Client second(on, given);
      const auto connect_later = [&]() -> Task<Result<void>> {
        while (!known) {
          co_await on.sleep(1ms);
        }
        co_return co_await second.connect(at.address());
      };
      auto connected = co_await when_all(first.connect(at.address()), connect_later());
      REQUIRE_OK(std::get<0>(connected));
      REQUIRE_OK(std::get<1>(connected));
      for (Client* const client : {&first, &second}) {
        const std::string text = client == &first ? "from the first client" : "from the second client";
        auto reply = co_await client->call<return_order>(text);
        REQUIRE_OK(reply);
        EXPECT_EQ(*reply, text);
        // Without TLS nobody notices the exchange: the control of this test.
        EXPECT_EQ(client->transport(), plain ? "rdma" : "tcp+tls");
        if (plain) continue;
        REQUIRE(client->fallback_reasons().size() == 1);
        EXPECT_HAS(client->fallback_reasons()[0].reason, "it broke: ");
      }
      first.close();
      second.close();
    }(loop, *served, with, first_known, kind == Kind::plain_text));
    wire.set_carry(nullptr);
    // Within TLS, the server's first packet to each client has been exchanged for the other one. The second client may
    // have refused it before it has sent a packet, and what it acknowledges waits then.
    EXPECT_GE(crossing.crossed, kind == Kind::plain_text ? 4U : 2U);
    if (kind != Kind::plain_text) {
      EXPECT_EQ(security->counters().paths_proved + tls.counters().paths_proved, 0U);
      EXPECT_GE(security->counters().paths_refused + tls.counters().paths_refused, 2U);
      EXPECT_HAS(logged(), "did not prove that it agreed on this path");
    }
    loop.run(reach_rest(loop, *served));
  }
}

}  // namespace
}  // namespace hawser
