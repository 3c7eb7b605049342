#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "hawser/replicated_memory.h"
#include "tests/conformance/backend.h"

// Reads of bytes that several servers have, over every transport.
namespace hawser::conformance {

// Servers with equal bytes, and a client of each.
class ReplicatedConformance : public Conformance {
 protected:
  static constexpr std::size_t bytes = 300'000;
  static constexpr std::size_t servers_max = 3;

  struct Peer {
    std::unique_ptr<Server> server;
    RegisteredBuffer buffer;
    ExposedRegion region;
    std::unique_ptr<Client> client;
  };
  Task<bool> begin(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      Peer& peer = peers.at(i);
      peer.server = make_server();
      auto buffer = RegisteredBuffer::allocate(*peer.server, bytes);
      if (!buffer) co_return false;
      peer.buffer = std::move(*buffer);
      for (std::size_t at = 0; at < bytes; ++at) peer.buffer.memory()[at] = std::byte(at * 7 % 251);
      if (!peer.server->start()) co_return false;
      peer.client = make_client();
      if (!co_await peer.client->connect(peer.server->address())) co_return false;
      auto region = peer.buffer.expose(0, bytes, RegionAccess::read);
      if (!region) co_return false;
      peer.region = std::move(*region);
    }
    co_return true;
  }
  std::vector<MemoryReplica> replicas() const {
    std::vector<MemoryReplica> all;
    for (const Peer& peer : peers) {
      if (peer.client != nullptr) all.push_back({peer.client.get(), peer.region.handle()});
    }
    return all;
  }
  static bool has_bytes(Bytes read, std::size_t from) {
    for (std::size_t at = 0; at < read.size(); ++at) {
      if (read[at] != std::byte((from + at) * 7 % 251)) return false;
    }
    return true;
  }

  std::array<Peer, servers_max> peers;
};
INSTANTIATE_TEST_SUITE_P(Backends, ReplicatedConformance, ::testing::ValuesIn(backends()),
                         [](const ::testing::TestParamInfo<BackendFactory>& one) { return one.param.name; });

TEST_P(ReplicatedConformance, ReadsComeFromAnyReplicaIntoAnyMemory) {
  run([&]() -> Task<void> {
    REQUIRE(co_await begin(3));
    auto memory = ReplicatedMemory::create(replicas());
    REQUIRE_OK(memory);
    for (const std::size_t size : {0UL, 1UL, 4'096UL, 299'990UL}) {
      for (int i = 0; i < 4; ++i) {
        std::vector<std::byte> into(size, std::byte{255});
        auto read = co_await memory->read(7, into, {.timeout = patience});
        EXPECT_OK(read);
        EXPECT_TRUE(has_bytes(into, 7)) << size;
      }
    }
    std::vector<std::byte> into(10, std::byte{255});
    auto beyond = co_await memory->read(bytes - 9, into);
    EXPECT_ERROR(beyond, invalid_argument, "not within the region");
    EXPECT_EQ(into, std::vector<std::byte>(10, std::byte{255})) << "a failed read changes nothing";
    EXPECT_EQ(memory->counts().reads, 17U);
    EXPECT_EQ(memory->counts().failovers, 0U);
  });
}

TEST_P(ReplicatedConformance, AReplicaThatIsGoneIsReplacedByAnother) {
  run([&]() -> Task<void> {
    REQUIRE(co_await begin(3));
    auto memory = ReplicatedMemory::create(replicas());
    REQUIRE_OK(memory);
    std::vector<std::byte> into(100'000);
    peers[0].client->close();
    peers[1].region.revoke();
    for (int i = 0; i < 6; ++i) {
      std::fill(into.begin(), into.end(), std::byte{255});
      auto read = co_await memory->read(0, into, {.timeout = patience});
      EXPECT_OK(read);
      EXPECT_TRUE(has_bytes(into, 0));
    }
    EXPECT_GE(memory->counts().failovers, 1U);
    peers[2].client->close();
    std::fill(into.begin(), into.end(), std::byte{255});
    auto none = co_await memory->read(0, into, {.timeout = patience});
    REQUIRE(!none);
    EXPECT_TRUE(none.error().text.contains("each of 3 replicas has failed")) << none.error().text;
    EXPECT_EQ(into, std::vector<std::byte>(100'000, std::byte{255}));
  });
}

}  // namespace hawser::conformance
