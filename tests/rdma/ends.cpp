// Ends of connections over RDMA. No resource may be left.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/rdma/child.h"
#include "tests/rdma/device.h"
#include "tests/rdma/own_device.h"

namespace hawser::rdma_tests {

inline std::string echo_text(std::string_view text) { return std::string(text); }

inline Task<std::uint64_t> slow_sum(std::uint64_t a, std::uint64_t b) {
  co_await Loop::current()->sleep(1ms);
  co_return a + b;
}

TEST_F(Device, AThousandConnectsAndDisconnectsLeaveNothing) {
  Loop loop({.log = no_log()});
  Server server(loop, server_options());
  server.register_handler<echo_text>();
  ASSERT_TRUE(server.start());
  loop.run([](Loop& on, std::string address) -> Task<void> {
    for (int i = 0; i < 1000; ++i) {
      Client client(on, client_options());
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      auto reply = co_await client.call<echo_text>("hello");
      REQUIRE_OK(reply);
    }
  }(loop, server.address()));
}

TEST_F(Device, ManyClientsOfOneSlowHandler) {
  for (const bool shared : {false, true}) {
    RdmaOptions options;
    options.shared_receive_queue = shared;
    options.rnr_retries = 0;
    Loop loop({.log = no_log()});
    Server server(loop, server_options(options));
    server.register_handler<slow_sum>();
    server.register_handler<echo_text>();
    ASSERT_TRUE(server.start());
    loop.run([](Loop& on, std::string address, RdmaOptions with) -> Task<void> {
      std::vector<std::unique_ptr<Client>> clients;
      for (int i = 0; i < 64; ++i) {
        clients.push_back(std::make_unique<Client>(on, client_options(with)));
        auto connected = co_await clients.back()->connect(address);
        REQUIRE_OK(connected);
      }
      const auto talk = [](Client& client, std::uint64_t number) -> Task<bool> {
        for (std::uint64_t i = 0; i < 20; ++i) {
          auto sum = co_await client.call<slow_sum>(number, i);
          if (!sum || *sum != number + i) co_return false;
          const std::string text = text_of(i * 977, 'b');
          auto reply = co_await client.call<echo_text>(text);
          if (!reply || *reply != text) co_return false;
        }
        co_return true;
      };
      std::vector<Task<bool>> talks;
      for (std::size_t i = 0; i < clients.size(); ++i) talks.push_back(talk(*clients[i], i));
      const std::vector<bool> done = co_await when_all(std::move(talks));
      for (const bool good : done) EXPECT_TRUE(good);
    }(loop, server.address(), options));
  }
}

// The peers are in different processes, one of which is killed during calls.
TEST_F(Device, AServerThatIsKilledIsNoticedAtOnce) {
  Child child([](const Child::Say& say, const Child::Hear& hear) {
    Server server(server_options());
    server.register_handler<echo_text>();
    server.register_handler<slow_sum>();
    say(server.start() ? server.address() : "");
    hear();
  });
  const std::string address = child.hear();
  ASSERT_FALSE(address.empty());
  Loop loop({.log = no_log()});
  loop.run([](Loop& on, Child& server, std::string to) -> Task<void> {
    Client client(on, client_options());
    auto connected = co_await client.connect(to);
    REQUIRE_OK(connected);
    auto first = co_await client.call<echo_text>("hello");
    REQUIRE_OK(first);
    const Time start = on.now();
    server.kill();
    auto reply = co_await client.call<echo_text>(text_of(300'000));
    EXPECT_FALSE(reply);
    // The end of the byte stream shows the peer's death, before the timeouts of the device.
    EXPECT_LT(on.now() - start, patience);
  }(loop, child, address));
}

TEST_F(Device, AClientThatIsKilledLeavesTheServerFree) {
  Child child([](const Child::Say& say, const Child::Hear& hear) {
    const std::string address = hear();
    Loop loop({.log = no_log()});
    loop.run([](Loop& on, std::string to, const Child::Say& notify, const Child::Hear& listen) -> Task<void> {
      Client client(on, client_options());
      auto connected = co_await client.connect(to);
      if (!connected) co_return;
      auto reply = co_await client.call<echo_text>("hello");
      notify(reply ? "connected" : "failed");
      listen();
    }(loop, address, say, hear));
  });
  Server server(server_options());
  server.register_handler<echo_text>();
  ASSERT_TRUE(server.start());
  child.say(server.address());
  EXPECT_EQ(child.hear(), "connected");
  EXPECT_EQ(server.counters().connections_open, 1U);
  child.kill();
  const auto end = std::chrono::steady_clock::now() + patience;
  while (server.counters().connections_open != 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(server.counters().connections_open, 0U);
}

TEST_F(Device, AtTheWatermarkNewConnectionsAreRefusedAndOldOnesGoOn) {
  RdmaOptions few;
  few.memory_bytes_max = std::size_t{8} << 20;
  few.arena_bytes = std::size_t{4} << 20;
  Loop loop({.log = no_log()});
  Server server(loop, server_options(few));
  server.register_handler<echo_text>();
  ASSERT_TRUE(server.start());
  loop.run([](Loop& on, std::string address) -> Task<void> {
    std::vector<std::unique_ptr<Client>> clients;
    std::string refusal;
    while (refusal.empty() && clients.size() < 100) {
      clients.push_back(std::make_unique<Client>(on, client_options()));
      auto connected = co_await clients.back()->connect(address);
      if (!connected) refusal = connected.error().describe();
    }
    EXPECT_NE(refusal.find("memory_bytes_max"), std::string::npos) << refusal;
    EXPECT_GE(clients.size(), 3U);
    clients.pop_back();
    const std::string text = text_of(1'000'000);
    for (int round = 0; round < 3; ++round) {
      for (const auto& client : clients) {
        auto reply = co_await client->call<echo_text>(text);
        REQUIRE_OK(reply);
        EXPECT_EQ(*reply, text);
      }
    }
    // After one connection has ended, there is room again.
    clients.pop_back();
    Client late(on, client_options());
    const Time end = on.after(patience);
    for (;;) {
      auto connected = co_await late.connect(address);
      if (connected) break;
      REQUIRE(on.now() < end);
      co_await on.sleep(5ms);
    }
  }(loop, server.address()));
}

// On a separate device, since the test deletes it.
TEST_F(Device, ADeviceThatIsDeletedEndsItsCalls) {
  const OwnDevice device(0);
  NEEDS_OWN_DEVICE(device);
  std::FILE* deletion = nullptr;  // The command that runs meanwhile.
  {
    RdmaOptions options;
    options.device = device.name();
    Loop loop({.log = no_log()});
    Server server(loop, server_options(options));
    server.register_handler<echo_text>();
    server.register_handler<slow_sum>();
    ASSERT_TRUE(server.start());
    loop.run(
        [](Loop& on, std::string address, RdmaOptions with, const OwnDevice& of, std::FILE*& command) -> Task<void> {
          Client client(on, client_options(with));
          auto connected = co_await client.connect(address);
          REQUIRE_OK(connected);
          std::array<std::uint64_t, 4> good{};
          const auto load = [](Client& over, std::uint64_t& count) -> Task<void> {
            for (;;) {
              auto reply = co_await over.call<echo_text>(text_of(100'000));
              if (!reply) co_return;
              ++count;
            }
          };
          Scope scope;
          for (std::uint64_t& one : good) scope.spawn(load(client, one));
          auto all_work = co_await eventually(on, [&] { return std::ranges::find(good, 0U) == good.end(); });
          EXPECT_TRUE(all_work);
          // The kernel may keep the device until all users have closed it, and let it work meanwhile. Without its
          // network the device can't work.
          command = popen(("rdma link delete " + of.name()).c_str(), "r");
          EXPECT_NE(command, nullptr);
          co_await on.sleep(500ms);
          EXPECT_TRUE(of.unplug());
          co_await scope.join();
        }(loop, server.address(), options, device, deletion));
  }
  const auto end = std::chrono::steady_clock::now() + patience;
  const auto listed = [] { return std::system("rdma link show hawser_rxe0/1 2>/dev/null | grep -q hawser_rxe0") == 0; };
  while (listed() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(10ms);
  ASSERT_FALSE(listed()) << "somebody has not let go";
  ASSERT_NE(deletion, nullptr);
  EXPECT_EQ(pclose(deletion), 0);
}

}  // namespace hawser::rdma_tests
