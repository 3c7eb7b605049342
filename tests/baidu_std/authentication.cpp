#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/authorization.h"
#include "tests/baidu_std/client_tools.h"
#include "tests/baidu_std/fixture.h"

// Clients of bRPC whose authentication_data gives them an identity, and rules that see it.
namespace hawser::protocol::baidu_std {
namespace {

constexpr std::int32_t code_unauthenticated = 1004;  // ERPCAUTH
constexpr std::int32_t code_not_permitted = 13;      // EACCES
constexpr std::int32_t code_unknown_method = 1002;   // ENOMETHOD
constexpr std::int32_t code_limit_reached = 2004;    // ELIMIT

RawMessage who_message(Context& context, const RawMessage&) { return {context.identity().text()}; }
RawMessage admin_message(Context& context, const RawMessage&) { return {"admin " + context.identity().subject}; }

std::atomic<int> asked{0};
std::atomic<int> waiting{0};
std::atomic<bool> gate_open{false};
struct Waits {
  Waits() { ++waiting; }
  ~Waits() { --waiting; }
};

// The credential is the name. "nobody" and no credential keep the identity of the connection.
Task<Result<Identity>> by_name(BaiduStdLogin login) {
  ++asked;
  const std::string name = login.credential;
  if (name.empty() || name == "nobody") co_return login.identity;
  if (name.starts_with("wrong")) co_return fail(ErrorCode::invalid_argument, "no such user\nERROR of another line");
  if (name.starts_with("throw")) throw std::runtime_error("the credential is " + name);
  if (name == "number") throw 7;
  if (name.starts_with("late")) {
    const Waits waits;
    while (!gate_open) {
      co_await Loop::current()->sleep(1ms);
    }
  }
  if (name == "blank") co_return Identity();
  Identity identity;
  identity.subject = name;
  identity.issuer = login.peer.starts_with("127.0.0.1:") ? "brpc" : "elsewhere";
  identity.claims = {{"group", "staff"}};
  co_return identity;
}

class BaiduStdAuthenticated : public BaiduStd {
 protected:
  explicit BaiduStdAuthenticated(Duration timeout = patience)
      : BaiduStd(BaiduStdOptions{.authenticate = by_name, .authenticate_timeout = timeout}, {}, [](Server& to) {
          to.use(Authorization({.log_refused = false})
                     .allow(method_name<testing_tools::echo>, anyone())
                     .allow("test.Raw/Who", anyone())
                     .allow("test.Raw/Stream", claim("group", "staff"))
                     .allow("test.Raw/Echo", authenticated())
                     .allow("other.Raw/*", anyone())
                     .allow("test.Raw/Admin", token_subject("root", "brpc")));
          serve_method<who_message>(to, "test.Raw/Who");
          serve_method<admin_message>(to, "test.Raw/Admin");
        }) {
    asked = 0;
    gate_open = false;
  }
  static Call as(std::string_view credential, std::string_view method, std::int64_t id = 1) {
    return {.method = method, .id = id, .meta = {.authentication_data = credential}};
  }
};
class BaiduStdImpatient : public BaiduStdAuthenticated {
 protected:
  BaiduStdImpatient() : BaiduStdAuthenticated(20ms) {}
};

TEST_F(BaiduStdAuthenticated, TheFirstMessageNamesTheClientOfAllCalls) {
  RawSocket socket = connected();
  EXPECT_EQ(ask(socket, as("root", "Who")).data, "token root");
  EXPECT_EQ(ask(socket, as("alice", "Who")).data, "token root");
  EXPECT_EQ(ask(socket, {.method = "Admin"}).data, "admin root");
  RawSocket other = connected();
  EXPECT_EQ(ask(other, as("alice", "Admin")).error_code, code_not_permitted);
  EXPECT_EQ(ask(other, as("root", "Admin")).error_code, code_not_permitted);
  EXPECT_EQ(ask(other, as("root", "Who")).data, "token alice");
  EXPECT_EQ(ask(other, {.data = "text"}).data, "text");
  EXPECT_EQ(asked, 2);
}

// A client that has proved nothing stays nobody, whatever it sends later.
TEST_F(BaiduStdAuthenticated, LaterMessagesProveNothing) {
  for (const std::string_view first : {"", "nobody", "blank"}) {
    RawSocket socket = connected();
    EXPECT_EQ(ask(socket, as(first, "Who")).data, "nobody");
    EXPECT_EQ(ask(socket, as("root", "Admin")).error_code, code_unauthenticated);
    EXPECT_EQ(ask(socket, as("root", "Echo")).error_code, code_unauthenticated);
    EXPECT_EQ(ask(socket, as("root", "Who")).data, "nobody");
  }
  // A refused first message does not make the second one the first.
  for (const std::string_view method : {"Nothing", "Native", "Stream"}) {
    RawSocket socket = connected();
    EXPECT_NE(ask(socket, as("", method)).error_code, 0);
    EXPECT_EQ(ask(socket, as("root", "Admin")).error_code, code_unauthenticated) << method;
  }
  RawSocket socket = connected();
  EXPECT_EQ(ask(socket, as("alice", "Nothing")).error_code, code_unknown_method);
  EXPECT_EQ(ask(socket, as("root", "Who")).data, "token alice");
}

TEST_F(BaiduStdAuthenticated, WhatIsRefusedEndsTheConnection) {
  for (const std::string& credential : std::vector<std::string>{"wrong", "throw secret", "number", "wrong\n\r\x01"}) {
    RawSocket socket = connected();
    socket.send(bytes_of(as(credential, "Who")) + bytes_of(as("root", "Admin", 2)));
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->id, 1);
    EXPECT_EQ(answer->error_code, code_unauthenticated);
    EXPECT_EQ(answer->error_text.find("secret"), std::string::npos) << answer->error_text;
    EXPECT_TRUE(socket.closed_by_peer());
  }
  EXPECT_EQ(asked, 4);
}

TEST_F(BaiduStdAuthenticated, CredentialsOfEverySize) {
  // A meta of more than 32 KiB ends the connection before anybody is asked.
  RawSocket large = connected();
  const std::string megabyte(1'000'000, 'x');
  large.send(bytes_of(as(megabyte, "Who")));
  EXPECT_TRUE(large.closed_by_peer());
  EXPECT_EQ(asked, 0);
  const std::string longest = "x" + std::string(32'000, '\0');
  RawSocket socket = connected();
  const Answer answer = ask(socket, as(longest, "Who"));
  EXPECT_LT(answer.data.size(), 300U);
  EXPECT_TRUE(answer.data.starts_with("token x\\x00")) << answer.data;
  // Bytes behind a zero belong to the name.
  RawSocket zero = connected();
  EXPECT_EQ(ask(zero, as(std::string_view("root\0", 5), "Admin")).error_code, code_not_permitted);
  RawSocket space = connected();
  EXPECT_EQ(ask(space, as("root ", "Admin")).error_code, code_not_permitted);
}

// protobuf: the last one of a repeated field counts. There is one identity in any case.
TEST_F(BaiduStdAuthenticated, SeveralCredentialsInOneMessage) {
  Octets request = bytes_of(as("root", "Who"));
  const FrameHeader header = **parse_header(request, {});
  const Octets more = octets(
      "\x3a\x05"
      "alice");
  const std::size_t meta_end = FrameHeader::bytes + header.meta_bytes;
  Octets both(FrameHeader::bytes);
  write_header(both.data(), {BaiduStdFrameKind::rpc, static_cast<std::uint32_t>(header.body_bytes + more.size()),
                             static_cast<std::uint32_t>(header.meta_bytes + more.size())});
  both.insert(both.end(), request.begin() + FrameHeader::bytes,
              request.begin() + static_cast<std::ptrdiff_t>(meta_end));
  both = both + more;
  both.insert(both.end(), request.begin() + static_cast<std::ptrdiff_t>(meta_end), request.end());
  RawSocket socket = connected();
  socket.send(both);
  const std::optional<Answer> answer = receive_answer(socket);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->data, "token alice");
  EXPECT_EQ(ask(socket, {.method = "Admin"}).error_code, code_not_permitted);
  EXPECT_EQ(asked, 1);
}

// While the authenticator waits, later requests wait as well: none is executed for nobody.
TEST_F(BaiduStdAuthenticated, RequestsWaitForTheIdentity) {
  RawSocket socket = connected();
  const std::string large = text_of(1'000'000);
  Call first = as("late", "Echo");
  first.data = large;
  Octets all = bytes_of(first);
  for (std::int64_t id = 2; id < 10; ++id) all = all + bytes_of({.method = "Who", .id = id});
  socket.send(all);
  ASSERT_TRUE(soon([] { return waiting == 1; }));
  RawSocket other = connected();
  EXPECT_EQ(ask(other, as("root", "Admin")).data, "admin root");
  gate_open = true;
  for (std::int64_t id = 1; id < 10; ++id) {
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->id, id);
    EXPECT_EQ(answer->error_code, 0);
    EXPECT_EQ(answer->data == (id == 1 ? large : "token late"), true) << answer->data.substr(0, 50);
  }
}

