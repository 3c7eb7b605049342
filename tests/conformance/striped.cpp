#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "hawser/striped_memory.h"
#include "tests/conformance/backend.h"

// Operations over two connections to one server, over every transport.
namespace hawser::conformance {

class StripedConformance : public Conformance {
 protected:
  static constexpr std::size_t bytes = std::size_t{4} << 20;

  static void put(MutableBytes to, char first) {
    const std::string text = text_of(to.size(), first);
    std::memcpy(to.data(), text.data(), text.size());
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, StripedConformance, ::testing::ValuesIn(backends()),
                         [](const ::testing::TestParamInfo<BackendFactory>& one) { return one.param.name; });

// When an operation has ended, no device uses the local memory any more, also if a connection has ended in its midst: a
// late read would overwrite what the application stores there.
TEST_P(StripedConformance, AConnectionThatEndsInTheMidstLeavesTheOperationWhole) {
  const std::unique_ptr<Server> server = make_server();
  const std::unique_ptr<Client> other = make_client();
  run_connected(*server, {}, [&](Server& serving, Client& client) -> Task<void> {
    auto connected = co_await other->connect(serving.address());
    REQUIRE_OK(connected);
    Result<RegisteredBuffer> theirs = RegisteredBuffer::allocate(serving, bytes);
    REQUIRE_OK(theirs);
    Result<RegisteredBuffer> mine = RegisteredBuffer::allocate(client, bytes);
    REQUIRE_OK(mine);
    Result<ExposedRegion> region = theirs->expose(0, bytes, RegionAccess::read_write);
    REQUIRE_OK(region);
    const std::array<Client*, 2> both{&client, other.get()};
    StripeOptions options;
    options.retry_min = std::chrono::milliseconds(1);
    options.retry_frame_writes = true;
    StripedMemory striped(both, options);
    EXPECT_EQ(striped.paths()[1].one_sided, client.transport() == "rdma");
    for (char round = 'a'; round < 'g'; ++round) {
      const bool reads = round % 2 == 0;
      put(theirs->memory(), reads ? round : 'U');
      put(mine->memory(), reads ? 'U' : round);
      const std::uint64_t failures = striped.paths()[1].failures;
      std::optional<Result<void>> outcome;
      Scope scope;
      scope.spawn([](Task<Result<void>> operation, std::optional<Result<void>>& out) -> Task<void> {
        out = co_await std::move(operation);
      }(reads ? striped.read(region->handle(), 0, mine->memory()) : striped.write(region->handle(), 0, mine->memory()),
                                                                                     outcome));
      EXPECT_FALSE(outcome.has_value());
      EXPECT_NE(striped.paths()[1].outstanding_bytes, 0U);
      other->close();
      co_await scope.join();
      REQUIRE(outcome.has_value());
      REQUIRE_OK(*outcome);
      EXPECT_EQ(std::memcmp(theirs->memory().data(), mine->memory().data(), bytes), 0) << round;
      EXPECT_GT(striped.paths()[1].failures, failures);
      EXPECT_FALSE(mine->in_use()) << round;
      auto again = co_await other->connect(serving.address());
      REQUIRE_OK(again);
      auto usable = co_await eventually(loop(), [&] { return striped.paths()[1].usable; });
      EXPECT_TRUE(usable);
    }
    other->close();
  });
}

}  // namespace hawser::conformance
