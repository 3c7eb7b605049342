// The store over a real RDMA device, such as that of tools/rdma-guest.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/kv.h"
#include "hawser/transports.h"
#include "kv/client_access.h"
#include "kv/one_sided_reader.h"
#include "kv/test/kv_process.h"
#include "tests/rdma/counters.h"

namespace hawser::kv {
namespace {

// The processor time of a process in ticks of the kernel, and its state: 'T' if it is stopped.
struct Usage {
  explicit Usage(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::istringstream fields(text.substr(text.rfind(')') + 1));
    constexpr int before_times = 10;
    std::string skipped;
    fields >> state;
    for (int i = 0; i < before_times; ++i) fields >> skipped;
    std::uint64_t system = 0;
    fields >> ticks >> system;
    ticks += system;
  }
  char state = '?';
  std::uint64_t ticks = 0;
};

// Returns when each thread of the stopped process has left its processor: the state of a thread is 'T' shortly before.
void await_rest(pid_t process) {
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
    const auto running = [&thread] {
      std::ifstream file(thread.path() / "syscall");
      std::string text;
      return std::getline(file, text) && text == "running";
    };
    while (running()) std::this_thread::yield();
  }
}

constexpr std::size_t stopped_keys = 16;
constexpr int stopped_rounds = 20;

std::string value_of(std::size_t key) {
  constexpr std::size_t in_ring = 1000;  // Two READs each.
  return std::string(key % 4 == 3 ? in_ring : 64, static_cast<char>('a' + key));
}

Task<void> read_of_a_stopped_server(ServeProcess& server) {
  constexpr auto patience = std::chrono::seconds(60);
  ClientOptions options;
  options.transports = {.enabled = {rdma()}, .required = "rdma"};
  options.call_timeout = patience;
  options.connect_timeout = patience;
  Client link(options);
  const Result<void> connected = co_await link.connect(server.address);
  EXPECT_TRUE(connected) << (connected ? "" : connected.error().text);
  if (!connected) co_return;
  OneSidedReader reader(link, {.calls_every = 0});
  KvClient client = KvClientAccess::with(link, reader);
  Loop& loop = *Loop::current();
  for (std::size_t i = 0; i < stopped_keys; ++i) {
    const std::string key = "key" + std::to_string(i);
    const auto set = co_await client.set(key, value_of(i));
    EXPECT_TRUE(set);
    const Time end = loop.after(patience);
    for (std::uint64_t before = reader.counters().found; reader.counters().found == before && loop.now() < end;) {
      const Result<std::optional<Value>> value = co_await client.get(key);
      EXPECT_TRUE(value && *value && (*value)->bytes == value_of(i));
    }
  }
  EXPECT_EQ(kill(server.process(), SIGSTOP), 0);
  EXPECT_EQ(waitpid(server.process(), nullptr, WUNTRACED), server.process());
  await_rest(server.process());
  const Usage before(server.process());
  EXPECT_EQ(before.state, 'T');
  const std::uint64_t found = reader.counters().found;
  bool right = true;
  for (int round = 0; round < stopped_rounds && right; ++round) {
    for (std::size_t i = 0; i < stopped_keys && right; ++i) {
      const Result<std::optional<Value>> value = co_await client.get("key" + std::to_string(i));
      right = value && *value && (*value)->bytes == value_of(i);
      EXPECT_TRUE(right) << (value ? "another value" : value.error().text);
    }
  }
  const Usage after(server.process());
  EXPECT_EQ(kill(server.process(), SIGCONT), 0);
  EXPECT_EQ(after.state, 'T');
  EXPECT_EQ(after.ticks, before.ticks);
  EXPECT_EQ(reader.counters().found - found, stopped_rounds * stopped_keys);
  EXPECT_EQ(reader.counters().failed, 0U);
  // The server continues as if nothing had been.
  const auto set = co_await client.set("key0", "new");
  EXPECT_TRUE(set);
  const Result<std::optional<Value>> value = co_await client.get("key0");
  EXPECT_TRUE(value && *value && (*value)->bytes == "new");
  EXPECT_TRUE(link.connected());
}

// Reads succeed while the server's process is stopped: they cost none of its instructions.
TEST(KvOverRdma, ReadsNeedNoInstructionOfTheServer) {
  if (!rdma_tests::any_device()) {
    ASSERT_EQ(std::getenv("HAWSER_RDMA_GUEST"), nullptr) << "the guest has no RDMA device";
    GTEST_SKIP() << "no RDMA device";
  }
  ServeProcess server({"--transports", "rdma"});
  ASSERT_FALSE(server.address.empty()) << server.text;
  sync_wait(read_of_a_stopped_server(server));
}

}  // namespace
}  // namespace hawser::kv
