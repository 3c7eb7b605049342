// State that clients and servers of a process share, and its lifetime.
#include "hawser/runtime.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/client_pool.h"
#include "hawser/transport/factory.h"
#include "hawser/transport/transport.h"
#include "tests/testing.h"
#include "transport/network.h"

namespace hawser::runtime_tests {

using namespace testing_tools;

inline std::string_view echo_again(std::string_view text) { return text; }

namespace {

// A transport whose device is absent.
class Absent final : public transport::Transport {
 public:
  std::string_view name() const noexcept override { return "absent"; }
  Result<std::shared_ptr<transport::TransportWorker>> attach(Loop&) override {
    return fail(Error::of_transport(ErrorCode::unavailable, "there is no device"));
  }
};

struct AbsentOptions {
  int number = 0;
  friend bool operator==(const AbsentOptions&, const AbsentOptions&) = default;
};

// State that all transports of this name keep in a runtime.
struct Kept {
  int made = 0;
  std::shared_ptr<Kept> self;  // A reference to itself, as if a resource could not be released yet.
};

TransportSpec absent(AbsentOptions options = {}) {
  return transport::make_spec(
      {.name = "absent", .shared = "devices"}, options,
      [](const AbsentOptions&, std::shared_ptr<void>& kept) -> std::shared_ptr<transport::Transport> {
        if (kept == nullptr) kept = std::make_shared<Kept>();
        ++static_cast<Kept&>(*std::static_pointer_cast<Kept>(kept)).made;
        return std::make_shared<Absent>();
      });
}

ServerOptions server_options(std::shared_ptr<Runtime> runtime, TransportSpec transport) {
  ServerOptions options;
  options.loop.log = no_log();
  options.transports.enabled = {std::move(transport)};
  options.runtime = std::move(runtime);
  return options;
}

struct Lines {
  LogSink sink() {
    return [this](LogLevel, std::string_view, std::string_view text) {
      const std::lock_guard lock(mutex);
      all.emplace_back(text);
    };
  }
  std::mutex mutex;
  std::vector<std::string> all;
};

}  // namespace

TEST(RuntimeTest, EqualOptionsShareAndOthersAreToldOnce) {
  Lines lines;
  const std::shared_ptr<Runtime> runtime = Runtime::make({.log = lines.sink()});
  Loop loop({.log = no_log()});
  {
    Server one(loop, server_options(runtime, absent()));
    Server same(loop, server_options(runtime, absent()));
    ASSERT_TRUE(one.start() && same.start());
    EXPECT_EQ(runtime->counters().transports, 1U);
    EXPECT_EQ(runtime->counters().transports_not_shared, 0U);
    EXPECT_EQ(one.transports(), same.transports());
    for (int i = 1; i <= 2; ++i) {
      Server other(loop, server_options(runtime, absent({.number = 1})));
      ASSERT_TRUE(other.start());
      EXPECT_EQ(runtime->counters().transports, 2U);
      EXPECT_EQ(runtime->counters().transports_not_shared, static_cast<std::uint64_t>(i));
    }
  }
  EXPECT_EQ(runtime->counters().transports, 0U);
  ASSERT_EQ(lines.all.size(), 1U);
  EXPECT_NE(lines.all[0].find("absent is used with different options"), std::string::npos) << lines.all[0];
  EXPECT_NE(lines.all[0].find("devices are not shared, because an option differs"), std::string::npos) << lines.all[0];
}

TEST(RuntimeTest, TheOptionThatDiffersIsNamed) {
  const auto difference = [](const TransportSpec& a, const TransportSpec& b) {
    return a.factory().difference(b.factory());
  };
  EXPECT_EQ(difference(rdma(), rdma()), "");
  EXPECT_EQ(difference(rdma(), rdma({.device = "mlx5_1"})), "RdmaOptions::device");
  EXPECT_EQ(difference(rdma({.hop_limit = 1, .poll_burst = 1}), rdma({.hop_limit = 2})), "RdmaOptions::hop_limit");
  EXPECT_EQ(difference(rdma({.poll_burst = 1}), rdma()), "RdmaOptions::poll_burst");
  EXPECT_EQ(difference(ucx({.log_level = "info"}), ucx()), "UcxOptions::log_level");
  EXPECT_EQ(difference(shm({.ring_bytes = 1}), shm()), "an option");
  EXPECT_EQ(difference(shm(), rdma()), "the factory");
}

TEST(RuntimeTest, RuntimesShareNothing) {
  const std::shared_ptr<Runtime> first = Runtime::make();
  const std::shared_ptr<Runtime> second = Runtime::make();
  Loop loop({.log = no_log()});
  Server one(loop, server_options(first, absent()));
  Server other(loop, server_options(second, absent()));
  EXPECT_NE(one.transports(), other.transports());
}

TEST(RuntimeTest, OptionsGoBeforeTheLoopAndTheLoopBeforeTheProcess) {
  const std::shared_ptr<Runtime> of_loop = Runtime::make({.loop = {.log = no_log()}});
  const std::shared_ptr<Runtime> own = Runtime::make();
  Loop loop(of_loop->loop_options());
  EXPECT_EQ(loop.options().runtime, of_loop);
  const auto used = [&](std::shared_ptr<Runtime> given) {
    Server server(loop, server_options(std::move(given), absent()));
    const auto kept = server.transports();
    return std::vector<std::uint64_t>{own->counters().transports, of_loop->counters().transports};
  };
  EXPECT_EQ(used(own), (std::vector<std::uint64_t>{1, 0}));
  EXPECT_EQ(used(nullptr), (std::vector<std::uint64_t>{0, 1}));
  // Clients without a given loop use the loop that runs them, as pools do.
  sync_wait(
      [](Runtime& expected) -> Task<void> {
        Client client({.transports = {.enabled = {absent()}}});
        const auto clients = client.transports();
        EXPECT_EQ(expected.counters().transports, 1U);
        co_return;
      }(*of_loop),
      of_loop->loop_options());
  EXPECT_EQ(Runtime::process_default(), Runtime::process_default());
}

TEST(RuntimeTest, ClientsAndServersKeepWhatTheyUse) {
  std::shared_ptr<Runtime> runtime = Runtime::make({.loop = {.log = no_log()}});
  Loop loop({.log = no_log()});
  ServerOptions options = server_options(runtime, shm());
  Server server(loop, std::move(options));
  server.register_handler<echo_again>();
  ASSERT_TRUE(server.start());
  loop.run([](Loop& on, std::string address, std::shared_ptr<Runtime> with) -> Task<void> {
    Client client(on, {.runtime = std::move(with)});
    PoolOptions pooled;
    pooled.client.runtime = Runtime::make();
    const auto pool = ClientPool::create(on, address, std::move(pooled));
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    auto reply = co_await client.call<echo_again>("hi");
    EXPECT_OK(reply);
    auto other = co_await pool->call<echo_again>(std::string("hi"));
    EXPECT_OK(other);
  }(loop, server.address(), std::move(runtime)));
}

TEST(RuntimeTest, TransportsOfANameKeepOneThingInCommon) {
  const std::shared_ptr<Runtime> runtime = Runtime::make({.log = no_log()});
  std::weak_ptr<Kept> left;
  const TransportSpec spy = transport::make_spec(
      {.name = "absent"}, 7, [&left](int, std::shared_ptr<void>& kept) -> std::shared_ptr<transport::Transport> {
        const auto mine = std::static_pointer_cast<Kept>(kept);
        EXPECT_NE(mine, nullptr);
        if (mine == nullptr) return nullptr;
        EXPECT_EQ(mine->made, 2);
        mine->self = mine;
        left = mine;
        return std::make_shared<Absent>();
      });
  {
    const std::shared_ptr<transport::Network> network = runtime->network();
    const auto one = network->transports({.enabled = {absent()}});
    const auto other = network->transports({.enabled = {absent({.number = 1})}});
    EXPECT_NE(one, other);
    EXPECT_EQ(network->transports({.enabled = {spy}}).size(), 1U);
  }
  // A resource that can't be released when its runtime is destroyed is kept until it can be.
  const_cast<std::shared_ptr<Runtime>&>(runtime).reset();
  const std::shared_ptr<Kept> there = left.lock();
  ASSERT_NE(there, nullptr);
  there->self.reset();
}

// Devices and threads of the parent can't be used in a child.
TEST(RuntimeTest, AChildOfForkHasItsOwn) {
  const std::shared_ptr<Runtime> parents = Runtime::process_default();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::shared_ptr<Runtime> own = Runtime::process_default();
    ::_exit(own != parents && own == Runtime::process_default() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// The order in which static variables are destroyed is not defined, and leak checkers run after it.
TEST(RuntimeDeathTest, StaticClientsMayEndLast) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        static Client client;
        client.enable(absent());
        static_cast<void>(client.transports());
        static const std::shared_ptr<Runtime> runtime = Runtime::process_default();
        static Client later;
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace hawser::runtime_tests
