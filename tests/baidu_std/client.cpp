#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "tests/baidu_std/client_tools.h"
#include "tests/skipped_calls.h"

// The library's own client of baidu_std.
namespace hawser::protocol::baidu_std {
namespace {

using namespace std::string_view_literals;

TEST_F(BaiduStd, TheClientCalls) {
  with_client(server->address(), {}, [](BaiduStdClient& client) -> Task<void> {
    const RawMessage request = raw("hello");
    for (int i = 0; i < 100; ++i) {
      auto reply = co_await client.call<echo_message>(request);
      REQUIRE_OK(reply);
      EXPECT_EQ(reply->bytes, "hello");
    }
    const RawMessage large = raw(text_of(1'000'000));
    auto same = co_await client.call<echo_message>(large);
    REQUIRE_OK(same);
    EXPECT_TRUE(same->bytes == large.bytes);
  });
}

TEST_F(BaiduStd, TheClientSendsAndReceivesEveryField) {
  for (const BaiduStdCompression type :
       {BaiduStdCompression::none, BaiduStdCompression::snappy, BaiduStdCompression::gzip, BaiduStdCompression::zlib}) {
    BaiduStdClientOptions options;
    options.compression = type;
    options.client.checksum = true;
    with_client(server->address(), options, [](BaiduStdClient& client) -> Task<void> {
      const RawMessage request = raw(text_of(10'000));
      const std::string attachment = text_of(50'000, 'A');
      const CallOptions with{.attachment = as_bytes(attachment),
                             .metadata = {{"log-id", "7"}, {"key", "value"}, {"x-request-id", "r"}}};
      auto reply = co_await client.call<echo_message>(with, request).reply();
      REQUIRE_OK(reply);
      EXPECT_TRUE(reply->value().bytes == request.bytes);
      EXPECT_TRUE(as_text(reply->attachment()) == attachment);
      EXPECT_EQ(reply->metadata().find("echo"), "log-id=7;x-request-id=r;key=value;");
    });
  }
}

TEST_F(BaiduStd, TheClientReportsErrors) {
  with_client(server->address(), {}, [](BaiduStdClient& client) -> Task<void> {
    const RawMessage seven = raw("1234567");
    auto failed = co_await client.call<failing_message>(seven);
    EXPECT_ERROR(failed, application, "as asked");
    EXPECT_EQ(failed.error().application_code, 7);
    auto native = co_await client.call<native_text>("x");
    EXPECT_ERROR(native, unknown_method, "test.Raw/Native");
    auto unnamed = co_await client.call<testing_tools::echo>("x");
    EXPECT_ERROR(unnamed, invalid_argument, "package.Service/Method");
    const CallOptions short_time{.timeout = 1ms};
    auto late = co_await client.call<wait_message>(short_time, seven);
    EXPECT_ERROR(late, deadline_exceeded, "");
    const RawMessage again = raw("again");
    auto reply = co_await client.call<echo_message>(again);
    REQUIRE_OK(reply);
    EXPECT_EQ(reply->bytes, "again");
  });
}

TEST(BaiduStdSkipped, InterceptorsThatSkipCallsSeeTheirEnds) {
  const testing_tools::SkipsAll skips;
  Server own({.listen = "127.0.0.1:0"});
  own.use(skips);
  serve_method<echo_message>(own, "test.Raw/Echo");
  serve_method<wait_message>(own, "test.Raw/Wait");
  serve_method<failing_message>(own, "test.Raw/Fail");
  own.enable(hawser::baidu_std());
  ASSERT_TRUE(own.start());
  with_client(own.address(), {}, [](BaiduStdClient& client) -> Task<void> {
    const RawMessage request = raw("abc");
    auto same = co_await client.call<echo_message>(request);  // Answered at once.
    EXPECT_OK(same);
    const CallOptions brief{.timeout = 1ms};
    auto late = co_await client.call<wait_message>(brief, request);
    EXPECT_ERROR(late, deadline_exceeded, "");
    auto failed = co_await client.call<failing_message>(request);
    EXPECT_ERROR(failed, application, "as asked");
  });
  EXPECT_TRUE(soon([&] { return skips.listed() == 2; }));  // The client does not wait for the end of the late call.
  std::vector<std::string> lines = skips.take("baidu_std");
  std::ranges::sort(lines);
  EXPECT_EQ(lines, (std::vector<std::string>{"baidu_std test.Raw/Fail: as asked", "baidu_std test.Raw/Wait: stopped"}));
}

TEST_F(BaiduStd, TheClientPipelines) {
  with_client(server->address(), {}, [](BaiduStdClient& client) -> Task<void> {
    std::vector<PendingCall<echo_message>> pending;
    for (int i = 0; i < 200; ++i) {
      const RawMessage request = raw(std::to_string(i));
      auto sent = co_await client.send_request<echo_message>(request);
      REQUIRE_OK(sent);
      pending.push_back(std::move(*sent));
    }
    for (int i = 0; i < 200; ++i) {
      auto reply = co_await std::move(pending[static_cast<std::size_t>(i)]);
      REQUIRE_OK(reply);
      EXPECT_EQ(reply->bytes, std::to_string(i));
    }
  });
}

TEST_F(BaiduStd, TheEndOfTheClientEndsItsCalls) {
  with_client(server->address(), {}, [](BaiduStdClient& client) -> Task<void> {
    const RawMessage request = raw("x");
    auto waiting = co_await client.send_request<wait_message>(request);
    REQUIRE_OK(waiting);
    // The request leaves at the end of the tick.
    co_await Loop::current()->sleep(1ms);
    client.close();
    auto reply = co_await std::move(*waiting);
    EXPECT_ERROR(reply, outcome_unknown, "the client was closed");
    EXPECT_FALSE(client.connected());
    auto after = co_await client.call<echo_message>(request);
    EXPECT_ERROR(after, not_sent, "not connected");
  });
}

TEST_F(BaiduStdCredentials, TheClientSendsItsCredentialOnce) {
  BaiduStdClientOptions options;
  options.credential = "secret";
  with_client(server->address(), options, [](BaiduStdClient& client) -> Task<void> {
    const RawMessage request = raw("x");
    for (int i = 0; i < 3; ++i) {
      auto reply = co_await client.call<echo_message>(request);
      EXPECT_OK(reply);
    }
  });
  options.credential = "wrong";
  with_client(server->address(), options, [](BaiduStdClient& client) -> Task<void> {
    const RawMessage request = raw("x");
    auto reply = co_await client.call<echo_message>(request);
    EXPECT_ERROR(reply, unauthenticated, "wrong credential");
  });
}

// ---- Servers that break the protocol ----

// Answers each request with what `answer` gives; an empty answer ends the connection.
template <class Answer>
void with_server(Answer answer, Script script) {
  RawListener listener;
  std::thread serving([&] {
    RawSocket socket = listener.accept();
    for (;;) {
      const auto head = socket.receive(FrameHeader::bytes);
      if (!head) return;
      const FrameHeader header = **parse_header(*head, {});
      const auto rest = socket.receive(header.body_bytes);
      if (!rest) return;
      const auto meta = parse_meta(Bytes(*rest).first(header.meta_bytes));
      const Octets bytes = answer(*meta);
      if (bytes.empty() || !socket.send(bytes)) return;
    }
  });
  const BaiduStdClientOptions options;
  with_client(listener.address(), options, script);
  serving.join();
}

TEST(BaiduStdClients, LateAndForeignRepliesAreIgnored) {
  with_server(
      [](const RpcMeta& request) {
        const auto with = [&](std::int64_t id, std::string_view data) {
          return reply_frame({.response = ResponseMeta{}, .correlation_id = id}, data);
        };
        const std::int64_t id = request.correlation_id;
        return with(id + 1, "foreign") + with(id + (1LL << 32), "a later call") + with(id, "right") + with(id, "twice");
      },
      [](BaiduStdClient& client) -> Task<void> {
        const RawMessage request = raw("x");
        for (int i = 0; i < 3; ++i) {
          auto reply = co_await client.call<echo_message>(request);
          REQUIRE_OK(reply);
          EXPECT_EQ(reply->bytes, "right");
        }
      });
}

TEST(BaiduStdClients, ServersThatBreakTheProtocol) {
  for (const std::string_view junk : {"HTTP/1.1 400 Bad Request\r\n\r\n"sv, "PRPC\xff\xff\xff\xff\xff\xff\xff\xff"sv,
                                      "STRM\0\0\0\2\0\0\0\2\x08\1"sv}) {
    with_server([&](const RpcMeta&) { return octets(junk); },
                [](BaiduStdClient& client) -> Task<void> {
                  const RawMessage request = raw("x");
                  auto reply = co_await client.call<echo_message>(request);
                  EXPECT_ERROR(reply, outcome_unknown, "");
                  EXPECT_FALSE(client.connected());
                });
  }
}

TEST(BaiduStdClients, RepliesThatDoNotMatchTheirMeta) {
  with_server(
      [turn = 0](const RpcMeta& request) mutable {
        const ResponseMeta ok{};
        const std::int64_t id = request.correlation_id;
        switch (turn++) {
          case 0: return reply_frame({.response = ok, .correlation_id = id, .attachment_size = 9}, "short");
          case 1: return reply_frame({.response = ok, .compress_type = 2, .correlation_id = id}, "no gzip");
          case 2: return reply_frame({.response = ok, .correlation_id = id, .checksum_type = 1}, "no checksum");
          case 3: return reply_frame({.response = ok, .correlation_id = id}, "fields", Metadata(65, {"k", "v"}));
          default: return reply_frame({.response = ok, .correlation_id = id}, "good");
        }
      },
      [](BaiduStdClient& client) -> Task<void> {
        const RawMessage request = raw("x");
        auto attachment = co_await client.call<echo_message>(request);
        EXPECT_ERROR(attachment, protocol_error, "attachment_size");
        auto compressed = co_await client.call<echo_message>(request);
        EXPECT_ERROR(compressed, invalid_argument, "gzip");
        auto checksum = co_await client.call<echo_message>(request);
        EXPECT_ERROR(checksum, protocol_error, "checksum");
        auto fields = co_await client.call<echo_message>(request);
        EXPECT_ERROR(fields, protocol_error, "user_fields of the reply: metadata of 65 entries and 325 bytes");
        auto good = co_await client.call<echo_message>(request);
        REQUIRE_OK(good);
        EXPECT_EQ(good->bytes, "good");
      });
}

TEST(BaiduStdClients, TheEndOfTheServerEndsItsCalls) {
  with_server([](const RpcMeta&) { return Octets(); },
              [](BaiduStdClient& client) -> Task<void> {
                const RawMessage request = raw("x");
                auto reply = co_await client.call<echo_message>(request);
                EXPECT_ERROR(reply, outcome_unknown, "");
                auto after = co_await client.call<echo_message>(request);
                EXPECT_ERROR(after, not_sent, "");
              });
}

}  // namespace
}  // namespace hawser::protocol::baidu_std
