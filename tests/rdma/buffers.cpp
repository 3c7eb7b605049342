// Registered buffers when calls and connections end while a device uses them.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "hawser/rdma.h"
#include "tests/rdma/child.h"
#include "tests/rdma/device.h"

namespace hawser::rdma_tests {

inline std::uint64_t size_of_attachment(Context& context) { return context.attachment().size(); }

TEST_F(Device, MemoryTakenBackUnderWayBreaksTheConnectionAndNothingElse) {
  Loop loop({.log = no_log()});
  Server server(server_options());
  server.register_handler<size_of_attachment>();
  ASSERT_TRUE(server.start());
  loop.run([](Loop& on, std::string address) -> Task<void> {
    for (int i = 0; i < 5; ++i) {
      Client client(on, client_options());
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      std::vector<std::byte> memory(8 << 20);
      std::optional<RegisteredBuffer> buffer = *RegisteredBuffer::wrap(client, memory);
      Scope scope;
      std::optional<Result<std::uint64_t>> outcome;
      scope.spawn([](Client& to, Bytes what, std::optional<Result<std::uint64_t>>& result) -> Task<void> {
        const CallOptions size_options{.timeout = patience, .attachment = what};
        auto size = co_await to.call<size_of_attachment>(size_options);
        result.emplace(std::move(size));
      }(client, buffer->memory(), outcome));
      auto reading = co_await eventually(on, [&] { return buffer->in_use(); });
      REQUIRE(reading);
      buffer.reset();
      co_await scope.join();
      // The device has read all of it before, or nothing.
      if (*outcome) {
        EXPECT_EQ(**outcome, memory.size());
      } else {
        EXPECT_TRUE(outcome->error().code == ErrorCode::outcome_unknown) << error_of(*outcome);
      }
    }
    Client client(on, client_options());
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    auto size = co_await client.call<size_of_attachment>();
    EXPECT_OK(size);
  }(loop, server.address()));
  server.stop();
}

TEST_F(Device, AServerKilledWhileItReadsABufferLeavesIt) {
  Child child([](const Child::Say& say, const Child::Hear& hear) {
    Server server(server_options());
    server.register_handler<size_of_attachment>();
    say(server.start() ? server.address() : "");
    hear();
  });
  const std::string address = child.hear();
  ASSERT_NE(address, "");
  Loop loop({.log = no_log()});
  loop.run([](Loop& on, std::string to, Child& peer) -> Task<void> {
    Client client(on, client_options());
    auto connected = co_await client.connect(to);
    REQUIRE_OK(connected);
    Result<RegisteredBuffer> buffer = RegisteredBuffer::allocate(client, 32 << 20);
    REQUIRE_OK(buffer);
    Scope scope;
    std::optional<Error> error;
    scope.spawn([](Client& over, Bytes what, std::optional<Error>& failure) -> Task<void> {
      const CallOptions size_options{.timeout = patience, .attachment = what};
      auto size = co_await over.call<size_of_attachment>(size_options);
      if (!size) failure = size.error();
    }(client, buffer->memory(), error));
    auto reading = co_await eventually(on, [&] { return buffer->in_use(); });
    REQUIRE(reading);
    peer.kill();
    co_await scope.join();
    REQUIRE(error.has_value());
    EXPECT_EQ(error->code, ErrorCode::outcome_unknown) << error->describe();
    auto free = co_await eventually(on, [&] { return !buffer->in_use(); });
    EXPECT_TRUE(free);
  }(loop, address, child));
}

}  // namespace hawser::rdma_tests
