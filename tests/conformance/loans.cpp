#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/crc32c.h"
#include "hawser/loan.h"
#include "tests/conformance/backend.h"

// The same program with loans over every transport: shared memory sends them in place, and the others as ordinary
// memory.
namespace hawser::conformance {

inline std::uint32_t loan_crc(std::span<const std::byte> bytes) { return crc32c(bytes); }
inline std::uint32_t loan_attachment_crc(Context& context) { return crc32c(context.attachment()); }

// A loan with the bytes of text_of().
inline Buffer filled_loan(const Client& client, std::size_t bytes, char first = 'a') {
  Buffer buffer = loan(client, bytes);
  const std::string text = text_of(bytes, first);
  std::memcpy(buffer.mutable_data(), text.data(), bytes);
  return buffer;
}
inline std::uint32_t text_crc(std::size_t bytes, char first = 'a') { return crc32c(as_bytes(text_of(bytes, first))); }

// Handlers whose replies are loans.
inline std::string_view loaned_result(Context& context, std::uint64_t bytes) {
  Buffer buffer = loan(context, bytes);
  const std::string text = text_of(bytes);
  std::memcpy(buffer.mutable_data(), text.data(), bytes);
  context.keep_until_sent(buffer);
  return buffer.text();
}
inline void loaned_attachment(Context& context, std::uint64_t bytes) {
  Buffer buffer = loan(context, bytes);
  const std::string text = text_of(bytes);
  std::memcpy(buffer.mutable_data(), text.data(), bytes);
  context.set_attachment(std::move(buffer));
}
inline Task<std::string> loan_unused(Context& context, std::uint64_t bytes) {
  for (int i = 0; i < 100; ++i) {
    Buffer dropped = loan(context, bytes);
    dropped.mutable_data()[bytes - 1] = std::byte{1};
  }
  co_return "unused";
}
// Also used for an offloaded handler, which is on another thread than the connection.
inline std::string_view loaned_elsewhere(Context& context, std::uint64_t bytes) {
  return loaned_result(context, bytes);
}

TEST_P(Conformance, LoansOfEachSizeArrive) {
  serve<loan_crc, loan_attachment_crc>([](Server&, Client& client) -> Task<void> {
    // The last one is larger than half of a slab.
    for (const std::size_t bytes : {1UL, 100UL, 8'192UL, 8'193UL, 65'536UL, 300'001UL, (8UL << 20) + 1}) {
      const Buffer buffer = filled_loan(client, bytes);
      REQUIRE(buffer.size() == bytes);
      auto argument = co_await client.call<loan_crc>(buffer.bytes());
      EXPECT_EQ(argument, text_crc(bytes));
      const Buffer other = filled_loan(client, bytes, 'b');
      const CallOptions options{.attachment = other.bytes()};
      auto attachment = co_await client.call<loan_attachment_crc>(options);
      EXPECT_EQ(attachment, text_crc(bytes, 'b'));
    }
  });
}

TEST_P(Conformance, LoansAreDroppedAndTakenAgain) {
  serve<loan_crc, loan_unused>([](Server&, Client& client) -> Task<void> {
    for (int i = 0; i < 200; ++i) {
      Buffer dropped = loan(client, 3 << 20);
      REQUIRE(dropped.size() == 3 << 20);
      dropped.mutable_data()[0] = std::byte{1};
    }
    auto unused = co_await client.call<loan_unused>(std::uint64_t{1} << 20);
    EXPECT_EQ(unused, "unused");
    const Buffer buffer = filled_loan(client, 1 << 20);
    auto sum = co_await client.call<loan_crc>(buffer.bytes());
    EXPECT_EQ(sum, text_crc(1 << 20));
  });
}

TEST_P(Conformance, ALoanIsSentTwice) {
  serve<loan_crc>([](Server&, Client& client) -> Task<void> {
    constexpr std::size_t bytes = 200'000;
    const Buffer buffer = filled_loan(client, bytes);
    for (int i = 0; i < 3; ++i) {
      auto sum = co_await client.call<loan_crc>(buffer.bytes());
      EXPECT_EQ(sum, text_crc(bytes));
    }
    // By several calls at once.
    int right = 0;
    Scope scope;
    for (int i = 0; i < 4; ++i) {
      scope.spawn([](Client& to, const Buffer& sent, int& count) -> Task<void> {
        auto sum = co_await to.call<loan_crc>(sent.bytes());
        count += sum == text_crc(bytes);
      }(client, buffer, right));
    }
    co_await scope.join();
    EXPECT_EQ(right, 4);
  });
}

TEST_P(Conformance, PartsOfALoanAreSent) {
  serve<loan_crc, loan_attachment_crc>([](Server&, Client& client) -> Task<void> {
    constexpr std::size_t bytes = 300'000;
    const std::string text = text_of(bytes);
    const Buffer buffer = filled_loan(client, bytes);
    for (const auto& [from, part] : std::vector<std::pair<std::size_t, std::size_t>>{
             {0, 100'000}, {1, 100'000}, {65'536, 100'000}, {bytes - 9'000, 9'000}, {16'384, 10}}) {
      auto sum = co_await client.call<loan_crc>(buffer.bytes().subspan(from, part));
      EXPECT_EQ(sum, crc32c(as_bytes(text).subspan(from, part))) << from;
      const Buffer slice = buffer.slice(from, part);
      const CallOptions options{.attachment = slice.bytes()};
      auto attachment = co_await client.call<loan_attachment_crc>(options);
      EXPECT_EQ(attachment, crc32c(as_bytes(text).subspan(from, part))) << from;
    }
  });
}

TEST_P(Conformance, ManySmallLoansAreHeldAtOnce) {
  serve<loan_crc>([](Server&, Client& client) -> Task<void> {
    std::vector<Buffer> loans;
    for (std::size_t i = 0; i < 300; ++i) loans.push_back(filled_loan(client, 9'000 + 97 * i));
    for (std::size_t i = 0; i < loans.size(); ++i) {
      auto sum = co_await client.call<loan_crc>(loans[i].bytes());
      REQUIRE(sum == text_crc(9'000 + 97 * i));
    }
  });
}

TEST_P(Conformance, RepliesAreLoans) {
  const std::unique_ptr<Server> server = make_server();
  server->register_handler<loaned_result, loaned_attachment>();
  server->register_handler<loaned_elsewhere>({.offload = backend->real_time()});
  run_connected(*server, {}, [](Server&, Client& client) -> Task<void> {
    std::vector<Reply<std::string_view>> kept;
    for (const std::uint64_t bytes : {1UL, 8'193UL, 300'000UL, 2UL << 20}) {
      const std::string text = text_of(bytes);
      auto result = co_await client.call<loaned_result>(bytes).reply();
      REQUIRE_OK(result);
      EXPECT_TRUE(result->value() == text);
      auto attachment = co_await client.call<loaned_attachment>(bytes).reply();
      REQUIRE_OK(attachment);
      EXPECT_TRUE(as_text(attachment->attachment()) == text);
      auto elsewhere = co_await client.call<loaned_elsewhere>(bytes).reply();
      REQUIRE_OK(elsewhere);
      EXPECT_TRUE(elsewhere->value() == text);
      std::string own(bytes, ' ');
      auto into = co_await client.call<loaned_result>(bytes).into(std::as_writable_bytes(std::span(own)));
      REQUIRE_OK(into);
      EXPECT_TRUE(into->value() == text);
      kept.push_back(std::move(*result));
    }
    for (const Reply<std::string_view>& one : kept) EXPECT_TRUE(one.value() == text_of(one.value().size()));
  });
}

// A loan of one connection is ordinary memory for others, also after the connection has ended.
TEST_P(Conformance, ALoanIsSentOverAnotherConnection) {
  constexpr std::size_t bytes = 300'000;
  serve<loan_crc>([this](Server& server, Client& client) -> Task<void> {
    Buffer unconnected;
    {
      const std::unique_ptr<Client> other = make_client();
      unconnected = filled_loan(*other, bytes);
      auto connected = co_await other->connect(server.address());
      REQUIRE_OK(connected);
      const Buffer buffer = filled_loan(client, bytes);
      auto sum = co_await other->call<loan_crc>(buffer.bytes());
      EXPECT_EQ(sum, text_crc(bytes));
    }
    // Over the byte stream.
    ClientOptions options = patient();
    options.transports.enabled.clear();
    Client stream(loop(), over(backend->network(), std::move(options)));
    auto connected = co_await stream.connect(server.address());
    REQUIRE_OK(connected);
    const Buffer buffer = filled_loan(client, bytes);
    for (const Bytes& one : {buffer.bytes(), unconnected.bytes()}) {
      auto sum = co_await stream.call<loan_crc>(one);
      EXPECT_EQ(sum, text_crc(bytes));
    }
    stream.close();
    // The connection ends, and the client connects again.
    client.close();
    auto again = co_await client.connect(server.address());
    REQUIRE_OK(again);
    for (const Bytes& one : {buffer.bytes(), unconnected.bytes()}) {
      auto sum = co_await client.call<loan_crc>(one);
      EXPECT_EQ(sum, text_crc(bytes));
    }
  });
}

TEST_P(Conformance, ALoanIsReleasedOnAnotherThreadAfterItsClient) {
  serve<loan_crc>([this](Server& server, Client& client) -> Task<void> {
    std::vector<Buffer> loans;
    {
      const std::unique_ptr<Client> other = make_client();
      auto connected = co_await other->connect(server.address());
      REQUIRE_OK(connected);
      for (int i = 0; i < 3; ++i) loans.push_back(filled_loan(*other, 1 << 20));
      auto sum = co_await other->call<loan_crc>(loans.front().bytes());
      EXPECT_EQ(sum, text_crc(1 << 20));
    }
    auto sum = co_await client.call<loan_crc>(loans.front().bytes());
    EXPECT_EQ(sum, text_crc(1 << 20));
    std::thread([&loans] { loans.clear(); }).join();
  });
}

// Calls that are given up leave their loans to the peer.
TEST_P(Conformance, CallsWithLoansAreGivenUp) {
  serve<loan_crc>([](Server&, Client& client) -> Task<void> {
    for (int i = 0; i < 10; ++i) {
      std::stop_source stop;
      Scope scope;
      scope.spawn([](Client& to, std::stop_token token) -> Task<void> {
        const Buffer buffer = filled_loan(to, 1 << 20);
        const CallOptions options{.token = token};
        [[maybe_unused]] auto outcome = co_await to.call<loan_crc>(options, buffer.bytes());
      }(client, stop.get_token()));
      if (i % 2 != 0) co_await Loop::current()->sleep(std::chrono::microseconds(50 * i));
      stop.request_stop();
      co_await scope.join();
    }
    const Buffer buffer = filled_loan(client, 1 << 20);
    auto sum = co_await client.call<loan_crc>(buffer.bytes());
    EXPECT_EQ(sum, text_crc(1 << 20));
  });
}

}  // namespace hawser::conformance
