#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "hawser/hawser.h"
#include "tests/out_of_memory/block_limit.h"
#include "tests/testing.h"

// State after a failed allocation. The allocator of blocks refuses blocks larger than a test allows.
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (bytes > hawser::out_of_memory::block_bytes_max.load() || hawser::out_of_memory::fails_now()) {
    throw std::bad_alloc();
  }
  const auto unit = static_cast<std::size_t>(alignment);
  void* const memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes) {
  void* const memory = hawser::out_of_memory::fails_now() ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace hawser::out_of_memory {

using namespace testing_tools;

constexpr std::size_t little = 1 << 20;

struct Record {
  std::string text;
};
// Returns a result whose encoding is larger than `little` and has no piece that is large enough to be sent without a
// copy.
std::vector<Record> many_records(int count) {
  std::vector<Record> records(static_cast<std::size_t>(count), {std::string(4000, 'r')});
  block_bytes_max = little;
  return records;
}
std::vector<Record> plain(int count) { return many_records(count); }
std::vector<Record> offloaded(int count) { return many_records(count); }
Task<std::vector<Record>> coroutine(int count) { co_return many_records(count); }
std::size_t count(const std::vector<std::string_view>& parts) { return parts.size(); }

class OutOfMemory : public ::testing::Test {
 protected:
  OutOfMemory()
      : server(loop, {.loop = {.log = no_log()}, .exception_texts = true}),
        client(loop, {.transports = {.required = "stream"}}) {
    server.register_handler<plain, coroutine, count>();
    server.register_handler<offloaded>(HandlerOptions{.offload = true});
  }
  ~OutOfMemory() override { block_bytes_max = SIZE_MAX; }

  template <class Body>
  void run(Body body) {
    loop.run([&]() -> Task<void> {
      REQUIRE_OK(server.start());
      auto connected = co_await client.connect(server.address());
      REQUIRE_OK(connected);
      co_await body();
      block_bytes_max = SIZE_MAX;
      EXPECT_EQ(server.counters().calls_in_flight, 0U);
    }());
  }

  template <auto F>
  void expect_refused() {
    run([&]() -> Task<void> {
      auto refused = co_await client.call<F>(1000);
      EXPECT_ERROR(refused, internal, "threw an exception: std::bad_alloc");
      // Neither the connection nor the process has ended.
      block_bytes_max = SIZE_MAX;
      auto small = co_await client.call<F>(1);
      EXPECT_OK(small);
    });
  }

  Loop loop{LoopOptions{.log = no_log()}};
  Server server;
  Client client;
};

TEST_F(OutOfMemory, AReplyOfAPlainHandlerIsAnError) { expect_refused<plain>(); }
TEST_F(OutOfMemory, AReplyOfACoroutineIsAnError) { expect_refused<coroutine>(); }
TEST_F(OutOfMemory, AReplyOfAnOffloadedHandlerIsAnError) { expect_refused<offloaded>(); }

// An allocation of the caller fails: its call ends with an error, and its slot is free again.
TEST_F(OutOfMemory, ARequestThatCannotBeEncodedIsAnError) {
  run([&]() -> Task<void> {
    const std::string part(4000, 'p');
    const std::vector<std::string_view> parts(1000, part);
    block_bytes_max = little;
    for (int i = 0; i < 3; ++i) {
      auto refused = co_await client.call<count>(parts);
      EXPECT_ERROR(refused, internal, "out of memory");
    }
    block_bytes_max = SIZE_MAX;
    EXPECT_EQ(client.calls_in_flight(), 0U);
    auto sent = co_await client.call<count>(parts);
    EXPECT_EQ(sent, 1000U);
  });
}

}  // namespace hawser::out_of_memory
