#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hawser/authorization.h"
#include "hawser/schema.h"
#include "tests/raw_peer.h"
#include "tests/testing.h"

// Clients that try to get around the rules of a server by means of the library's own protocol.
namespace hawser::rule_bypasses {

using namespace testing_tools;

std::atomic<int> denied_run{0};

std::string open_call(std::string text) { return text; }
std::string denied_call(std::string text) {
  ++denied_run;
  return text;
}
std::string denied_blocking(std::string text) {
  ++denied_run;
  return text;
}
Task<Result<std::uint64_t>> open_stream(Context&, Reader<std::uint64_t> reader) {
  std::uint64_t total = 0;
  for (;;) {
    auto item = co_await reader.next();
    if (!item) co_return std::unexpected(item.error());
    if (!*item) co_return total;
    total += **item;
  }
}
Task<Result<std::uint64_t>> denied_stream(Context&, Reader<std::uint64_t> reader, Writer<std::uint64_t> writer) {
  ++denied_run;
  auto written = co_await writer.write(1);
  auto item = co_await reader.next();
  co_return item && *item ? **item : 0;
}
std::string who(Context& context) { return context.identity().text(); }

class RulesAttacked : public ::testing::Test {
 protected:
  void start(std::string listen = "127.0.0.1:0") {
    denied_run = 0;
    ServerOptions options;
    options.listen = std::move(listen);
    options.loop.log = LogSink([this](LogLevel, std::string_view component, std::string_view text) {
      const std::lock_guard lock(mutex);
      if (component == "audit") audit.emplace_back(text);
    });
    server = std::make_unique<Server>(options);
    // The names of the open methods are beginnings of those of the others only with a '*', which no rule has here.
    server->use(Authorization({.log_allowed = true, .log_lines_per_second_max = 1'000'000})
                    .allow(method_name<open_call>, anyone())
                    .allow(method_name<open_stream>, anyone())
                    .allow(method_name<who>, uid(geteuid())));
    server->register_handler<open_call, denied_call, open_stream, denied_stream, who>();
    server->register_handler<denied_blocking>({.offload = true});
    ASSERT_TRUE(server->start());
  }
  std::size_t lines(std::string_view part) {
    const std::lock_guard lock(mutex);
    std::size_t count = 0;
    for (const std::string& line : audit) count += line.find(part) != std::string::npos ? 1 : 0;
    return count;
  }
  // Whether the server answers an open call on this connection.
  static bool served(RawSocket& socket) {
    using Facts = detail::MethodFacts<open_call>;
    socket.send(message({.call = 4'000'000, .method = Facts::id, .signature = Facts::signature}, text_body("hi")));
    for (;;) {
      const auto frame = socket.receive_frame();
      if (!frame) return false;
      if (frame->header.call == 4'000'000) return frame->body == text_body("hi");
    }
  }

