#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/grpc.h"
#include "hawser/grpc_client.h"
#include "hawser/hawser.h"
#include "hawser/interceptor.h"
#include "hawser/metadata.h"
#include "protocol/grpc/compression.h"
#include "tests/grpc/raw_stubs.h"
#include "tests/http2_client.h"
#include "tests/testing.h"

// Compressed messages that become long: another thread than the loop's decompresses them.
namespace hawser {
namespace {

using namespace testing_tools;
using protocol::grpc::Encoding;

std::string packed(std::string_view bytes, Encoding encoding) {
  const Result<Buffer> out = protocol::grpc::compress(encoding, as_bytes(bytes));
  EXPECT_TRUE(out) << error_of(out);
  return std::string(out->text());
}

std::string framed(std::string_view bytes, bool compressed) {
  std::string out(5, '\0');
  out[0] = compressed ? '\1' : '\0';
  for (unsigned i = 0; i < 4; ++i) out[1 + i] = static_cast<char>(bytes.size() >> (24 - 8 * i));
  return out + std::string(bytes);
}

// A thread of the pool of the server's loop that is occupied until it is released.
struct Blocked {
  std::atomic<bool> busy{false};
  std::atomic<bool> released{false};
};

// Occupies the thread. The thread may go on after the server, and the test, have ended.
struct Blocker {
  Task<void> operator()() const {
    static_cast<void>(co_await Loop::current()->offload([blocked = blocked] {
      blocked->busy = true;
      soon([&] { return blocked->released.load(); });
    }));
  }
  std::shared_ptr<Blocked> blocked;
};

class GrpcUnpacking : public ::testing::TestWithParam<const char*> {
 protected:
  void make() {
    options.loop.log = [](LogLevel, std::string_view, std::string_view) {};
    server = std::make_unique<Server>(options);
    register_raw_service(*server);
  }
  void start(GrpcOptions grpc_options = {}) {
    if (server == nullptr) make();
    server->enable(grpc(grpc_options));
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  // The only thread of the pool is blocked when it returns.
  std::shared_ptr<Blocked> start_with_a_blocked_thread(GrpcOptions grpc_options = {}) {
    auto blocked = std::make_shared<Blocked>();
    options.loop.offload_threads_max = 1;
    make();
    EXPECT_TRUE(server->spawn(Blocker{blocked}));
    start(grpc_options);
    EXPECT_TRUE(soon([&] { return blocked->busy.load(); }));
    return blocked;
  }
  static Encoding encoding() { return GetParam() == std::string_view("gzip") ? Encoding::gzip : Encoding::zstd; }
  static Http2Client::Fields fields() {
    return {{"content-type", "application/grpc"}, {"te", "trailers"}, {"grpc-encoding", GetParam()}};
  }
  static std::string framed_packed(std::string_view bytes) { return framed(packed(bytes, encoding()), true); }

  ServerOptions options;
  std::unique_ptr<Server> server;
};

INSTANTIATE_TEST_SUITE_P(Encodings, GrpcUnpacking, ::testing::Values("gzip", "zstd"),
                         [](const auto& one) { return std::string(one.param); });

// Items of a stream keep their order, whether they are short, long or not compressed.
TEST_P(GrpcUnpacking, ItemsKeepTheirOrder) {
  start();
  std::vector<std::string> items;
  for (const std::size_t size : {100UZ, 1UZ << 20, 10UZ, 300'000UZ, 0UZ, 70'000UZ, 5UZ, 1UZ << 20}) {
    items.emplace_back(size, static_cast<char>('a' + items.size()));
  }
  std::string body;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    bytes += items[i].size();
    body += i == 2 || i == 6 ? framed(items[i], false) : framed_packed(items[i]);
  }
  Http2Client client(server->address());
  EXPECT_EQ(client.ask("POST", "/test.Raw/Sum", fields(), {body}).body,
            framed(std::to_string(items.size()) + " " + std::to_string(bytes), false));
  // One answer for each item. Parts of the request end anywhere.
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < body.size(); at += 777) parts.push_back(body.substr(at, 777));
  std::string expected;
  for (const std::string& item : items) expected += framed(item, false);
  EXPECT_TRUE(client.ask("POST", "/test.Raw/Converse", fields(), parts).body == expected);
}

TEST_P(GrpcUnpacking, UnaryCallsManyAtOnce) {
  options.send_backlog_bytes_max = std::size_t{64} << 20;  // The replies of all of them.
  start();
  Http2Client client(server->address());
  const std::string large(1 << 20, 'x');
  const std::string body = framed_packed(large);
  std::vector<std::int32_t> all;
  for (int i = 0; i < 20; ++i) all.push_back(client.begin("POST", "/test.Raw/Echo", fields(), {body}));
  // Some are given up. Their numbers may be those of later calls.
  for (std::size_t i = 0; i < all.size(); i += 4) client.reset(all[i]);
  EXPECT_TRUE(client.until([&] {
    for (const std::int32_t id : all) {
      if (!client.responses[id].closed) return false;
    }
    return true;
  }));
  for (std::size_t i = 1; i < all.size(); i += 4) {
    EXPECT_TRUE(client.responses[all[i]].body == framed(large, false))
        << client.responses[all[i]].fields["grpc-message"];
  }
  const Http2Client::Response again = client.ask("POST", "/test.Raw/Echo", fields(), {body});
  EXPECT_TRUE(again.body == framed(large, false));
  EXPECT_TRUE(client.until([&] { return server->counters().receive_bytes < 100'000; }));
}

TEST_P(GrpcUnpacking, WhatCannotBeDecompressedFailsTheCallOnly) {
  start({.message_bytes_max = std::size_t{1} << 20});
  Http2Client client(server->address());
  const auto status = [&](const std::string& path, const std::string& body) {
    return client.ask("POST", path, fields(), {body}).fields["grpc-status"];
  };
  const std::string fits(1 << 20, 'x');
  const std::string whole = packed(fits, encoding());
  const std::string bomb = framed_packed(std::string(20 << 20, 'x'));
  std::string broken = whole;
  char& changed = encoding() == Encoding::gzip ? broken[broken.size() - 8] : broken[0];  // The checksum, the magic.
  changed = static_cast<char>(changed ^ 0x55);
  for (const char* path : {"/test.Raw/Echo", "/test.Raw/Sum", "/test.Raw/Converse"}) {
    EXPECT_EQ(status(path, framed(whole, true)), "0") << path;
    EXPECT_EQ(status(path, framed_packed(fits + "x")), "8") << path;
    EXPECT_EQ(status(path, bomb), "8") << path;
    EXPECT_EQ(status(path, framed(broken, true)), "13") << path;
    EXPECT_EQ(status(path, framed(whole.substr(0, whole.size() / 2), true)), "13") << path;
  }
  // A unary call that has more than one message.
  EXPECT_EQ(status("/test.Raw/Echo", framed_packed(fits) + framed_packed("b")), "12");
}

// The length at the end of a gzip member may be false.
TEST(GrpcUnpackingLengths, AFalseLengthIsFound) {
  std::string bytes = packed(std::string(1 << 20, 'x'), Encoding::gzip);
  bytes.replace(bytes.size() - 4, 4, std::string("\0\0\2\0", 4));
  const Buffer kept = Buffer::copy_of(bytes);
  EXPECT_EQ(protocol::grpc::announced_bytes(Encoding::gzip, kept.bytes()), 0x20000U);
  const Result<Buffer> out = protocol::grpc::unpack(
      {.encoding = Encoding::gzip, .bytes = kept, .bytes_max = 0x20000, .message_bytes_max = 4 << 20});
  EXPECT_ERROR(out, protocol_error, "it is not a valid gzip");
}

// The only thread of the pool is busy: the loop answers other calls, and does not decompress in its place.
TEST_P(GrpcUnpacking, TheLoopDoesNotDoIt) {
  const std::shared_ptr<Blocked> blocked = start_with_a_blocked_thread();
  Http2Client client(server->address());
  const std::string large(1 << 20, 'x');
  const std::int32_t unary = client.begin("POST", "/test.Raw/Echo", fields(), {framed_packed(large)});
  const std::int32_t stream = client.begin("POST", "/test.Raw/Converse", fields(),
                                           {framed_packed("a") + framed_packed(large) + framed("b", false)});
  EXPECT_EQ(client.ask("POST", "/test.Raw/Echo", fields(), {framed_packed("short")}).body, framed("short", false));
  EXPECT_TRUE(client.until([&] { return client.responses[stream].body.size() >= framed("a", false).size(); }));
  EXPECT_EQ(client.responses[stream].body, framed("a", false));
  EXPECT_TRUE(client.responses[unary].body.empty());
  EXPECT_FALSE(client.responses[unary].closed);
  blocked->released = true;
  EXPECT_TRUE(client.until([&] { return client.responses[unary].closed && client.responses[stream].closed; }));
  EXPECT_TRUE(client.responses[unary].body == framed(large, false));
  EXPECT_TRUE(client.responses[stream].body == framed("a", false) + framed(large, false) + framed("b", false));
}

// Many messages that are short each hold the loop as one long one would.
TEST_P(GrpcUnpacking, ManyShortOnesAreOneLongOne) {
  const std::shared_ptr<Blocked> blocked = start_with_a_blocked_thread({.stream_window_bytes = 8 << 20});
  Http2Client client(server->address());
  const std::string item = framed_packed(std::string(40'000, 'x'));
  std::string body;
  for (int i = 0; i < 60; ++i) body += item;
  EXPECT_LT(body.size(), 16'000U);  // One frame.
  const std::int32_t stream = client.begin("POST", "/test.Raw/Sum", fields(), {body});
  EXPECT_EQ(client.ask("POST", "/test.Raw/Echo", fields(), {framed("short", false)}).body, framed("short", false));
  EXPECT_FALSE(client.responses[stream].closed);
  blocked->released = true;
  EXPECT_TRUE(client.until([&] { return client.responses[stream].closed; }));
  EXPECT_EQ(client.responses[stream].body, framed("60 2400000", false));
}

// The connection, or the server, ends while messages are decompressed.
TEST_P(GrpcUnpacking, MayBeOvertakenByTheEnd) {
  start();
  const std::string body = framed_packed(std::string(4 << 20, 'x'));
  for (int i = 0; i < 20; ++i) {
    Http2Client client(server->address());
    client.begin("POST", "/test.Raw/Echo", fields(), {body});
    client.begin("POST", "/test.Raw/Sum", fields(), {body + body});
  }
  Http2Client last(server->address());
  last.begin("POST", "/test.Raw/Echo", fields(), {body});
  server->stop(0ms);
  EXPECT_EQ(server->counters().calls_in_flight, 0U);
  EXPECT_EQ(server->counters().receive_bytes, 0U) << "stop() has joined the threads that decompress";
}

// Messages of connections that have ended do not wait for a thread any more: they would occupy memory that nobody
// counts, and the places of others.
TEST_P(GrpcUnpacking, MessagesOfEndedConnectionsLeaveTheQueue) {
  options.loop.offload_queue_max = 4;
  const std::shared_ptr<Blocked> blocked = start_with_a_blocked_thread();
  const std::string large(1 << 20, 'x');
  for (int i = 0; i < 6; ++i) {
    {
      Http2Client client(server->address());
      const std::int32_t stream = client.begin("POST", "/test.Raw/Echo", fields(), {framed_packed(large)});
      // Memory for the result is charged while the message has a place in the queue.
      const auto waits = [&] { return server->counters().receive_bytes >= large.size(); };
      EXPECT_TRUE(client.until([&] { return waits() || client.responses[stream].closed; }));
      EXPECT_TRUE(waits()) << "connection " << i << " found no place in the queue";
    }
    EXPECT_TRUE(soon([&] { return server->counters().connections_open == 0; }));
    EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
  }
  blocked->released = true;
}

// A call whose message is decompressed is a call in flight: calls_max holds for it too.
TEST_P(GrpcUnpacking, CallsThatWaitForTheirMessageCountForCallsMax) {
  options.calls_max = 1;
  const std::shared_ptr<Blocked> blocked = start_with_a_blocked_thread();
  Http2Client client(server->address());
  const std::string large(1 << 20, 'x');
  const std::int32_t late = client.begin("POST", "/test.Raw/Echo", fields(), {framed_packed(large)});
  EXPECT_TRUE(client.until([&] { return server->counters().receive_bytes >= large.size(); }));
  EXPECT_EQ(server->counters().calls_in_flight, 1U);
  EXPECT_EQ(client.ask("POST", "/test.Raw/Converse", fields(), {framed("a", false)}).fields["grpc-status"], "8")
      << "two calls in flight, and calls_max is 1";
  blocked->released = true;
  EXPECT_TRUE(client.until([&] { return client.responses[late].closed; }));
  EXPECT_EQ(client.responses[late].fields["grpc-status"], "0");
  EXPECT_TRUE(client.until([&] { return server->counters().calls_in_flight == 0; }));
  EXPECT_EQ(client.ask("POST", "/test.Raw/Echo", fields(), {framed_packed(large)}).fields["grpc-status"], "0");
}

// 1,000 streams have long messages, and the pool's queue has fewer places. Those that find none fail, and the others,
// and other connections, are served.
TEST_P(GrpcUnpacking, MoreMessagesThanPlacesFailTheirCallsOnly) {
  options.loop.offload_queue_max = 64;
  const std::shared_ptr<Blocked> blocked = start_with_a_blocked_thread();
  const std::string large(128 << 10, 'x');
  const std::string body = framed_packed(large);
  Http2Client many(server->address());
  std::vector<std::int32_t> all;
  for (int i = 0; i < 1000; ++i) {
    all.push_back(many.begin("POST", i % 2 == 0 ? "/test.Raw/Echo" : "/test.Raw/Sum", fields(), {body}));
  }
  const auto closed = [&] {
    std::size_t count = 0;
    for (const std::int32_t id : all) count += many.responses[id].closed ? 1 : 0;
    return count;
  };
  EXPECT_TRUE(many.until([&] { return closed() >= 1000 - 64; }));
  Http2Client other(server->address());
  const std::int32_t served = other.begin("POST", "/test.Raw/Echo", fields(), {body});
  EXPECT_EQ(other.ask("POST", "/test.Raw/Echo", fields(), {framed("short", false)}).body, framed("short", false));
  EXPECT_FALSE(other.responses[served].closed) << "another connection found no place";
  blocked->released = true;
  EXPECT_TRUE(other.until([&] { return other.responses[served].closed; }));
  EXPECT_TRUE(other.responses[served].body == framed(large, false));
  EXPECT_TRUE(many.until([&] { return closed() == 1000; }));
  std::size_t good = 0;
  for (const std::int32_t id : all) {
    const std::string status = many.responses[id].fields["grpc-status"];
    good += status == "0" ? 1 : 0;
    EXPECT_TRUE(status == "0" || status == "8") << status;
  }
  EXPECT_EQ(good, 32U) << "half of the places";
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
}

// The memory holds the results of three items. They are decompressed late, and the others wait.
TEST_P(GrpcUnpacking, ItemsWaitForTheMemoryOfEachOther) {
  options.message_bytes_max = std::size_t{1} << 20;
  options.receive_bytes_max = 4 * options.message_bytes_max;
  options.receive_share_bytes_max = options.receive_peer_bytes_max = 7 * options.message_bytes_max / 2;
  const std::shared_ptr<Blocked> blocked = start_with_a_blocked_thread({.message_bytes_max = std::size_t{1} << 20});
  const std::string large(1 << 20, 'x');
  const std::string item = framed_packed(large);
  std::deque<Http2Client> clients;
  std::vector<std::int32_t> streams;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back(server->address());
    for (int j = 0; j < 8; ++j) {
      streams.push_back(clients.back().begin("POST", "/test.Raw/Sum", fields(), {item + item}));
    }
    // The items of this client have arrived.
    EXPECT_EQ(clients.back().ask("POST", "/test.Raw/Echo", fields(), {framed("short", false)}).body,
              framed("short", false));
  }
  EXPECT_GE(server->counters().receive_bytes, 3 * large.size());
  blocked->released = true;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    Http2Client& client = clients[i / 8];
    EXPECT_TRUE(client.until([&] { return client.responses[streams[i]].closed; }));
    EXPECT_EQ(client.responses[streams[i]].body, framed("2 2097152", false))
        << client.responses[streams[i]].fields["grpc-message"];
  }
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
}

// Streams, connections and the server may end while items wait for memory.
TEST_P(GrpcUnpacking, ItemsThatWaitForMemoryMayBeGivenUp) {
  options.message_bytes_max = std::size_t{1} << 20;
  options.receive_bytes_max = options.receive_share_bytes_max = options.receive_peer_bytes_max =
      2 * options.message_bytes_max;
  const std::shared_ptr<Blocked> blocked = start_with_a_blocked_thread({.message_bytes_max = std::size_t{1} << 20});
  const std::string item = framed_packed(std::string(1 << 20, 'x'));
  const auto begin_streams = [&](Http2Client& client) {
    std::vector<std::int32_t> streams;
    for (int i = 0; i < 4; ++i) streams.push_back(client.begin("POST", "/test.Raw/Sum", fields(), {item + item}));
    EXPECT_EQ(client.ask("POST", "/test.Raw/Echo", fields(), {framed("short", false)}).body, framed("short", false));
    return streams;
  };
  Http2Client given_up(server->address());
  for (const std::int32_t stream : begin_streams(given_up)) given_up.reset(stream);
  {
    Http2Client ended(server->address());
    begin_streams(ended);
  }
  Http2Client last(server->address());
  const std::vector<std::int32_t> streams = begin_streams(last);
  blocked->released = true;
  EXPECT_TRUE(last.until([&] {
    return std::ranges::all_of(streams, [&](std::int32_t stream) { return last.responses[stream].closed; });
  }));
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
  begin_streams(last);
  server->stop(0ms);
  EXPECT_EQ(server->counters().receive_bytes, 0U);
}

// ---- Interceptors ----

// Calls without a token are refused when `released` is set, and the others are served then.
struct TokenGate {
  Task<Result<void>> operator()(IncomingCall& call, Next next) const {
    bytes->store(call.request_bytes());
    while (!*released) co_await call.loop().sleep(1ms);
    if (!call.metadata().find("x-token")) co_return fail(ErrorCode::unauthenticated, "send a token");
    co_return co_await next();
  }
  std::shared_ptr<std::atomic<bool>> released = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<std::size_t>> bytes = std::make_shared<std::atomic<std::size_t>>(0);
};

// A caller that is refused does not make the server decompress: what it sent would not be valid.
TEST_P(GrpcUnpacking, RefusedCallsAreNotDecompressed) {
  make();
  const TokenGate gate;
  *gate.released = true;
  server->use(gate);
  start();
  Http2Client client(server->address());
  const auto status = [&](const std::string& path, const std::string& body, bool with_token) {
    Http2Client::Fields sent = fields();
    if (with_token) sent.emplace_back("x-token", "yes");
    return client.ask("POST", path, sent, {body}).fields["grpc-status"];
  };
  const std::string large(1 << 20, 'x');
  const std::string packed_large = framed_packed(large);
  for (const std::string& junk : {framed("junk", true), framed(std::string(100'000, 'j'), true)}) {
    for (const char* path : {"/test.Raw/Echo", "/test.Raw/Sum", "/test.Raw/Converse"}) {
      EXPECT_EQ(status(path, junk, false), "16") << path;
      EXPECT_EQ(status(path, junk, true), "13") << path;
      EXPECT_EQ(status(path, packed_large, false), "16") << path;
      EXPECT_EQ(status(path, packed_large, true), "0") << path;
    }
  }
  EXPECT_EQ(status("/test.Raw/Echo", packed_large, true), "0");
  EXPECT_EQ(*gate.bytes, packed_large.size() - 5);
}

// Items that come while the interceptors run are charged as they came.
TEST_P(GrpcUnpacking, ItemsBehindAnInterceptorStayCompressed) {
  make();
  const TokenGate gate;
  server->use(gate);
  start({.stream_window_bytes = 8 << 20});
  Http2Client client(server->address());
  const std::string large(1 << 20, 'x');
  const std::string item = framed_packed(large);
  Http2Client::Fields sent = fields();
  sent.emplace_back("x-token", "yes");
  const std::int32_t good = client.begin("POST", "/test.Raw/Sum", sent, {item + item + item});
  const std::int32_t refused = client.begin("POST", "/test.Raw/Sum", fields(), {item + item + item});
  EXPECT_TRUE(client.until([&] { return server->counters().receive_bytes >= 6 * (item.size() - 5); }));
  EXPECT_LT(server->counters().receive_bytes, large.size());
  *gate.released = true;
  EXPECT_TRUE(client.until([&] { return client.responses[good].closed && client.responses[refused].closed; }));
  EXPECT_EQ(client.responses[good].body, framed("3 " + std::to_string(3 * large.size()), false));
  EXPECT_EQ(client.responses[refused].fields["grpc-status"], "16");
  EXPECT_TRUE(client.until([&] { return server->counters().receive_bytes == 0; }));
}

// ---- The client ----

// The answer of a server may have ended before its items are read, or decompressed.
TEST_P(GrpcUnpacking, AClientUnpacksLongReplies) {
  start({.compression = encoding() == Encoding::gzip ? GrpcCompression::gzip : GrpcCompression::zstd});
  Loop loop;
  loop.run([](std::string address) -> Task<void> {
    GrpcClient client(*Loop::current());
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    const Raw large{std::string(1 << 20, 'x')};
    for (int i = 0; i < 3; ++i) {
      auto reply = co_await client.call<remote::echo>(large);
      REQUIRE_OK(reply);
      EXPECT_TRUE(reply->bytes == large.bytes);
    }
    auto call = co_await client.open<remote::converse>();
    REQUIRE_OK(call);
    auto reader = call->reader();
    auto writer = call->writer();
    for (int i = 0; i < 3; ++i) {
      auto written = co_await writer.write(large);
      REQUIRE_OK(written);
    }
    writer.end();
    co_await Loop::current()->sleep(20ms);
    for (int i = 0; i < 3; ++i) {
      auto item = co_await reader.next();
      REQUIRE_OK(item);
      REQUIRE(item->has_value());
      EXPECT_TRUE((*item)->bytes == large.bytes);
    }
    auto end = co_await reader.next();
    REQUIRE_OK(end);
    EXPECT_FALSE(end->has_value());
    auto ended = co_await call->finish();
    EXPECT_OK(ended);
  }(server->address()));
}

// The client is destroyed while its replies are decompressed.
TEST_P(GrpcUnpacking, AClientMayEndBeforeItsReplies) {
  start({.compression = encoding() == Encoding::gzip ? GrpcCompression::gzip : GrpcCompression::zstd});
  for (const Duration wait : {0ms, 1ms, 3ms, 6ms, 10ms}) {
    Loop loop;
    loop.run([](std::string address, Duration pause) -> Task<void> {
      GrpcClient client(*Loop::current());
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      const Raw large{std::string(1 << 20, 'x')};
      auto first = co_await client.send_request<remote::echo>(large);
      auto second = co_await client.send_request<remote::echo>(large);
      EXPECT_OK(first);
      EXPECT_OK(second);
      co_await Loop::current()->sleep(pause);
    }(server->address(), wait));
  }
}

}  // namespace
}  // namespace hawser
