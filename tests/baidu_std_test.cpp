#include <sys/socket.h>

#include <optional>
#include <string>

#include "hawser/crc32c.h"
#include "protocol/baidu_std/test/vectors.h"
#include "tests/baidu_std/fixture.h"

// Clients of baidu_std, which speak it by hand, and a server.
namespace hawser::protocol::baidu_std {
namespace {

TEST_F(BaiduStd, ARequestIsAnsweredToTheByte) {
  const Octets request = vectors::hex(vectors::request);
  // The server of this test has no example.EchoService, so the refusal is compared first.
  RawSocket socket = connected();
  socket.send(request);
  const std::optional<Answer> refused = receive_answer(socket);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->error_code, 1002);
  EXPECT_EQ(refused->id, 7);
  EXPECT_EQ(refused->data, "");
  const std::string_view echo =
      "50525043 0000001b 00000014 0a10 0a08 746573742e526177 1204 4563686f 2007 0a05 68656c6c6f";
  socket.send(vectors::hex(echo));
  const std::optional<Octets> answer = socket.receive(33);
  ASSERT_TRUE(answer);
  EXPECT_EQ(vectors::to_hex(*answer), vectors::to_hex(vectors::hex(vectors::reply)));
}

TEST_F(BaiduStd, ARequestIsReadWhateverItsCut) {
  const Octets request = bytes_of({.attachment = "attached"});
  RawSocket socket = connected();
  // BaiduStdReceiver has a test with every cut. Here each cut costs a delayed acknowledgement.
  for (std::size_t cut = 1; cut < request.size(); cut += 9) {
    socket.send(Bytes(request).first(cut));
    std::this_thread::sleep_for(100us);
    socket.send(Bytes(request).subspan(cut));
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer) << cut;
    ASSERT_EQ(answer->data, "hello") << cut;
    ASSERT_EQ(answer->attachment, "attached") << cut;
  }
}

