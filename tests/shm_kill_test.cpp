// Processes that are killed at any instruction while they communicate through shared memory. The other side is
// notified, and no resource is left.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/random.h"
#include "hawser/hawser.h"
#include "hawser/loan.h"

namespace hawser {

// Replies by a loan.
std::string_view killed_echo(Context& context, std::string_view text);
std::string_view killed_echo(Context& context, std::string_view text) {
  Buffer reply = loan(context, text.size());
  std::memcpy(reply.mutable_data(), text.data(), text.size());
  context.keep_until_sent(reply);
  return reply.text();
}

namespace {

#ifdef HAWSER_SANITIZED
constexpr int kills = 40;
#else
constexpr int kills = 200;
#endif

TransportOptions shm_only() {
  // Small sizes, so that every mechanism of the transport is used and its resources run out.
  return {.enabled = {shm({.ring_bytes = 64 * 1024, .slab_bytes = 1 << 20, .direct_read_bytes_min = 300'000})},
          .required = "shm"};
}

LoopOptions quiet_loop(int round) {
  LoopOptions options;
  options.log = no_log();
  options.wait = round % 2 == 0 ? Wait::spin : Wait::event;
  return options;
}

std::size_t descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Returns the number of mappings of shared memory objects.
std::size_t mappings() {
  std::ifstream file("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(file, line);) count += line.find("memfd:hawser") != std::string::npos ? 1 : 0;
  return count;
}

// Every second request is a loan.
Buffer killed_text(const Client& client, Random& random) {
  const std::size_t bytes = random.below(random.chance(0.3) ? 600'000 : 3000);
  Buffer text = random.chance(0.5) ? loan(client, bytes) : Buffer::allocate(bytes);
  std::memset(text.mutable_data(), 'x', bytes);
  return text;
}

// A client that makes calls without end, several at a time, with requests of all sizes.
Task<void> call_for_ever(std::string address, std::uint64_t seed, Loop& loop) {
  Client client(loop, {.transports = shm_only()});
  Result<void> connected = co_await client.connect(address);
  if (!connected) _exit(2);
  Scope scope;
  for (int i = 0; i < 8; ++i) {
    scope.spawn([](Client& from, Random random) -> Task<void> {
      for (;;) {
        const Buffer text = killed_text(from, random);
        Result<std::string> reply = co_await from.call<killed_echo>(text.text());
        if (!reply || *reply != text.text()) _exit(3);
      }
    }(client, Random(seed + static_cast<std::uint64_t>(i))));
  }
  co_await scope.join();
}

[[noreturn]] void run_client(const std::string& address, std::uint64_t seed, int round) {
  Loop loop(quiet_loop(round));
  loop.run(call_for_ever(address, seed, loop));
  _exit(4);
}

template <class F>
bool until(Loop& loop, F done) {
  return loop.run([](Loop& self, F& condition) -> Task<bool> {
    for (int i = 0; i < 100'000; ++i) {
      if (condition()) co_return true;
      co_await self.sleep(std::chrono::microseconds(200));
    }
    co_return false;
  }(loop, done));
}

// Checks that the child was killed by the test.
void expect_killed(pid_t child) {
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it ended by itself: " << status;
}

TEST(ShmKill, AClientAtAnyInstruction) {
  Random random(1);
  std::uint64_t calls = 0;
  std::size_t descriptors_before = 0;
  for (int round = 0; round < kills; ++round) {
    Loop loop(quiet_loop(round));
    Server server(loop, {.transports = shm_only()});
    server.register_handler<killed_echo>();
    ASSERT_TRUE(server.start().has_value());
    std::array<pid_t, 2> children{};
    for (pid_t& child : children) {
      child = fork();
      if (child == 0) run_client(server.address(), random.next(), round);
    }
    EXPECT_TRUE(until(loop, [&] { return server.counters().calls >= 2; }));
    loop.run(loop.sleep(std::chrono::microseconds(random.below(6000)), {}));
    for (const pid_t child : children) {
      kill(child, SIGKILL);
      expect_killed(child);
    }
    EXPECT_TRUE(until(loop,
                      [&] {
                        const ServerCounters counters = server.counters();
                        return counters.connections_open == 0 && counters.calls_in_flight == 0;
                      }))
        << "round " << round;
    EXPECT_EQ(server.counters().protocol_errors, 0U);
    calls += server.counters().calls;
    until(loop, [] { return mappings() == 0; });
    EXPECT_EQ(mappings(), 0U);
    if (round == 0) descriptors_before = descriptors();
    // A helper thread that was reading closes its descriptor of the process soon.
    until(loop, [&] { return descriptors() <= descriptors_before; });
    EXPECT_LE(descriptors(), descriptors_before) << "round " << round;
  }
  EXPECT_GT(calls, static_cast<std::uint64_t>(kills));
}

TEST(ShmKill, AServerAtAnyInstruction) {
  Random random(2);
  std::size_t lost = 0;
  for (int round = 0; round < kills; ++round) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      Loop loop(quiet_loop(round + 1));
      Server server(loop, {.transports = shm_only()});
      server.register_handler<killed_echo>();
      if (!server.start()) _exit(2);
      const std::string address = server.address();
      if (write(ends[1], address.data(), address.size()) < 0) _exit(3);
      loop.run();
      _exit(4);
    }
    std::array<char, 64> address{};
    ASSERT_GT(read(ends[0], address.data(), address.size() - 1), 0);
    close(ends[0]);
    close(ends[1]);
    Loop loop(quiet_loop(round));
    std::size_t ended = 0;
    std::size_t answered = 0;
    auto task = [](Loop& self, std::string where, Random dice, std::size_t& ends_seen, std::size_t& answers,
                   pid_t server) -> Task<void> {
      Client client(self, {.transports = shm_only()});
      Result<void> connected = co_await client.connect(where);
      EXPECT_TRUE(connected.has_value());
      Scope scope;
      for (std::uint64_t i = 0; i < 8; ++i) {
        scope.spawn([](Client& from, Random sizes, std::size_t& ended_calls, std::size_t& good) -> Task<void> {
          for (;;) {
            const Buffer text = killed_text(from, sizes);
            Result<std::string> reply = co_await from.call<killed_echo>(text.text());
            if (reply) {
              EXPECT_TRUE(*reply == text.text());
              ++good;
              continue;
            }
            // A call that was not sent may have tried to connect to the server once more.
            EXPECT_TRUE(reply.error().code == ErrorCode::outcome_unknown || reply.error().code == ErrorCode::not_sent ||
                        reply.error().code == ErrorCode::unavailable)
                << reply.error().describe();
            ++ended_calls;
            co_return;
          }
        }(client, Random(dice.next() + i), ends_seen, answers));
      }
      co_await self.sleep(std::chrono::microseconds(dice.below(6000)));
      kill(server, SIGKILL);
      co_await scope.join();
    }(loop, address.data(), Random(random.next()), ended, answered, child);
    loop.run(std::move(task));
    EXPECT_EQ(ended, 8U) << "every call ends once";
    lost += ended;
    expect_killed(child);
    loop.run_posted();
    EXPECT_EQ(mappings(), 0U);
  }
  EXPECT_EQ(lost, static_cast<std::size_t>(kills) * 8);
}

}  // namespace
}  // namespace hawser