TEST_F(BaiduStdAuthenticated, AConnectionThatEndsEndsTheAuthenticator) {
  for (int i = 0; i < 20; ++i) {
    RawSocket socket = connected();
    socket.send(bytes_of(as("late", "Who")));
    ASSERT_TRUE(soon([] { return waiting == 1; }));
    socket.close();
    ASSERT_TRUE(soon([] { return waiting == 0; }));
  }
}

TEST(BaiduStdAuthentication, EndsWithItsServer) {
  gate_open = false;
  ServerOptions options;
  options.loop.log = no_log();
  Server server(options);
  serve_method<who_message>(server, "test.Raw/Who");
  server.enable(hawser::baidu_std({.authenticate = by_name, .authenticate_timeout = patience}));
  ASSERT_TRUE(server.start());
  RawSocket socket = RawSocket::connected_to(server.address());
  socket.send(bytes_of({.method = "Who", .meta = {.authentication_data = "late"}}));
  ASSERT_TRUE(soon([] { return waiting == 1; }));
  server.stop(Duration(0));
  EXPECT_EQ(waiting, 0);
  EXPECT_TRUE(socket.closed_by_peer());
}

// A server with little memory for what it receives: 2 MiB for all connections of one peer.
std::unique_ptr<Server> small_server() {
  gate_open = false;
  asked = 0;
  ServerOptions options;
  options.loop.log = no_log();
  options.message_bytes_max = 256 * 1024;
  options.receive_bytes_max = 4 << 20;
  auto server = std::make_unique<Server>(options);
  serve_method<who_message>(*server, "test.Raw/Who");
  server->enable(hawser::baidu_std({.authenticate = by_name, .authenticate_timeout = patience}));
  EXPECT_TRUE(server->start());
  return server;
}