TEST_F(BaiduStd, LongDataAndAttachments) {
  RawSocket socket = connected();
  const std::string data = text_of(300'000);
  const std::string attachment = text_of(700'000, 'A');
  for (const std::size_t size : {0UZ, 1UZ, 32'700UZ, 32'768UZ, 65'536UZ, 300'000UZ}) {
    for (const std::size_t attached : {0UZ, 9000UZ, 700'000UZ}) {
      const Answer answer = ask(socket, {.data = std::string_view(data).substr(0, size),
                                         .attachment = std::string_view(attachment).substr(0, attached)});
      ASSERT_EQ(answer.error_code, 0) << answer.error_text;
      ASSERT_TRUE(answer.data == data.substr(0, size)) << size;
      ASSERT_TRUE(answer.attachment == attachment.substr(0, attached)) << attached;
    }
  }
}

TEST_F(BaiduStd, PipelinedCallsAreAnsweredOutOfOrder) {
  RawSocket socket = connected();
  Octets requests = bytes_of({.method = "Later", .id = 1'000'000'000'000});
  for (int i = 0; i < 100; ++i) requests = requests + bytes_of({.id = -i});
  socket.send(requests);
  for (int i = 0; i < 101; ++i) {
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer);
    if (i == 0) {
      EXPECT_EQ(answer->id, 0) << "a plain function answers before the waiting coroutine";
    }
    EXPECT_EQ(answer->data, "hello");
  }
}

TEST_F(BaiduStd, TheSameCorrelationIdTwice) {
  RawSocket socket = connected();
  socket.send(bytes_of({.method = "Later", .id = 5, .data = "one"}) + bytes_of({.id = 5, .data = "two"}));
  EXPECT_EQ(receive_answer(socket)->data, "two");
  EXPECT_EQ(receive_answer(socket)->data, "one");
}

TEST_F(BaiduStd, ServicesAreFoundByFullAndShortNames) {
  RawSocket socket = connected();
  EXPECT_EQ(ask(socket, {.meta = {.request = RequestMeta{.service = "Raw"}}}).error_code, 0);
  for (const std::string_view service : {"Ra", "test.Ra", "aw", "test", ".Raw", "/", "test.Raw/Echo"}) {
    const Answer answer = ask(socket, {.meta = {.request = RequestMeta{.service = service}}});
    EXPECT_EQ(answer.error_code, 1002) << service;
  }
  EXPECT_EQ(ask(socket, {.method = "Ech"}).error_code, 1002);
  EXPECT_EQ(ask(socket, {.method = std::string(20'000, 'm')}).error_code, 1002);
  EXPECT_EQ(ask(socket, {}).error_code, 0);
}

TEST_F(BaiduStd, AMethodWithoutProtobufMessagesIsNotServed) {
  RawSocket socket = connected();
  const Answer answer = ask(socket, {.method = "Native"});
  EXPECT_EQ(answer.error_code, 1002);
  EXPECT_NE(answer.error_text.find("own protocol"), std::string::npos) << answer.error_text;
}

TEST_F(BaiduStd, ErrorsOfHandlers) {
  RawSocket socket = connected();
  const Answer own = ask(socket, {.method = "Fail", .data = "1234567"});
  EXPECT_EQ(own.error_code, 7);
  EXPECT_EQ(own.error_text, "as asked");
  const Answer none = ask(socket, {.method = "Fail", .data = ""});
  EXPECT_EQ(none.error_code, 2001);
}

TEST_F(BaiduStd, TheTimeoutReachesTheHandler) {
  RawSocket socket = connected();
  const Answer answer = ask(socket, {.method = "Wait", .meta = {.request = RequestMeta{.timeout_ms = 1}}});
  EXPECT_EQ(answer.error_code, 1008);
}

TEST_F(BaiduStd, TheEndOfTheConnectionCancelsItsCalls) {
  RawSocket socket = connected();
  socket.send(bytes_of({.method = "Wait"}));
  ASSERT_TRUE(soon([&] { return server->counters().calls_in_flight >= 1; }));
  socket.close();  // The fixture expects that no call is left.
}

class BaiduStdPollers : public BaiduStd, public ::testing::WithParamInterface<PollerKind> {
 protected:
  BaiduStdPollers() : BaiduStd(BaiduStdOptions{}, options()) {}
  static ServerOptions options() {
    ServerOptions with;
    with.loop.poller = GetParam();
    with.ping_interval = patience;  // A busy machine may keep the client from reading.
    return with;
  }
};
INSTANTIATE_TEST_SUITE_P(Pollers, BaiduStdPollers, ::testing::Values(PollerKind::epoll, PollerKind::io_uring),
                         [](const auto& one) { return one.param == PollerKind::epoll ? "epoll" : "io_uring"; });

TEST_P(BaiduStdPollers, FinishedRepliesReachAClientThatEndsItsDirection) {
  // Too long for the buffers of the sockets.
  const std::string data = text_of(message_bytes_max - 1000);
  for (const std::string_view method : {"Echo", "Later"}) {
    RawSocket socket = connected();
    socket.send(bytes_of({.method = method, .data = data}));
    const std::optional<Octets> first = socket.receive(1);  // The reply has been given.
    ASSERT_TRUE(first);
    ::shutdown(socket.fd(), SHUT_WR);
    const std::string rest = socket.receive_all();
    EXPECT_TRUE(rest.ends_with(data)) << rest.size();
  }
  // Short replies, whose requests arrive together with the end.
  RawSocket socket = connected();
  Octets requests;
  for (int i = 0; i < 10; ++i) requests = requests + bytes_of({.id = i});
  socket.send(requests);
  ::shutdown(socket.fd(), SHUT_WR);
  for (int i = 0; i < 10; ++i) {
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer) << i;
    EXPECT_EQ(answer->id, i);
  }
  EXPECT_TRUE(socket.closed_without_reset());
}

TEST_F(BaiduStd, MetadataAndIds) {
  RawSocket socket = connected();
  const Answer answer = ask(socket, {.meta = {.request = RequestMeta{.log_id = 42, .trace_id = -1, .request_id = "r"}},
                                     .fields = {{"key", "value"}, {"empty", ""}}});
  EXPECT_EQ(answer.fields, (Metadata{{"echo", "log-id=42;x-request-id=r;x-bd-trace-id=-1;key=value;empty=;"}}));
  Metadata many(65, {"k", "v"});
  EXPECT_EQ(ask(socket, {.fields = many}).error_code, 1003);
  EXPECT_EQ(ask(socket, {.fields = {{std::string(256, 'k'), ""}}}).error_code, 1003);
}

TEST_F(BaiduStd, Checksums) {
  RawSocket socket = connected();
  const auto checksum = [](std::string_view data) {
    const std::uint32_t value = __builtin_bswap32(mask_crc(crc32c(0, as_bytes(data))));
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const std::string of_data = checksum("hello");
  const Answer answer = ask(socket, {.attachment = "more", .meta = {.checksum_type = 1, .checksum_value = of_data}});
  EXPECT_EQ(answer.error_code, 0) << answer.error_text;
  EXPECT_EQ(answer.checksum, of_data);
  const std::string of_all = checksum("hellomore");
  const Answer with_attachment = ask(
      socket,
      {.attachment = "more", .meta = {.checksum_type = 1, .checksum_value = of_all, .checksum_with_attachment = true}});
  EXPECT_EQ(with_attachment.error_code, 0) << with_attachment.error_text;
  EXPECT_EQ(with_attachment.checksum, of_all);
  EXPECT_EQ(ask(socket, {.data = "hellO", .meta = {.checksum_type = 1, .checksum_value = of_data}}).error_code, 1003);
  EXPECT_EQ(ask(socket, {.meta = {.checksum_type = 2, .checksum_value = of_data}}).error_code, 1003);
  EXPECT_EQ(ask(socket, {}).checksum, "");
}

TEST_F(BaiduStd, ContentTypes) {
  RawSocket socket = connected();
  const Answer json = ask(socket, {.data = "[hello]", .attachment = "a", .meta = {.content_type = 1}});
  EXPECT_EQ(json.error_code, 0) << json.error_text;
  EXPECT_EQ(json.data, "[hello]");
  EXPECT_EQ(json.attachment, "a");
  EXPECT_EQ(json.content_type, 1);
  EXPECT_EQ(ask(socket, {.data = "[x]", .meta = {.content_type = 2}}).content_type, 2);
  EXPECT_EQ(ask(socket, {.data = "x", .meta = {.content_type = 1}}).error_code, 1003);
  EXPECT_EQ(ask(socket, {.meta = {.content_type = 3}}).error_code, 1003);
}

TEST_F(BaiduStd, CompressedRequests) {
  RawSocket socket = connected();
  const std::string data = text_of(100'000);
  for (const Compression type : {Compression::snappy, Compression::gzip, Compression::zlib}) {
    const Buffer packed = *compress(type, as_bytes(data));
    const Answer answer =
        ask(socket,
            {.data = packed.text(), .attachment = "plain", .meta = {.compress_type = static_cast<std::int32_t>(type)}});
    EXPECT_EQ(answer.error_code, 0) << answer.error_text;
    EXPECT_TRUE(answer.data == data);
    EXPECT_EQ(answer.attachment, "plain");
    EXPECT_EQ(answer.compress_type, 0);
    EXPECT_EQ(ask(socket, {.data = "junk", .meta = {.compress_type = static_cast<std::int32_t>(type)}}).error_code,
              1003);
  }
  EXPECT_EQ(ask(socket, {.meta = {.compress_type = 4}}).error_code, 1003);
}

// There is no frame that announces the stop, so that requests are refused until the server has ended.
TEST(BaiduStdStopping, RequestsAreRefusedAndCallsFinish) {
  ServerOptions options;
  options.loop.log = no_log();
  Server server(options);
  serve_method<echo_message>(server, "test.Raw/Echo");
  serve_method<wait_message>(server, "test.Raw/Wait");
  server.enable(hawser::baidu_std());
  ASSERT_TRUE(server.start());
  RawSocket socket = RawSocket::connected_to(server.address());
  socket.send(bytes_of({.method = "Wait", .id = 1}) + bytes_of({.id = 2}));
  ASSERT_EQ(receive_answer(socket)->id, 2);
  std::thread stopping([&] { server.stop(patience); });
  std::int32_t code = 0;
  while (code == 0) {
    socket.send(bytes_of({.id = 3}));
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer);
    code = answer->error_code;
  }
  EXPECT_EQ(code, 2003);
  socket.close();
  stopping.join();
}

class BaiduStdCompressedReplies : public BaiduStd {
 protected:
  BaiduStdCompressedReplies() : BaiduStd(BaiduStdOptions{.compress_reply_bytes_min = 1000}) {}
};

TEST_F(BaiduStdCompressedReplies, FollowTheRequest) {
  RawSocket socket = connected();
  const std::string data = text_of(10'000);
  for (const Compression type : {Compression::snappy, Compression::gzip, Compression::zlib}) {
    const auto number = static_cast<std::int32_t>(type);
    const Buffer packed = *compress(type, as_bytes(data));
    const Answer answer =
        ask(socket, {.data = packed.text(), .attachment = "plain", .meta = {.compress_type = number}});
    EXPECT_EQ(answer.compress_type, number);
    const Result<Buffer> plain = decompress(type, as_bytes(answer.data), data.size());
    ASSERT_TRUE(plain) << error_of(plain);
    EXPECT_TRUE(plain->text() == data);
    EXPECT_EQ(answer.attachment, "plain");
    const Buffer small = *compress(type, as_bytes("small"));
    EXPECT_EQ(ask(socket, {.data = small.text(), .meta = {.compress_type = number}}).compress_type, 0);
  }
  EXPECT_EQ(ask(socket, {.data = data}).compress_type, 0);
}

// The next reply must have nothing of a compressed or JSON reply that was begun and could not be encoded.
TEST_F(BaiduStdCompressedReplies, AReplyThatCannotBeEncodedLeavesNothing) {
  RawSocket socket = connected();
  const std::string data = "throw" + text_of(2'000);
  const std::string json = "[throw]";
  const Buffer packed = *compress(Compression::snappy, as_bytes(data));
  EXPECT_NE(ask(socket, {.data = packed.text(), .meta = {.compress_type = 1}}).error_code, 0);
  EXPECT_EQ(ask(socket, {.id = 2, .data = text_of(9'000)}).data, text_of(9'000));
  EXPECT_NE(ask(socket, {.data = json, .meta = {.content_type = 1}}).error_code, 0);
  EXPECT_EQ(ask(socket, {.id = 4, .data = "plain"}).data, "plain");
}

TEST_F(BaiduStdCredentials, OnlyTheFirstMessageCarriesOne) {
  RawSocket socket = connected();
  EXPECT_EQ(ask(socket, {.meta = {.authentication_data = "secret"}}).error_code, 0);
  EXPECT_EQ(ask(socket, {}).error_code, 0);
  EXPECT_EQ(ask(socket, {.meta = {.authentication_data = "wrong"}}).error_code, 0);
}

TEST_F(BaiduStdCredentials, AWrongOneEndsTheConnection) {
  for (const std::string_view credential : {"", "wrong"}) {
    RawSocket socket = connected();
    socket.send(bytes_of({.meta = {.authentication_data = credential}}) + bytes_of({.id = 2}));
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->error_code, 1004);
    EXPECT_EQ(answer->error_text, "wrong credential");
    EXPECT_TRUE(socket.closed_by_peer());
  }
  RawSocket socket = connected();
  socket.send(stream_frame({1, 1, StreamFrameType::data}, "x"));
  EXPECT_TRUE(socket.closed_by_peer());
}

}  // namespace
}  // namespace hawser::protocol::baidu_std
