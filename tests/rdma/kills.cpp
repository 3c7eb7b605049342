// Processes that are killed while batches read and write memory.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/rdma.h"
#include "tests/rdma/child.h"
#include "tests/rdma/device.h"

namespace hawser::rdma_tests {
namespace {

// Half of them of the owner of the memory, and half of the side that accesses it. The environment may ask for more.
int kills() {
  const char* asked = std::getenv("HAWSER_TEST_KILLS");
  return asked == nullptr ? 40 : std::atoi(asked);
}

constexpr std::size_t blocks = 16;
constexpr std::size_t block_bytes = 8192;
constexpr std::size_t batches = 4;
constexpr std::size_t shared_bytes = batches * blocks * 2 * block_bytes;

// Memory of a server, all of which its clients may access.
class Shared {
 public:
  explicit Shared(const Server& server)
      : buffer_(*RegisteredBuffer::allocate(server, shared_bytes)),
        region_(*buffer_.expose(0, shared_bytes, RegionAccess::read_write)) {}
  RemoteRegion handle() { return region_.handle(); }

 private:
  RegisteredBuffer buffer_;
  ExposedRegion region_;
};

// Reads or writes until an error, and returns it. Adds each batch to `done`.
Task<void> keep_accessing(RemoteMemory& remote, RemoteRegion region, const TransferBatch& batch, bool reads, int& done,
                          std::optional<Error>& end) {
  while (!end) {
    Result<void> outcome;
    if (reads) {
      outcome = co_await remote.read(region, batch);
    } else {
      outcome = co_await remote.write(region, batch);
    }
    if (outcome) {
      ++done;
    } else {
      end = outcome.error();
    }
  }
}

// A client that accesses the memory of a server with several batches at once, until the connection ends.
class Accessor {
 public:
  explicit Accessor(Client& client) : buffer_(*RegisteredBuffer::allocate(client, shared_bytes)), remote_(client) {
    for (std::size_t i = 0; i < batches; ++i) {
      for (std::size_t k = 0; k < blocks; ++k) {
        const std::size_t at = (i * blocks + k) * 2 * block_bytes;
        batches_[i].add(buffer_.memory().subspan(at, block_bytes), at);
      }
    }
  }
  void begin(Scope& scope, RemoteRegion region) {
    for (std::size_t i = 0; i < batches; ++i) {
      scope.spawn(keep_accessing(remote_, region, batches_[i], i % 2 == 0, done_, ends_[i]));
    }
  }
  // Batches that have been transferred.
  int done() const noexcept { return done_; }
  const std::optional<Error>& end(std::size_t index) const noexcept { return ends_[index]; }
  bool in_use() const noexcept { return buffer_.in_use(); }