// A short message that waits is charged with its own size, and not with that of its receive block. The blocks of these
// connections would exceed the memory.
TEST(BaiduStdAuthentication, ManyConnectionsWait) {
  constexpr int connections = 100;
  const std::unique_ptr<Server> server = small_server();
  std::vector<RawSocket> sockets;
  for (int i = 0; i < connections; ++i) {
    sockets.push_back(RawSocket::connected_to(server->address()));
    sockets.back().send(bytes_of({.method = "Who", .meta = {.authentication_data = "late"}}));
  }
  ASSERT_TRUE(soon([] { return waiting == connections; }));
  gate_open = true;
  for (RawSocket& socket : sockets) {
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->error_code, 0) << answer->error_text;
    EXPECT_EQ(answer->data, "token late");
  }
  sockets.clear();
  expect_rest(*server);
}

// The credentials that wait are charged. When there is no memory left, the message is refused before anybody is asked.
TEST(BaiduStdAuthentication, WaitingCredentialsAreBounded) {
  const std::string credential = "late" + std::string(14'000, 'x');
  const std::unique_ptr<Server> server = small_server();
  std::vector<RawSocket> sockets;
  bool refused = false;
  for (int i = 0; i < 200 && !refused; ++i) {
    sockets.push_back(RawSocket::connected_to(server->address()));
    sockets.back().send(bytes_of({.method = "Who", .meta = {.authentication_data = credential}}));
    ASSERT_TRUE(soon([&] {
      pollfd answered{sockets.back().fd(), POLLIN, 0};
      refused = ::poll(&answered, 1, 0) == 1;
      return refused || waiting == i + 1;
    }));
  }
  ASSERT_TRUE(refused);
  EXPECT_GT(sockets.size(), 50U);
  EXPECT_EQ(asked, static_cast<int>(sockets.size()) - 1);
  std::optional<Answer> answer = receive_answer(sockets.back());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error_code, code_limit_reached);
  EXPECT_NE(answer->error_text.find("receive_peer_bytes_max"), std::string::npos) << answer->error_text;
  EXPECT_TRUE(sockets.back().closed_by_peer());
  // Short credentials have the memory that each connection may use at least.
  RawSocket other = RawSocket::connected_to(server->address());
  other.send(bytes_of({.method = "Who", .meta = {.authentication_data = "root"}}));
  answer = receive_answer(other);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->data, "token root") << answer->error_text;
  gate_open = true;
  answer = receive_answer(sockets.front());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error_code, 0) << answer->error_text;
  other.close();
  sockets.clear();
  expect_rest(*server);
}

