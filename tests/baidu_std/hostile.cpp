#include <string>

#include "protocol/baidu_std/test/vectors.h"
#include "tests/baidu_std/fixture.h"

// Clients that try to use up a resource. The fixture's other client must be served meanwhile.
namespace hawser::protocol::baidu_std {
namespace {

Octets header(BaiduStdFrameKind kind, std::uint32_t body, std::uint32_t meta) {
  Octets bytes(FrameHeader::bytes);
  write_header(bytes.data(), {kind, body, meta});
  return bytes;
}

TEST_F(BaiduStd, FramesThatBreakTheProtocolEndTheConnection) {
  const Octets good = bytes_of({});
  expect_closed(header(BaiduStdFrameKind::rpc, message_bytes_max + 1, 10), "beyond message_bytes_max");
  expect_closed(header(BaiduStdFrameKind::rpc, 10, 11), "meta_size beyond body_size");
  expect_closed(header(BaiduStdFrameKind::rpc, 1'000'000, 100'000), "a meta of 100,000 bytes");
  expect_closed(header(BaiduStdFrameKind::rpc, 3, 3) + octets("\xff\xff\xff"), "a malformed meta");
  expect_closed(header(BaiduStdFrameKind::rpc, 0, 0), "no request");
  expect_closed(good + octets("GET / HTTP/1.1\r\n"), "another protocol after a request");
  expect_closed(good + header(BaiduStdFrameKind::stream, 2, 2) + octets("\x18\x03"), "a stream frame without an id");
  // A server answers only: a reply is not a message of a client.
  expect_closed(vectors::hex(vectors::reply), "a reply");
}

TEST_F(BaiduStd, AttachmentsThatAreLongerThanTheFrame) {
  RawSocket socket = connected();
  for (const std::int32_t size : {6, INT32_MAX, -1, INT32_MIN}) {
    Call call{.meta = {.attachment_size = size}};
    // Negative numbers are not written by write_meta(), so they are patched in: field 5, ten bytes.
    Octets request = bytes_of(call);
    if (size < 0) {
      RpcMeta meta{.request = RequestMeta{.service = "test.Raw", .method = "Echo"}, .correlation_id = 1};
      Octets bytes(meta_bytes(meta, nullptr));
      write_meta(bytes.data(), meta, nullptr);
      bytes = bytes + vectors::hex("28 ffffffffffffffffff01");
      request = header(BaiduStdFrameKind::rpc, static_cast<std::uint32_t>(bytes.size()),
                       static_cast<std::uint32_t>(bytes.size())) +
                bytes;
    }
    socket.send(request);
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->error_code, 1003) << size;
  }
}

TEST_F(BaiduStd, FieldsAboveALimitAreRefusedWithTheirSize) {
  RawSocket socket = connected();
  const Answer long_key = ask(socket, {.fields = {{std::string(256, 'k'), "v"}}});
  EXPECT_EQ(long_key.error_code, 1003);
  EXPECT_EQ(long_key.error_text,
            "user_fields: metadata of 1 entry and 260 bytes, with a key of 256 bytes, exceeds a limit: send at most "
            "64 entries, 65535 bytes in all and keys of 255 bytes");
  const Answer many = ask(socket, {.meta = {.request = RequestMeta{.log_id = 7}}, .fields = Metadata(64, {"k", "v"})});
  EXPECT_NE(many.error_text.find("of 65 entries and "), std::string::npos) << many.error_text;
  EXPECT_EQ(ask(socket, {.fields = Metadata(64, {"k", "v"})}).error_code, 0);
}

TEST_F(BaiduStd, BombsEndAtTheMessageLimit) {
  RawSocket socket = connected();
  const std::string zeros(2 * message_bytes_max, '\0');
  for (const Compression type : {Compression::snappy, Compression::gzip, Compression::zlib}) {
    const Buffer packed = *compress(type, as_bytes(zeros));
    const Answer answer =
        ask(socket, {.data = packed.text(), .meta = {.compress_type = static_cast<std::int32_t>(type)}});
    EXPECT_EQ(answer.error_code, 1003);
    EXPECT_NE(answer.error_text.find("message_bytes_max"), std::string::npos) << answer.error_text;
  }
}

TEST_F(BaiduStd, CallsAreBoundedOnEachConnection) {
  RawSocket socket = connected();
  for (std::size_t i = 0; i < calls_max; ++i) {
    socket.send(bytes_of({.method = "Wait", .id = static_cast<std::int64_t>(i)}));
  }
  const Answer answer = ask(socket, {.id = 100});
  EXPECT_EQ(answer.id, 100);
  EXPECT_EQ(answer.error_code, 2004);
  RawSocket other = connected();
  EXPECT_EQ(ask(other, {}).error_code, 0);
}

TEST_F(BaiduStd, RequestsThatDoNotFitIntoMemoryAreRefused) {
  RawSocket socket = connected();
  // Calls that wait keep their requests; the connection's share is 4 MiB.
  const std::string large = text_of(1'000'000);
  std::size_t refused = 0;
  for (std::int64_t i = 0; i < 8; ++i) socket.send(bytes_of({.method = "Wait", .id = i, .data = large}));
  socket.send(bytes_of({.id = 100, .data = "small"}));
  for (;;) {
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer);
    if (answer->id == 100) break;
    EXPECT_EQ(answer->error_code, 2004);
    ++refused;
  }
  EXPECT_GE(refused, 3U);
}

TEST_F(BaiduStd, FramesThatNeverEndHoldLittleMemory) {
  std::vector<RawSocket> sockets;
  for (int i = 0; i < 100; ++i) {
    RawSocket& socket = sockets.emplace_back(connected());
    socket.send(header(BaiduStdFrameKind::rpc, message_bytes_max, 20) + Octets(100));
  }
  ASSERT_TRUE(soon([&] { return server->counters().connections_open == 101; }));
  EXPECT_LE(server->counters().receive_bytes, 100U * 64 * 1024);
}

TEST_F(BaiduStd, AClientThatDoesNotReadIsNotReadEither) {
  RawSocket socket = connected();
  const std::string data = text_of(100'000);
  const Octets request = bytes_of({.data = data});
  // The kernel takes some MiB, and send_backlog_bytes_max is 256 KiB. A server that reads on would take all.
  std::size_t sent = 0;
  for (int stalls = 0; stalls < 50 && sent < (std::size_t{256} << 20);) {
    const std::size_t now = socket.send_some(request);
    sent += now;
    stalls = now == 0 ? stalls + 1 : 0;
    if (now == 0) std::this_thread::sleep_for(1ms);
    if (now != 0 && now != request.size()) {
      std::size_t rest = now;
      while (rest != request.size() && stalls < 50) {
        const std::size_t more = socket.send_some(Bytes(request).subspan(rest));
        rest += more;
        sent += more;
        stalls = more == 0 ? stalls + 1 : 0;
        if (more == 0) std::this_thread::sleep_for(1ms);
      }
    }
  }
  EXPECT_LT(sent, std::size_t{256} << 20);
  EXPECT_TRUE(good_client->sees_calls(20));
}

TEST_F(BaiduStd, RefusalsToAClientThatDoesNotReadAreBounded) {
  RawSocket socket = connected();
  Octets requests;
  for (int i = 0; i < 500; ++i) requests = requests + bytes_of({.method = "Nobody", .data = ""});
  std::size_t sent = 0;
  for (int stalls = 0; stalls < 50 && sent < (std::size_t{256} << 20);) {
    const std::size_t now = socket.send_some(requests);
    sent += now;
    stalls = now == 0 ? stalls + 1 : 0;
    if (now == 0) std::this_thread::sleep_for(1ms);
  }
  EXPECT_LT(sent, std::size_t{256} << 20);
}

}  // namespace
}  // namespace hawser::protocol::baidu_std