 private:
  RegisteredBuffer buffer_;
  RemoteMemory remote_;
  std::array<TransferBatch, batches> batches_;
  std::array<std::optional<Error>, batches> ends_;
  int done_ = 0;
};

// The work of a child that owns the memory. It waits for a line of its parent.
void own(const Child::Say& say, const Child::Hear& hear) {
  if (hear().empty()) return;
  Server server(server_options());
  Shared shared(server);
  server.register_handler<&Shared::handle>(&shared);
  say(server.start() ? server.address() : "");
  hear();
}

// The work of a child that accesses the memory of the server whose address it receives.
void access(const Child::Say& say, const Child::Hear& hear) {
  const std::string address = hear();
  if (address.empty()) return;
  Loop loop({.log = no_log()});
  loop.run([](Loop& on, std::string to, const Child::Say& notify) -> Task<void> {
    Client client(on, client_options());
    auto connected = co_await client.connect(to);
    if (!connected) co_return notify("not connected");
    auto region = co_await client.call<&Shared::handle>();
    if (!region) co_return notify("no region");
    Accessor accessor(client);
    Scope scope;
    accessor.begin(scope, *region);
    auto begun = co_await eventually(on, [&] { return accessor.done() > static_cast<int>(batches); });
    notify(begun ? "going" : "no batch ends");
    co_await scope.join();
  }(loop, address, say));
}

// Kills `owner` amid batches of a client of this process.
Task<void> outlive_owner(Loop& on, Child& owner, Duration pause) {
  const std::string address = owner.hear();
  Client client(on, client_options());
  auto connected = co_await client.connect(address);
  REQUIRE_OK(connected);
  auto region = co_await client.call<&Shared::handle>();
  REQUIRE_OK(region);
  Accessor accessor(client);
  Scope scope;
  accessor.begin(scope, *region);
  auto begun = co_await eventually(on, [&] { return accessor.done() > static_cast<int>(batches); });
  EXPECT_TRUE(begun);
  co_await on.sleep(pause);
  owner.kill();
  co_await scope.join();
  for (std::size_t i = 0; i < batches; ++i) {
    const ErrorCode code = accessor.end(i)->code;
    const ErrorCode expected = i % 2 == 0 ? ErrorCode::unavailable : ErrorCode::outcome_unknown;
    EXPECT_TRUE(code == expected || code == ErrorCode::not_sent) << accessor.end(i)->describe();
  }
  auto free = co_await eventually(on, [&] { return !accessor.in_use(); });
  EXPECT_TRUE(free) << "the device still has the memory of a connection that has ended";
}

// The device's objects that belong to connections and their memory.
std::map<std::string, std::uint64_t> connection_resources() {
  std::map<std::string, std::uint64_t> all = resources();
  std::erase_if(all, [](const auto& one) { return one.first != "qp" && one.first != "mr" && one.first != "cq"; });
  return all;
}

// Fewer are possible: memory that was idle for long has been returned.
bool none_more(const std::map<std::string, std::uint64_t>& now, const std::map<std::string, std::uint64_t>& before) {
  return std::ranges::all_of(now, [&](const auto& one) {
    const auto found = before.find(one.first);
    return found != before.end() && one.second <= found->second;
  });
}

TEST_F(Device, PeersThatAreKilledAmidBatchesLeaveNothing) {
  const int count = kills();
  ASSERT_GE(count, 4) << "HAWSER_TEST_KILLS";
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < count; ++i) children.push_back(std::make_unique<Child>(i % 2 == 0 ? own : access));
  Server server(server_options());
  Shared shared(server);
  server.register_handler<&Shared::handle>(&shared);
  ASSERT_TRUE(server.start());
  Loop loop({.log = no_log()});
  std::uint64_t queue_pairs = resources().at("qp");  // The fewest so far. Those of earlier processes may still go.
  std::map<std::string, std::uint64_t> before;
  for (int i = 0; i < count && !HasFailure(); ++i) {
    SCOPED_TRACE("kill " + std::to_string(i));
    Child& child = *children[static_cast<std::size_t>(i)];
    const auto pause = std::chrono::microseconds(i * 197 % 4000);
    if (i % 2 == 0) {
      child.say("begin");
      loop.run(outlive_owner(loop, child, pause));
    } else {
      child.say(server.address());
      ASSERT_EQ(child.hear(), "going");
      std::this_thread::sleep_for(pause);
      child.kill();
    }
    const auto end = std::chrono::steady_clock::now() + patience;
    std::map<std::string, std::uint64_t> now;
    const auto at_rest = [&] {
      if (server.counters().connections_open != 0) return false;
      now = connection_resources();
      if (!now.contains("qp") || now["qp"] > queue_pairs) return false;
      queue_pairs = now["qp"];
      return before.empty() || none_more(now, before);
    };
    while (!at_rest() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(at_rest()) << ::testing::PrintToString(now) << " instead of " << ::testing::PrintToString(before);
    if (i == 1) {
      std::this_thread::sleep_for(300ms);
      before = connection_resources();
      EXPECT_FALSE(before.empty());
    }
  }
}

}  // namespace
}  // namespace hawser::rdma_tests