// Clients connect as fast as they like, so not each refusal has a line in the log.
TEST(BaiduStdAuthentication, RefusalsFillNoLog) {
  constexpr std::uint64_t refusals = 200;
  constexpr std::uint64_t lines_per_second = 20;
  std::atomic<std::uint64_t> lines{0};
  ServerOptions options;
  options.loop.log = LogSink([&](LogLevel, std::string_view, std::string_view text) {
    if (text.contains("its credential is refused")) ++lines;
  });
  Server server(options);
  serve_method<who_message>(server, "test.Raw/Who");
  server.enable(hawser::baidu_std({.verify = [](std::string_view, std::string_view) -> Result<void> {
    return fail(ErrorCode::invalid_argument, "no such user");
  }}));
  ASSERT_TRUE(server.start());
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < refusals; ++i) {
    RawSocket socket = RawSocket::connected_to(server.address());
    socket.send(bytes_of({.method = "Who"}));
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->error_code, code_unauthenticated);
  }
  const auto passed = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin);
  EXPECT_GE(lines, 1U);
  EXPECT_LE(lines, lines_per_second * (static_cast<std::uint64_t>(passed.count()) + 2));
  server.stop(Duration(0));
}

TEST_F(BaiduStdImpatient, AnAuthenticatorThatWaitsTooLongRefuses) {
  RawSocket socket = connected();
  socket.send(bytes_of(as("late", "Who")) + bytes_of({.method = "Who", .id = 2}));
  const std::optional<Answer> answer = receive_answer(socket);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error_code, code_unauthenticated);
  EXPECT_NE(answer->error_text.find("authenticate_timeout (20 ms)"), std::string::npos) << answer->error_text;
  EXPECT_TRUE(socket.closed_by_peer());
  EXPECT_TRUE(soon([] { return waiting == 0; }));
}

