#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <new>
#include <string>
#include <utility>

#include "tests/simulation/world.h"
#include "transport/network_access.h"

// The memory of a server stays within its limits. Every allocation of the program is counted. These tests are skipped
// with a sanitizer, which replaces the allocator.
namespace hawser::simulation {

std::uint64_t length(std::string_view text);
std::uint64_t length(std::string_view text) { return text.size(); }
std::string many(std::uint32_t bytes);
std::string many(std::uint32_t bytes) { return std::string(bytes, 'm'); }

namespace {

#ifdef HAWSER_SANITIZED
constexpr bool counting = false;
#else
constexpr bool counting = true;
#endif

// Every block is preceded by a header of this size, which has the block's size. Alignments up to this size are
// preserved.
constexpr std::size_t header_bytes = 64;
std::atomic<std::size_t> live_bytes{0};
std::atomic<std::size_t> peak_bytes{0};

[[maybe_unused]] void* allocate(std::size_t bytes) {
  void* const memory = std::aligned_alloc(header_bytes, (bytes + 2 * header_bytes - 1) / header_bytes * header_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  *static_cast<std::size_t*>(memory) = bytes;
  const std::size_t now = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (now > peak_bytes.load(std::memory_order_relaxed)) peak_bytes.store(now, std::memory_order_relaxed);
  return static_cast<std::byte*>(memory) + header_bytes;
}

[[maybe_unused]] void release(void* memory) noexcept {
  if (memory == nullptr) return;
  void* const begin = static_cast<std::byte*>(memory) - header_bytes;
  live_bytes.fetch_sub(*static_cast<std::size_t*>(begin), std::memory_order_relaxed);
  std::free(begin);
}

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

// The simulated network holds the bytes of each direction itself, so its buffers are small.
constexpr transport::SimOptions narrow{
    .bytes_per_second = 10'000'000, .buffer_bytes_min = 16 * kib, .buffer_bytes_max = 16 * kib};

class Bounds : public testing::Test {
 protected:
  void SetUp() override {
    if (!counting) GTEST_SKIP() << "a sanitizer counts for itself";
  }

  // Runs `work` and returns the largest amount of memory that it used beyond that of the beginning.
  std::size_t growth(Task<void> work) {
    const std::size_t before = live_bytes;
    peak_bytes = before;
    loop_.run(std::move(work));
    return peak_bytes - before;
  }

  Loop loop_{std::make_unique<exec::SimPoller>(), {.log = no_log()}};
  std::shared_ptr<transport::SimNetwork> network_ = std::make_shared<transport::SimNetwork>(1, narrow);
};

struct Tally {
  unsigned replied = 0;
  unsigned overloaded = 0;
  unsigned other = 0;
  template <class R>
  void add(const Result<R>& result) {
    ++(result ? replied : result.error().code == ErrorCode::overloaded ? overloaded : other);
  }
};

Task<void> send_large(Client& client, std::string_view text, Tally& tally) {
  const Result<void> connected = co_await client.connect("server:1");
  if (!connected) co_return;
  const Result<std::uint64_t> reply = co_await client.call<length>(text);
  tally.add(reply);
}

Task<void> send_all(std::deque<Client>& clients, const std::string& text, Tally& tally) {
  Scope scope;
  for (Client& client : clients) scope.spawn(send_large(client, text, tally));
  co_await scope.join();
}

TEST_F(Bounds, OfLargeRequestsBeingReceived) {
  // All clients are on one simulated host, whose share is the whole budget here.
  Server server(loop_, over(network_, ServerOptions{.listen = "server:1",
                                                    .message_bytes_max = mib + 64 * kib,
                                                    .receive_bytes_max = 4 * mib,
                                                    .receive_peer_bytes_max = 4 * mib}));
  server.register_handler<length>();
  ASSERT_TRUE(server.start());
  std::deque<Client> clients;
  for (unsigned i = 0; i < 32; ++i) clients.emplace_back(loop_, over(network_, ClientOptions()));
  const std::string text(mib, 'x');
  Tally tally;
  const std::size_t grown = growth(send_all(clients, text, tally));
  EXPECT_EQ(tally.replied + tally.overloaded, 32U);
  EXPECT_GE(tally.replied, 3U);
  EXPECT_GE(tally.overloaded, 16U);
  // Beside the requests: the blocks of busy connections (256 KiB to receive, 64 KiB to send) and the network's buffers.
  EXPECT_LE(grown, 4 * mib + 32 * 384 * kib) << tally.replied << " replied";
}

Task<void> ask(Client& client, Tally& tally) {
  const Result<std::string> reply = co_await client.call<many>(std::uint32_t{64 * kib});
  tally.add(reply);
}

Task<void> ask_all(Client& client, unsigned calls, Tally& tally) {
  const Result<void> connected = co_await client.connect("server:1");
  if (!connected) co_return;
  Scope scope;
  for (unsigned i = 0; i < calls; ++i) scope.spawn(ask(client, tally));
  co_await scope.join();
}

TEST_F(Bounds, OfRepliesThatWaitForASlowClient) {
  Server server(loop_, over(network_, ServerOptions{.listen = "server:1", .send_backlog_bytes_max = 256 * kib}));
  server.register_handler<many>();
  ASSERT_TRUE(server.start());
  Client client(loop_, over(network_, ClientOptions{.call_timeout = forever}));
  Tally tally;
  const std::size_t grown = growth(ask_all(client, 1000, tally));
  EXPECT_EQ(tally.replied, 1000U);
  // 62 MiB of replies pass. The limit covers waiting replies, one more, and the state of a thousand calls.
  EXPECT_LE(grown, (256 + 64) * kib + 4 * mib);
}

}  // namespace
}  // namespace hawser::simulation

#ifndef HAWSER_SANITIZED
void* operator new(std::size_t bytes) { return hawser::simulation::allocate(bytes); }
void* operator new(std::size_t bytes, std::align_val_t) { return hawser::simulation::allocate(bytes); }
void operator delete(void* memory) noexcept { hawser::simulation::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { hawser::simulation::release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { hawser::simulation::release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { hawser::simulation::release(memory); }
#endif
