// Counts the allocations of calls: a call allocates nothing in the steady state.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <ostream>
#include <string>
#include <thread>
#include <utility>

#include "hawser/blocking_client.h"
#include "hawser/hawser.h"
#include "tests/raw_peer.h"
#include "tests/rdma/counters.h"

namespace {

std::atomic<std::size_t> allocations{0};
std::atomic<bool> out_of_memory{false};
// Allocations, of other threads than the test's, until one fails. Negative after the failure.
std::atomic<int> until_failure{-1};
thread_local bool test_thread = false;

[[maybe_unused]] void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (out_of_memory.load(std::memory_order_relaxed)) throw std::bad_alloc();
  if (until_failure.load(std::memory_order_relaxed) >= 0 && !test_thread && until_failure.fetch_sub(1) == 0) {
    throw std::bad_alloc();
  }
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(bytes)
                     : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

#ifndef HAWSER_SANITIZED
void* operator new(std::size_t bytes) { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

// Not an unnamed namespace, since GCC 12 warns of coroutines whose types lie in one.
namespace hawser::allocation_test {

std::string_view echo(std::string_view text) { return text; }
Task<std::string_view> echo_later(std::string_view text) {
  auto* loop = Loop::current();
  co_await loop->sleep(Duration(1));
  co_return text;
}

enum class Method { plain, coroutine };

template <auto F>
Task<void> call_repeatedly(Client& client, std::string_view payload, int calls) {
  for (int i = 0; i < calls; ++i) {
    Result<Reply<std::string_view>> reply = co_await client.call<F>(payload).reply();
    EXPECT_TRUE(reply.has_value());
    if (!reply) co_return;
    EXPECT_EQ(reply->value().size(), payload.size());
  }
}

Task<void> run_calls(Client& client, Method method, std::string_view payload, int concurrency, int calls) {
  Scope scope;
  for (int i = 0; i < concurrency; ++i) {
    scope.spawn(method == Method::plain ? call_repeatedly<echo>(client, payload, calls)
                                        : call_repeatedly<echo_later>(client, payload, calls));
  }
  co_await scope.join();
}

struct Case {
  Method method;
  std::size_t bytes;
  int concurrency;
  std::string transport = {};  // Empty: the default order of transports.
};
void PrintTo(const Case& shape, std::ostream* out) {
  *out << shape.bytes << " B x" << shape.concurrency << ' ' << (shape.transport.empty() ? "any" : shape.transport);
}

TransportOptions transports_of(const Case& shape) {
  if (shape.transport.empty()) return {};
  return {.enabled = {shm(), rdma()}, .order = {shape.transport}, .required = shape.transport};
}

// Emulated processors copy large payloads slowly, so 200 calls in total replace 200 for each, or 100 of the largest.
int rounds_of(const Case& shape) {
  if (shape.transport != "rdma" || shape.bytes <= 64 * 1024) return 200;
  return (shape.bytes > 512 * 1024 ? 100 : 200) / shape.concurrency;
}
constexpr int few_rounds = 20;
// Longer than an emulated device of a busy machine takes.
constexpr Duration patient_time = std::chrono::minutes(2);

class Allocations : public testing::TestWithParam<Case> {};

TEST_P(Allocations, NoneInTheSteadyState) {
#ifdef HAWSER_SANITIZED
  GTEST_SKIP() << "a sanitizer has an allocator of its own";
#endif
  const Case shape = GetParam();
  if (shape.transport == "rdma" && !rdma_tests::any_device()) GTEST_SKIP() << "no RDMA device";
  Loop loop({.wait = Wait::event, .blocked_max = forever});  // The warning of a slow machine allocates.
  ServerOptions options;
  options.transports = transports_of(shape);
  options.handshake_timeout = patient_time;
  Server server(loop, std::move(options));
  server.register_handler<echo, echo_later>();
  ASSERT_TRUE(server.start().has_value());
  const std::string payload(shape.bytes, 'x');
  std::size_t few = 0;
  std::size_t many = 0;
  loop.run([](Loop& on, Server& to, const Case& with, std::string_view text, std::size_t& first,
              std::size_t& second) -> Task<void> {
    ClientOptions client_options;
    client_options.transports = transports_of(with);
    client_options.connect_timeout = client_options.call_timeout = patient_time;
    Client client(on, std::move(client_options));
    const Result<void> connected = co_await client.connect(to.address());
    EXPECT_TRUE(connected.has_value());
    const auto counted_run = [&](int calls) -> Task<std::size_t> {
      const std::size_t before = allocations.load();
      co_await run_calls(client, with.method, text, with.concurrency, calls);
      co_return allocations.load() - before;
    };
    // Pools and tables grow to the size that this shape needs, and do not grow in later calls.
    const int rounds = rounds_of(with);
    static_cast<void>(co_await counted_run(rounds));
    first = co_await counted_run(few_rounds);
    second = co_await counted_run(few_rounds + rounds);
    client.close();
    co_await to.shut_down(std::chrono::seconds(5));
  }(loop, server, shape, payload, few, many));
  const int rounds = rounds_of(shape);
  const auto calls = static_cast<std::size_t>(shape.concurrency * rounds);
  // Timing decides how deep queues become, so a few late allocations are allowed, but not one in a hundred calls, or
  // three in a hundred where there are no more.
  EXPECT_LT(many, few + std::max<std::size_t>(calls / 100, 3))
      << few << " allocations by " << shape.concurrency * few_rounds << " calls, " << many << " by "
      << shape.concurrency * (few_rounds + rounds);
  RecordProperty("allocations_per_call",
                 std::to_string(static_cast<double>(many) / (shape.concurrency * (few_rounds + rounds))));
}

std::string name_of(const testing::TestParamInfo<Case>& one) {
  return (one.param.method == Method::plain ? "plain_" : "coroutine_") + std::to_string(one.param.bytes) + "_x" +
         std::to_string(one.param.concurrency);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Allocations,
                         testing::Values(Case{Method::plain, 128, 1}, Case{Method::plain, 128, 64},
                                         Case{Method::coroutine, 128, 64}, Case{Method::plain, 4096, 64},
                                         Case{Method::plain, 16 * 1024, 8}, Case{Method::plain, 256 * 1024, 4},
                                         Case{Method::coroutine, 256 * 1024, 4}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Rdma, Allocations,
                         testing::Values(Case{Method::plain, 128, 1, "rdma"}, Case{Method::plain, 128, 64, "rdma"},
                                         Case{Method::coroutine, 4096, 64, "rdma"},
                                         Case{Method::plain, 16 * 1024, 8, "rdma"},
                                         Case{Method::plain, 128 * 1024, 4, "rdma"},
                                         Case{Method::coroutine, 256 * 1024, 4, "rdma"},
                                         Case{Method::plain, 1024 * 1024, 1, "rdma"}),
                         name_of);

Task<int> hold(Context& context) {
  co_await context.loop().sleep(std::chrono::hours(1));
  co_return 0;
}

int twice(int value) { return 2 * value; }

TEST(BlockingAllocations, NoneInTheSteadyState) {
#ifdef HAWSER_SANITIZED
  GTEST_SKIP() << "a sanitizer has an allocator of its own";
#endif
  const LoopOptions without_warnings{.blocked_max = forever};  // The warning of a slow machine allocates.
  Server server(ServerOptions{.loop = without_warnings});
  server.register_handler<twice>();
  ASSERT_TRUE(server.start().has_value());
  BlockingClient client(server.address(), {.background = {.loop = without_warnings}});
  const auto allocations_of = [&](int calls) {
    const std::size_t before = allocations.load();
    for (int i = 0; i < calls; ++i) EXPECT_EQ(client.call<twice>(i), 2 * i);
    return allocations.load() - before;
  };
  static_cast<void>(allocations_of(200));
  EXPECT_LT(allocations_of(500), 5U);
}

// A loop is often blocked because the system has little memory.
TEST(OutOfMemory, ALoopThatWasBlockedGoesOn) {
#ifdef HAWSER_SANITIZED
  GTEST_SKIP() << "a sanitizer has an allocator of its own";
#endif
  bool out = false;
  Loop loop({.blocked_max = std::chrono::milliseconds(1),
             .log = [&](LogLevel, std::string_view, std::string_view) { out = out || out_of_memory.load(); }});
  loop.run([](Loop& on) -> Task<void> {
    out_of_memory.store(true);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    co_await on.sleep(Duration(1));
    out_of_memory.store(false);
  }(loop));
  EXPECT_FALSE(out) << "there was memory for the line";
}

// A server is often stopped because memory is scarce. Here it has a silent connection, and one with a call that does
// not end.
TEST(OutOfMemory, AServerStops) {
#ifdef HAWSER_SANITIZED
  GTEST_SKIP() << "a sanitizer has an allocator of its own";
#endif
  using namespace testing_tools;
  ServerOptions options;
  options.loop.log = no_log();
  Server server(std::move(options));
  server.register_handler<hold>();
  ASSERT_TRUE(server.start().has_value());
  const RawSocket silent = RawSocket::greeted(server.address());
  RawSocket busy = RawSocket::greeted(server.address());
  using Facts = detail::MethodFacts<hold>;
  busy.send(message(
      {.kind = wire::FrameKind::request, .call = 1U << 16, .method = Facts::id, .signature = Facts::signature}));
  const auto end = std::chrono::steady_clock::now() + patience;
  while (server.counters().calls_in_flight != 1 || server.counters().connections_open != 2) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  out_of_memory.store(true);
  server.stop(Duration::zero());
  out_of_memory.store(false);
  EXPECT_EQ(server.counters().connections_open, 0U);
  EXPECT_EQ(server.counters().calls_in_flight, 0U);
}

int block(Context&) {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return 0;
}

// Each single allocation of a server fails once: at its start, in a handshake, and while offloaded calls are cancelled
// by their callers or by their deadlines. A failure ends at most one connection.
TEST(OutOfMemory, NoSingleFailureEndsAServer) {
#ifdef HAWSER_SANITIZED
  GTEST_SKIP() << "a sanitizer has an allocator of its own";
#endif
  using namespace testing_tools;
  test_thread = true;
  using Facts = detail::MethodFacts<block>;
  for (int failing = 0, left = -1; left < 0; ++failing) {
    SCOPED_TRACE(failing);
    ASSERT_LT(failing, 1000);
    ServerOptions options;
    options.loop.log = no_log();
    options.loop.offload_threads_max = 1;
    options.handshake_timeout = std::chrono::milliseconds(2);
    Server server(std::move(options));
    server.register_handler<block>(HandlerOptions{.offload = true});
    until_failure = failing;
    ASSERT_TRUE(server.start().has_value());
    const RawSocket silent = RawSocket::connected_to(server.address());
    {
      RawSocket caller = RawSocket::connected_to(server.address());
      caller.send(wire::encode_hello(usual_hello()));
      for (std::uint32_t slot = 0; slot < 3; ++slot) {
        const std::uint32_t id = 1U << 16 | slot;
        caller.send(message({.kind = wire::FrameKind::request,
                             .call = id,
                             .method = Facts::id,
                             .signature = Facts::signature,
                             .deadline = slot == 1 ? wire::encode_deadline(1000) : 0U}));
        if (slot == 2) caller.send(message({.kind = wire::FrameKind::cancel, .call = id}));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(6));
    }
    server.stop(Duration::zero());
    left = until_failure.exchange(-1);
    EXPECT_EQ(server.counters().connections_open, 0U);
    EXPECT_EQ(server.counters().calls_in_flight, 0U);
  }
}

}  // namespace hawser::allocation_test
