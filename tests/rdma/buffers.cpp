// What becomes of registered buffers when calls and connections end while a device uses them.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "hawser/rdma.h"
#include "tests/rdma/child.h"
#include "tests/rdma/device.h"

namespace hawser::rdma_tests {

inline std::uint64_t size_of_attachment(Context& context) { return context.attachment().size(); }

class Store {
 public:
  explicit Store(const Server& server, std::size_t bytes) : buffer_(*RegisteredBuffer::allocate(server, bytes)) {
    std::memset(buffer_.memory().data(), 'x', buffer_.size());
  }
  void get(Context& context) { context.set_attachment(buffer_.share()); }
  bool in_use() const { return buffer_.in_use(); }

 private:
  RegisteredBuffer buffer_;
};

TEST_F(Device, ACallGivenUpWhileItsReplyIsReadLeavesTheBufferWhenTheDeviceHas) {
  Loop loop({.log = no_log()});
  Server server(loop, server_options());
  Store store(server, 8 << 20);
  server.register_handler<&Store::get>(&store);
  ASSERT_TRUE(server.start());
  loop.run([](Loop& on, Store& from, std::string address) -> Task<void> {
    Client client(on, client_options());
    AWAIT(connected, client.connect(address));
    REQUIRE_OK(connected);
    Result<RegisteredBuffer> made = RegisteredBuffer::allocate(client, 8 << 20);
    REQUIRE_OK(made);
    int given_up = 0;
    for (int i = 0; i < 40; ++i) {
      std::memset(made->memory().data(), 'a', made->size());
      std::stop_source stop;
      Scope scope;
      std::optional<ErrorCode> error;
      scope.spawn(
          [](Client& to, RegisteredBuffer& into, std::stop_token token, std::optional<ErrorCode>& ended) -> Task<void> {
            AWAIT(reply, to.call<&Store::get>({.token = token}).into(into.memory()));
            if (!reply) ended = reply.error().code;
          }(client, *made, stop.get_token(), error));
      auto pause = on.sleep(std::chrono::microseconds(200 * i));
      co_await pause;
      stop.request_stop();
      auto ended = scope.join();
      co_await std::move(ended);
      given_up += error.has_value();
      AWAIT(free, eventually(on, [&] { return !made->in_use() && !from.in_use(); }));
      REQUIRE(free);
      // Nothing writes there any more.
      std::memset(made->memory().data(), 'b', made->size());
      AWAIT(sign, client.ping());
      EXPECT_OK(sign);
      EXPECT_EQ(as_text(made->memory()).find_first_not_of('b'), std::string_view::npos);
    }
    EXPECT_GT(given_up, 0);
    EXPECT_EQ(client.transport(), "rdma");
    EXPECT_EQ(client.moves(), 0U);
  }(loop, store, server.address()));
}

TEST_F(Device, MemoryTakenBackUnderWayBreaksTheConnectionAndNothingElse) {
  Loop loop({.log = no_log()});
  Server server(server_options());
  server.register_handler<size_of_attachment>();
  ASSERT_TRUE(server.start());
  loop.run([](Loop& on, std::string address) -> Task<void> {
    for (int i = 0; i < 5; ++i) {
      Client client(on, client_options());
      AWAIT(connected, client.connect(address));
      REQUIRE_OK(connected);
      std::vector<std::byte> memory(8 << 20);
      std::optional<RegisteredBuffer> buffer = *RegisteredBuffer::over(client, memory);
      Scope scope;
      std::optional<Result<std::uint64_t>> outcome;
      scope.spawn([](Client& to, Bytes what, std::optional<Result<std::uint64_t>>& result) -> Task<void> {
        AWAIT(size, to.call<size_of_attachment>({.timeout = patience, .attachment = what}));
        result.emplace(std::move(size));
      }(client, buffer->memory(), outcome));
      AWAIT(reading, eventually(on, [&] { return buffer->in_use(); }));
      REQUIRE(reading);
      buffer.reset();
      auto ended = scope.join();
      co_await std::move(ended);
      // Read to its end before, or not at all.
      if (*outcome) {
        EXPECT_EQ(**outcome, memory.size());
      } else {
        EXPECT_TRUE(outcome->error().code == ErrorCode::outcome_unknown) << error_of(*outcome);
      }
    }
    Client client(on, client_options());
    AWAIT(connected, client.connect(address));
    REQUIRE_OK(connected);
    AWAIT(size, client.call<size_of_attachment>());
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
    AWAIT(connected, client.connect(to));
    REQUIRE_OK(connected);
    Result<RegisteredBuffer> buffer = RegisteredBuffer::allocate(client, 32 << 20);
    REQUIRE_OK(buffer);
    Scope scope;
    std::optional<Error> error;
    scope.spawn([](Client& over, Bytes what, std::optional<Error>& failure) -> Task<void> {
      AWAIT(size, over.call<size_of_attachment>({.timeout = patience, .attachment = what}));
      if (!size) failure = size.error();
    }(client, buffer->memory(), error));
    AWAIT(reading, eventually(on, [&] { return buffer->in_use(); }));
    REQUIRE(reading);
    peer.kill();
    auto ended = scope.join();
    co_await std::move(ended);
    REQUIRE(error.has_value());
    EXPECT_EQ(error->code, ErrorCode::outcome_unknown) << error->describe();
    AWAIT(free, eventually(on, [&] { return !buffer->in_use(); }));
    EXPECT_TRUE(free);
  }(loop, address, child));
}

}  // namespace hawser::rdma_tests
