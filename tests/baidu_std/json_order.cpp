#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/interceptor.h"
#include "tests/baidu_std/fixture.h"

// JSON is converted behind the interceptors.
namespace hawser::protocol::baidu_std {
namespace {

const std::string malformed(1'000'000, 'x');

// Calls of baidu_std without the metadata "x-token" are refused.
Task<Result<void>> token_wanted(IncomingCall& call, Next next) {
  if (call.protocol() == "baidu_std" && !call.metadata().find("x-token")) {
    co_return fail(ErrorCode::unauthenticated, "send a token");
  }
  const Result<void> outcome = co_await next();
  if (!outcome && outcome.error().text == "no bracket") wrong_json_seen.fetch_add(1);
  co_return outcome;
}

class BaiduStdJson : public BaiduStd {
 protected:
  explicit BaiduStdJson(bool guarded)
      : BaiduStd(BaiduStdOptions{}, ServerOptions{}, [guarded](Server& to) {
          if (guarded) to.use(token_wanted);
        }) {
    conversions = 0;
    wrong_json_seen = 0;
  }
  static Call call_of(std::string_view data, bool with_token, std::string_view method = "Echo") {
    Call call{.method = method, .data = data, .meta = {.content_type = 1}};
    if (with_token) call.fields = {{"x-token", "yes"}};
    return call;
  }
};

class BaiduStdJsonGuarded : public BaiduStdJson {
 protected:
  BaiduStdJsonGuarded() : BaiduStdJson(true) {}
};

// With interceptors and without.
class BaiduStdJsonOrder : public BaiduStdJson, public ::testing::WithParamInterface<bool> {
 protected:
  BaiduStdJsonOrder() : BaiduStdJson(GetParam()) {}
};

TEST_F(BaiduStdJsonGuarded, RefusedCallsAreNotConverted) {
  RawSocket socket = connected();
  for (const std::string& data : {malformed, std::string("malformed"), std::string("[good]")}) {
    EXPECT_EQ(ask(socket, call_of(data, false)).error_code, 1004) << data.size();
  }
  EXPECT_EQ(conversions, 0);
}

// The data of a caller that is refused is not decompressed: it has none of the formats.
TEST_F(BaiduStdJsonGuarded, RefusedCallsAreNotDecompressed) {
  RawSocket socket = connected();
  for (const Compression type : {Compression::snappy, Compression::gzip, Compression::zlib}) {
    for (const std::string& data : {std::string("junk"), std::string(100'000, 'j')}) {
      for (const std::int32_t content : {0, 1}) {
        Call call = call_of(data, false);
        call.meta = {.compress_type = static_cast<std::int32_t>(type), .content_type = content};
        EXPECT_EQ(ask(socket, call).error_code, 1004) << data.size();
        call.fields = {{"x-token", "yes"}};
        EXPECT_EQ(ask(socket, call).error_code, 1003) << data.size();
      }
    }
    const std::string json = "[" + std::string(300'000, 'y') + "]";
    const Buffer packed = *compress(type, as_bytes(json));
    Call call = call_of(packed.text(), true);
    call.meta.compress_type = static_cast<std::int32_t>(type);
    EXPECT_EQ(ask(socket, call).data, json);
  }
  EXPECT_EQ(conversions, 3);
}

TEST_P(BaiduStdJsonOrder, AcceptedCallsAreConverted) {
  RawSocket socket = connected();
  const std::string json = "[" + std::string(300'000, 'y') + "]";
  for (const char* method : {"Echo", "Later"}) {
    for (const std::string& data : {json, std::string("[good]")}) {
      const Answer answer = ask(socket, call_of(data, true, method));
      EXPECT_EQ(answer.error_code, 0) << answer.error_text;
      EXPECT_EQ(answer.data, data);
    }
  }
  EXPECT_EQ(conversions, 4);
}

TEST_P(BaiduStdJsonOrder, AnErrorOfTheConversionIsTheOutcome) {
  RawSocket socket = connected();
  for (const std::string& data : {malformed, std::string("malformed")}) {
    const Answer answer = ask(socket, call_of(data, true));
    EXPECT_EQ(answer.error_code, 1003);
    EXPECT_EQ(answer.error_text, "no bracket");
  }
  EXPECT_EQ(wrong_json_seen, GetParam() ? 2 : 0);
  EXPECT_EQ(ask(socket, call_of("[good]", true)).data, "[good]");
}

// The length of what zlib makes is not known: as much is charged as it could be. Good clients wait for the memory.
TEST_F(BaiduStdJsonGuarded, BodiesOfUnknownLengthWaitForMemory) {
  Call call{.method = "Fail", .data = "", .fields = {{"x-token", "yes"}}};
  constexpr std::int32_t bytes = 1'900'000;  // The handler fails with this number.
  const Buffer packed = *compress(Compression::zlib, as_bytes(std::string(bytes, 'y')));
  call.data = packed.text();
  call.meta.compress_type = static_cast<std::int32_t>(Compression::zlib);
  std::vector<RawSocket> sockets;
  for (int i = 0; i < 40; ++i) {
    sockets.push_back(connected());
    sockets.back().send(bytes_of(call));
  }
  for (RawSocket& socket : sockets) {
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->error_code, bytes) << answer->error_text;
  }
}

class BaiduStdJsonOpen : public BaiduStdJson {
 protected:
  BaiduStdJsonOpen() : BaiduStdJson(false) {}
};

// So do good clients whose bodies are short.
TEST_F(BaiduStdJsonOpen, ShortBodiesWaitForMemory) {
  const auto used = [&] { return server->counters().receive_bytes; };
  std::vector<RawSocket> sockets;
  gate_closed = true;
  // These leave about 30,000 bytes: enough for a short body, and not for its conversion.
  for (const std::size_t bytes : {900'000U, 900'000U, 900'000U, 109'000U, 14'000U}) {
    sockets.push_back(connected());
    sockets.back().send(bytes_of(call_of("[gate" + std::string(bytes, 'y') + "]", true)));
  }
  EXPECT_TRUE(soon([&] { return used() > 6 * message_bytes_max - 60'000; })) << used();
  sockets.push_back(connected());
  constexpr std::int32_t unpacked = 40'000;  // The handler fails with this number.
  const Buffer packed = *compress(Compression::zlib, as_bytes(std::string(unpacked, 'y')));
  Call short_call{.method = "Fail", .data = packed.text(), .fields = {{"x-token", "yes"}}};
  short_call.meta.compress_type = static_cast<std::int32_t>(Compression::zlib);
  sockets.back().send(bytes_of(short_call));
  RawSocket other = connected();
  EXPECT_EQ(ask(other, call_of("[good]", true)).data, "[good]");
  gate_closed = false;
  gate_closed.notify_all();
  for (RawSocket& socket : sockets) {
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->error_code, &socket == &sockets.back() ? unpacked : 0) << answer->error_text;
  }
}

// Interceptors that wait have not allowed the call yet: the reply that opens its stream follows them.
class BaiduStdSlowlyGuarded : public BaiduStd {
 protected:
  BaiduStdSlowlyGuarded()
      : BaiduStd(BaiduStdOptions{}, ServerOptions{}, [](Server& to) {
          to.use([](IncomingCall& call, Next next) -> Task<Result<void>> {
            co_await call.loop().sleep(1ms);
            co_return co_await token_wanted(call, std::move(next));
          });
        }) {}
};

TEST_F(BaiduStdSlowlyGuarded, StreamsAreOpenedBehindTheInterceptors) {
  RawSocket socket = connected();
  Call call{.method = "Stream", .data = "good", .meta = {.stream = StreamSettings{77, true, true}}};
  const Answer refusal = ask(socket, call);
  EXPECT_EQ(refusal.kind, BaiduStdFrameKind::stream);
  EXPECT_EQ(parse_answer(octets(refusal.data)).error_code, 1004);
  RawSocket allowed = connected();
  call.fields = {{"x-token", "yes"}};
  const Answer reply = parse_answer(octets(ask(allowed, call).data));
  EXPECT_EQ(reply.error_code, 0) << reply.error_text;
  EXPECT_TRUE(reply.stream);
}

// The reply that opens the stream is not sent before the JSON has been converted.
TEST_P(BaiduStdJsonOrder, StreamsAreOpenedBehindTheConversion) {
  for (const std::string& data : {malformed, std::string("malformed")}) {
    RawSocket socket = connected();
    Call call = call_of(data, true, "Stream");
    call.meta.stream = StreamSettings{77, true, true};
    const Answer frame = ask(socket, call);
    EXPECT_EQ(frame.kind, BaiduStdFrameKind::stream);
    const Answer reply = parse_answer(octets(frame.data));
    EXPECT_EQ(reply.error_code, 1003) << data.size();
    EXPECT_EQ(reply.error_text, "no bracket");
  }
  const std::string json = "[" + std::string(300'000, 'y') + "]";
  for (const std::string& data : {json, std::string("[good]")}) {
    RawSocket socket = connected();
    Call call = call_of(data, true, "Stream");
    call.meta.stream = StreamSettings{77, true, true};
    const Answer frame = ask(socket, call);
    const Answer reply = parse_answer(octets(frame.data));
    EXPECT_EQ(reply.error_code, 0) << reply.error_text;
    ASSERT_TRUE(reply.stream);
    socket.send(stream_frame({reply.stream->stream_id, 77, StreamFrameType::data}, "item"));
    std::optional<Answer> item = receive_answer(socket);
    while (item && item->frame.type == StreamFrameType::feedback) item = receive_answer(socket);
    ASSERT_TRUE(item);
    EXPECT_EQ(item->data, "item");
  }
}

// An answer to a call with a stream whose handler does not wait.
TEST_P(BaiduStdJsonOrder, AStreamOfACallThatIsAnsweredAtOnceIsNotOpened) {
  RawSocket socket = connected();
  Call call = call_of("[refuse]", true, "Stream");
  call.meta.stream = StreamSettings{77, true, true};
  const Answer frame = ask(socket, call);
  const Answer reply = parse_answer(octets(frame.data));
  EXPECT_EQ(reply.error_code, 1003);
  EXPECT_EQ(reply.error_text, "refused at once");
}

INSTANTIATE_TEST_SUITE_P(Servers, BaiduStdJsonOrder, ::testing::Bool(),
                         [](const auto& guarded) { return std::string(guarded.param ? "guarded" : "open"); });

}  // namespace
}  // namespace hawser::protocol::baidu_std