  std::mutex mutex;
  std::vector<std::string> audit;
  std::unique_ptr<Server> server;
};

TEST_F(RulesAttacked, NoFrameReachesADeniedMethod) {
  start();
  const std::uint32_t targets[] = {detail::MethodFacts<denied_call>::id, detail::MethodFacts<denied_stream>::id,
                                   detail::MethodFacts<denied_blocking>::id};
  const std::uint32_t signatures[] = {
      detail::MethodFacts<denied_call>::signature, detail::MethodFacts<denied_stream>::signature,
      detail::MethodFacts<denied_blocking>::signature, detail::MethodFacts<open_call>::signature, 0};
  // Each kind of frame with each combination of flags, towards each method.
  for (unsigned kind = 0; kind < 16; ++kind) {
    for (unsigned flags = 0; flags < 256; flags += kind == 1 ? 1 : 17) {
      RawSocket socket = RawSocket::greeted(server->address());
      std::uint32_t call = 1;
      for (const std::uint32_t method : targets) {
        for (const std::uint32_t signature : signatures) {
          socket.send(message({.kind = static_cast<wire::FrameKind>(kind),
                               .flags = static_cast<std::uint8_t>(flags),
                               .call = ++call,
                               .method = method,
                               .signature = signature},
                              text_body("hi")));
        }
      }
      socket.close();
    }
  }
  // An open stream, then everything that a stream has, under the ids of calls of other methods.
  RawSocket socket = RawSocket::greeted(server->address());
  using Open = detail::MethodFacts<open_stream>;
  using Denied = detail::MethodFacts<denied_stream>;
  socket.send(message({.call = 1, .method = Open::id, .signature = Open::signature}));
  socket.send(message({.call = 2, .method = Denied::id, .signature = Denied::signature}));
  for (unsigned kind = 2; kind < 16; ++kind) {
    for (const std::uint32_t call : {1U, 2U, 3U}) {
      RawSocket other = RawSocket::greeted(server->address());
      other.send(message({.call = 1, .method = Open::id, .signature = Open::signature}));
      other.send(message({.kind = static_cast<wire::FrameKind>(kind),
                          .call = call,
                          .method = Denied::id,
                          .signature = Denied::signature},
                         std::string(8, '\1')));
    }
  }
  RawSocket last = RawSocket::greeted(server->address());
  EXPECT_TRUE(served(last));
  EXPECT_EQ(denied_run, 0);
  server->stop(Duration(0));
  EXPECT_EQ(denied_run, 0);
}

TEST_F(RulesAttacked, NoCallOfAClientReachesADeniedMethod) {
  start();
  sync_wait([](std::string address) -> Task<void> {
    for (const char* const transport : {"stream", "shm"}) {
      Client client({.transports = {.required = transport}});
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      const bool nobody = std::string_view(transport) == "stream";
      // A token that no authenticator accepts is not an identity.
      const CallOptions with{.metadata = {{"authorization", "Bearer x"}, {"identity", "root"}}, .idempotent = true};
      auto denied = co_await client.call<denied_call>(with, std::string("a"));
      EXPECT_FALSE(denied);
      auto blocking = co_await client.call<denied_blocking>(std::string("a"));
      EXPECT_FALSE(blocking);
      auto stream = co_await client.open<denied_stream>();
      if (stream) {
        auto outcome = co_await stream->finish();
        EXPECT_FALSE(outcome);
      }
      auto opened = co_await client.call<open_call>(std::string("a"));
      EXPECT_OK(opened);
      // The methods of the server itself are denied as well, as no rule allows them.
      auto names = co_await client.call<schema::list>(std::string_view());
      EXPECT_FALSE(names);
      auto description = co_await client.call<schema::describe>(std::string_view(method_name<denied_call>));
      EXPECT_FALSE(description);
      // Over TCP, the process is known while shared memory carries the connection only.
      auto caller = co_await client.call<who>();
      EXPECT_EQ(caller.has_value(), !nobody);
      EXPECT_EQ(denied.error().code, nobody ? ErrorCode::unauthenticated : ErrorCode::permission_denied);
    }
  }(server->address()));
  EXPECT_EQ(denied_run, 0);
  // One line for each decision. Refused: denied_call, denied_blocking, denied_stream, list and describe over both, and
  // `who` over TCP. Allowed: open_call over both, and `who` over shared memory.
  EXPECT_EQ(lines("refused "), 11U);
  EXPECT_EQ(lines("allowed "), 3U);
  EXPECT_EQ(lines("by nobody at "), 7U);
}

// At a Unix socket, the identity is that of the socket, whatever carries the messages.
TEST_F(RulesAttacked, AUnixSocketNamesTheProcessOverEveryTransport) {
  start("unix:@hawser-rules-" + std::to_string(getpid()));
  sync_wait([](std::string address) -> Task<void> {
    for (const char* const transport : {"stream", "shm", "stream"}) {
      Client client({.transports = {.required = transport}});
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      auto caller = co_await client.call<who>();
      EXPECT_OK(caller);
      auto denied = co_await client.call<denied_call>(std::string("a"));
      EXPECT_ERROR(denied, permission_denied, "unix uid");
    }
  }(server->address()));
  EXPECT_EQ(denied_run, 0);
}

// A client chooses the name of its own socket.
TEST_F(RulesAttacked, NamesOfSocketsMakeNoLines) {
  const std::string name = "hawser-rules-named-" + std::to_string(getpid());
  start("unix:@" + name);
  const auto address_of = [](const std::string& text, socklen_t& size) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, text.data(), text.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    return address;
  };
  RawSocket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  socklen_t size = 0;
  const sockaddr_un own = address_of("x\nallowed everything by root\x1b[2J" + std::to_string(getpid()), size);
  ASSERT_EQ(::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&own), size), 0);
  const sockaddr_un to = address_of(name, size);
  ASSERT_EQ(::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&to), size), 0);
  socket.send(wire::encode_hello(usual_hello()));
  ASSERT_TRUE(socket.receive_hello());
  using Facts = detail::MethodFacts<denied_call>;
  socket.send(message({.call = 1, .method = Facts::id, .signature = Facts::signature}, text_body("hi")));
  ASSERT_TRUE(socket.receive_frame(wire::FrameKind::error));
  EXPECT_EQ(lines("x\\x0aallowed everything by root\\x1b[2J"), 1U);
  EXPECT_EQ(lines("\n"), 0U);
  EXPECT_EQ(denied_run, 0);
}

}  // namespace hawser::rule_bypasses
