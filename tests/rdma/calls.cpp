#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/rdma/device.h"

// Tests of RDMA that the conformance suite, which is common to all transports, does not have.
namespace hawser::rdma_tests {

inline std::string_view echo(std::string_view text) { return text; }
inline std::uint64_t length(std::string_view text) { return text.size(); }
class Calls : public Device {
 protected:
  static RestingServer started(const RdmaOptions& options) {
    RestingServer server(new Server(server_options(options)));
    server->register_handler<echo, length>();
    const Result<void> running = server->start();
    EXPECT_OK(running);
    return server;
  }
};

TEST_F(Calls, AreCarriedByRdma) {
  const auto server = started({});
  sync_wait([](const std::string& address) -> Task<void> {
    Client client(client_options());
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "rdma");
    auto reply = co_await client.call<echo>("hello rdma");
    REQUIRE_OK(reply);
    EXPECT_EQ(*reply, "hello rdma");
  }(server->address()));
}

// Sizes around each threshold of the payload's mechanism: inline, eager, chunk, rendezvous.
Task<void> echo_around(const std::string& address, const RdmaOptions& options) {
  Client client(client_options(options));
  auto connected = co_await client.connect(address);
  REQUIRE_OK(connected);
  std::vector<std::size_t> sizes = {0, 1};
  for (const std::size_t edge : {options.inline_bytes, options.eager_bytes_max, options.chunk_bytes,
                                 options.shared_chunk_bytes, 2 * options.chunk_bytes, options.read_bytes_max}) {
    // The frame around a payload shifts the thresholds by some dozens of bytes.
    for (const std::size_t less : {0, 1, 16, 28, 32, 40, 48, 56, 64, 96})
      sizes.push_back(edge > less ? edge - less : 0);
    sizes.push_back(edge + 1);
  }
  for (const std::size_t size : sizes) {
    const std::string text = text_of(size, static_cast<char>('a' + size % 7));
    auto reply = co_await client.call<echo>(text);
    REQUIRE_OK(reply);
    EXPECT_TRUE(*reply == text) << size << " bytes came back changed";
  }
}

TEST_F(Calls, EdgesOfSizes) {
  const auto server = started({});
  sync_wait(echo_around(server->address(), {}));
}

TEST_F(Calls, EdgesOfSizesWithTheSharedReceiveQueue) {
  // Receives are posted again at once, at the default watermark, or only when a connection runs short.
  for (const double watermark : {0.0, RdmaOptions{}.shared_low_watermark, 1.0}) {
    const RdmaOptions options{.rnr_retries = 0, .shared_receive_queue = true, .shared_low_watermark = watermark};
    const auto server = started(options);
    sync_wait(echo_around(server->address(), options));
  }
}

TEST_F(Calls, EdgesOfSizesInSmallChunks) {
  const RdmaOptions options{
      .chunk_bytes = 4096, .recv_queue_depth = 4, .send_window = 1, .inline_bytes = 0, .eager_bytes_max = 8192};
  const auto server = started(options);
  sync_wait(echo_around(server->address(), options));
}

TEST_F(Calls, ManyLargeOnesAtOnce) {
  const auto server = started({});
  sync_wait([](const std::string& address) -> Task<void> {
    Client client(client_options());
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    Scope scope;
    const std::string text = text_of(1 << 20);
    std::size_t answered = 0;
    auto call = [&](std::size_t bytes) -> Task<void> {
      const CallOptions reply_options{.timeout = patience};
      auto reply = co_await client.call<length>(reply_options, std::string_view(text).substr(0, bytes));
      EXPECT_OK(reply);
      if (reply) answered += *reply == bytes;
    };
    constexpr std::size_t calls = 32;
    for (std::size_t i = 0; i < calls; ++i) scope.spawn(call(text.size() - i * 1000));
    co_await scope.join();
    EXPECT_EQ(answered, calls);
  }(server->address()));
}

}  // namespace hawser::rdma_tests