// Names that mean another method to somebody else than to the server.
TEST_F(BaiduStdAuthenticated, NoSpellingOfAMethodPassesARule) {
  struct Spelling {
    std::string_view service;
    std::string_view method;
  };
  const auto code_of = [this](std::string_view credential, const Spelling& name) {
    RawSocket socket = connected();
    Call call = as(credential, name.method);
    call.meta.request = RequestMeta{.service = name.service, .method = name.method};
    return ask(socket, call).error_code;
  };
  // Without its package, the name finds the same method and the same rule.
  EXPECT_EQ(code_of("root", {"Raw", "Admin"}), 0);
  EXPECT_EQ(code_of("alice", {"Raw", "Admin"}), code_not_permitted);
  EXPECT_EQ(code_of("", {"Raw", "Admin"}), code_unauthenticated);
  for (const Spelling& name : std::initializer_list<Spelling>{{"test.Raw", "admin"},
                                                              {"test.raw", "Admin"},
                                                              {"TEST.RAW", "ADMIN"},
                                                              {"test.Raw/", "Admin"},
                                                              {"test.Raw", "/Admin"},
                                                              {"test.Raw", "Admin/"},
                                                              {"test.Raw", "Admin "},
                                                              {" test.Raw", "Admin"},
                                                              {"/test.Raw", "Admin"},
                                                              {".test.Raw", "Admin"},
                                                              {"test", "Raw/Admin"},
                                                              {"test.Raw/Admin", ""},
                                                              {"", "test.Raw/Admin"},
                                                              {"other.Raw", "Admin"},
                                                              {"other.Raw/../test.Raw", "Admin"},
                                                              {"test.Raw", "%41dmin"},
                                                              {"test.Raw", "Who/../Admin"},
                                                              {"test.Raw", std::string_view("Admin\0", 6)},
                                                              {std::string_view("test.Raw\0", 9), "Admin"},
                                                              {"test.Raw", "*"}}) {
    const std::int32_t code = code_of("alice", name);
    EXPECT_TRUE(code == code_unknown_method || code == code_not_permitted)
        << name.service << " " << name.method << " gave " << code;
  }
}

// Items of a stream belong to the call that opened it.
TEST_F(BaiduStdAuthenticated, AStreamDoesNotReachAnotherMethod) {
  RawSocket nobody = connected();
  Call open = as("", "Stream");
  open.meta.stream = StreamSettings{.stream_id = 5, .writable = true};
  nobody.send(bytes_of(open));
  std::optional<Answer> answer = receive_answer(nobody);
  ASSERT_TRUE(answer);
  // The refusal comes within a frame of the stream, or closes it.
  EXPECT_EQ(answer->kind == BaiduStdFrameKind::stream || answer->error_code == code_unauthenticated, true);
  for (std::int64_t id = 0; id < 4; ++id) nobody.send(stream_frame({id, 5, StreamFrameType::data}, "x"));
  // No handler has got an item: the connection ends or ignores them, and nobody is nobody still.
  nobody.send(bytes_of(as("root", "Admin", 77)));
  while ((answer = receive_answer(nobody))) {
    if (answer->kind == BaiduStdFrameKind::rpc && answer->id == 77) {
      EXPECT_EQ(answer->error_code, code_unauthenticated);
      break;
    }
  }
}

TEST_F(BaiduStdAuthenticated, TheClientOfThisLibrarySendsIt) {
  BaiduStdClientOptions options;
  options.credential = "root";
  with_client(server->address(), options, [](BaiduStdClient& client) -> Task<void> {
    const RawMessage request = raw("x");
    for (int i = 0; i < 3; ++i) {
      auto reply = co_await client.call<echo_message>(request);
      EXPECT_OK(reply);
    }
  });
  options.credential = "";
  with_client(server->address(), options, [](BaiduStdClient& client) -> Task<void> {
    const RawMessage request = raw("x");
    auto reply = co_await client.call<echo_message>(request);
    EXPECT_ERROR(reply, unauthenticated, "send a token");
  });
}

TEST(BaiduStdAuthentication, OptionsAreChecked) {
  EXPECT_THROW(
      static_cast<void>(hawser::baidu_std(
          {.verify = [](std::string_view, std::string_view) { return Result<void>(); }, .authenticate = by_name})),
      std::invalid_argument);
  EXPECT_THROW(
      static_cast<void>(hawser::baidu_std({.authenticate = by_name, .authenticate_timeout = Duration::zero()})),
      std::invalid_argument);
}

}  // namespace
}  // namespace hawser::protocol::baidu_std
