#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "hawser/replicated_memory.h"
#include "tests/conformance/backend.h"

// Reads of bytes of which two servers have a copy, over every transport.
namespace hawser::conformance {

class ReplicatedConformance : public Conformance {
 protected:
  static constexpr std::size_t bytes = std::size_t{300} << 10;  // Several frames.

  static void put(MutableBytes to, char letter) { std::memset(to.data(), letter, to.size()); }
  static bool all_are(Bytes of, char letter) {
    return of[0] == static_cast<std::byte>(letter) && std::memcmp(of.data(), of.data() + 1, of.size() - 1) == 0;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, ReplicatedConformance, ::testing::ValuesIn(backends()),
                         [](const ::testing::TestParamInfo<BackendFactory>& one) { return one.param.name; });

// Each read begins at both owners. Its bytes come from one of them, and the other one changes nothing afterwards, nor
// in a result that is kept. Then an owner ends.
TEST_P(ReplicatedConformance, TheSlowerOwnerChangesNothingAfterTheRead) {
  const std::unique_ptr<Server> second = make_server();
  const std::unique_ptr<Client> other = make_client();
  run_connected(*make_server(), {}, [&](Server& serving, Client& client) -> Task<void> {
    REQUIRE_OK(second->start());
    auto connected = co_await other->connect(second->address());
    REQUIRE_OK(connected);
    Result<RegisteredBuffer> first_bytes = RegisteredBuffer::allocate(serving, bytes);
    REQUIRE_OK(first_bytes);
    Result<RegisteredBuffer> second_bytes = RegisteredBuffer::allocate(*second, bytes);
    REQUIRE_OK(second_bytes);
    put(first_bytes->memory(), 'a');
    put(second_bytes->memory(), 'b');
    Result<ExposedRegion> first_region = first_bytes->expose(0, bytes, RegionAccess::read);
    REQUIRE_OK(first_region);
    Result<ExposedRegion> second_region = second_bytes->expose(0, bytes, RegionAccess::read);
    REQUIRE_OK(second_region);
    const std::vector<MemoryReplica> owners{{&client, first_region->handle()}, {other.get(), second_region->handle()}};
    ReplicaOptions options;
    options.hedging = {.attempts_max = 2, .delay = Duration::zero(), .budget = 1};
    Result<ReplicatedMemory> replicated = ReplicatedMemory::create(owners, options);
    REQUIRE_OK(replicated);
    std::vector<std::byte> mine(bytes);
    std::vector<ReplicaRead> kept;
    for (int round = 0; round < 6; ++round) {
      const std::size_t size = round % 2 == 0 ? bytes : 5000;
      auto into = co_await replicated->read_into(0, MutableBytes(mine).first(size));
      REQUIRE_OK(into);
      const char letter = static_cast<char>(mine[0]);
      EXPECT_TRUE(letter == 'a' || letter == 'b');
      EXPECT_TRUE(all_are(Bytes(mine).first(size), letter)) << round;
      put(mine, 'x');
      auto read = co_await replicated->read(0, size);
      REQUIRE_OK(read);
      kept.push_back(std::move(*read));
      co_await loop().sleep(1ms);
      EXPECT_TRUE(all_are(mine, 'x')) << round;
    }
    for (const ReplicaRead& read : kept) {
      EXPECT_TRUE(all_are(read.bytes.bytes(), static_cast<char>('a' + read.owner)));
    }
    EXPECT_GE(replicated->copies(), 6U);
    kept.clear();
    client.close();
    auto after = co_await replicated->read(0, bytes);
    REQUIRE_OK(after);
    EXPECT_EQ(after->owner, 1U);
    EXPECT_TRUE(all_are(after->bytes.bytes(), 'b'));
    other->close();
    co_await second->shut_down(10ms);
  });
}

}  // namespace hawser::conformance
