#include <limits>
#include <string>

#include "tests/baidu_std/fixture.h"

// Streams of calls: frames with the magic STRM.
namespace hawser::protocol::baidu_std {
namespace {

constexpr std::int64_t client_id = 77;

// Opens a stream of test.Raw/`method`. Returns the server's id of it.
std::int64_t open(RawSocket& socket, std::string_view method, const StreamSettings& settings = {client_id, true, true},
                  std::int64_t id = 1) {
  socket.send(bytes_of({.method = method, .id = id, .data = "", .meta = {.stream = settings}}));
  const std::optional<Answer> frame = receive_answer(socket);
  if (!frame || frame->kind != BaiduStdFrameKind::stream || frame->frame.type != StreamFrameType::data) {
    ADD_FAILURE() << "the answer is not a DATA frame";
    return 0;
  }
  EXPECT_EQ(frame->frame.stream_id, settings.stream_id);
  const Answer reply = parse_answer(octets(frame->data));
  EXPECT_EQ(reply.id, id);
  EXPECT_EQ(reply.error_code, 0) << reply.error_text;
  EXPECT_TRUE(reply.stream);
  if (!reply.stream) return 0;
  EXPECT_EQ(reply.stream->stream_id, frame->frame.source_stream_id);
  EXPECT_TRUE(reply.stream->need_feedback);
  return reply.stream->stream_id;
}

Octets data(std::int64_t to, std::string_view text, bool continued = false, std::int64_t from = client_id) {
  return stream_frame({to, from, StreamFrameType::data, continued}, text);
}

// Returns the next frame that is not a FEEDBACK, and the last value that FEEDBACK reported before it.
Answer next_frame(RawSocket& socket, std::int64_t* consumed = nullptr) {
  for (;;) {
    const std::optional<Answer> frame = receive_answer(socket);
    if (!frame) {
      ADD_FAILURE() << "the server sent no frame";
      return {};
    }
    if (frame->kind != BaiduStdFrameKind::stream || frame->frame.type != StreamFrameType::feedback) return *frame;
    if (consumed != nullptr) *consumed = frame->frame.consumed_size;
  }
}

TEST_F(BaiduStd, AStreamIsOpenedByAReplyWithinADataFrame) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Stream");
  socket.send(data(stream, "one") + data(stream, "") + data(stream, "two"));
  for (const std::string_view expected : {"one", "", "two"}) {
    const Answer frame = next_frame(socket);
    EXPECT_EQ(frame.frame.type, StreamFrameType::data);
    EXPECT_EQ(frame.frame.stream_id, client_id);
    EXPECT_EQ(frame.frame.source_stream_id, stream);
    EXPECT_EQ(frame.data, expected);
  }
  // The result is the last message, and CLOSE ends the stream.
  socket.send(data(stream, "stop"));
  EXPECT_EQ(next_frame(socket).data, "end");
  EXPECT_EQ(next_frame(socket).frame.type, StreamFrameType::close);
  EXPECT_EQ(ask(socket, {.id = 2}).data, "hello");
}

TEST_F(BaiduStd, TheClientClosesAStream) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Stream");
  socket.send(stream_frame({stream, client_id, StreamFrameType::close}));
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
  // Frames for a stream that has ended are answered by RST, but not those that end or acknowledge.
  socket.send(stream_frame({stream, client_id, StreamFrameType::close}) +
              stream_frame({stream, client_id, StreamFrameType::reset}) +
              stream_frame({stream, client_id, StreamFrameType::feedback}) + data(stream, "late"));
  const Answer reset = next_frame(socket);
  EXPECT_EQ(reset.frame.type, StreamFrameType::reset);
  EXPECT_EQ(reset.frame.stream_id, client_id);
}

TEST_F(BaiduStd, TheTimeoutOfTheRequestDoesNotEndTheStream) {
  RawSocket socket = connected();
  const StreamSettings settings{client_id, false, true};
  const Answer opened = ask(
      socket, {.method = "Stream", .data = "", .meta = {.request = RequestMeta{.timeout_ms = 1}, .stream = settings}});
  std::this_thread::sleep_for(20ms);
  socket.send(data(opened.frame.source_stream_id, "still here"));
  EXPECT_EQ(next_frame(socket).data, "still here");
}

TEST_F(BaiduStd, TheClientResetsAStream) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Lazy");
  socket.send(stream_frame({stream, client_id, StreamFrameType::reset}));
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
}

TEST_F(BaiduStd, AFailingHandlerResetsTheStream) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Stream");
  socket.send(data(stream, "fail"));
  EXPECT_EQ(next_frame(socket).frame.type, StreamFrameType::reset);
}

TEST_F(BaiduStd, ARefusedStreamIsAnsweredWithinADataFrameToo) {
  RawSocket socket = connected();
  const auto refused = [&](const Call& call, std::int32_t code) {
    const Answer frame = ask(socket, call);
    ASSERT_EQ(frame.kind, BaiduStdFrameKind::stream);
    EXPECT_EQ(frame.frame.stream_id, client_id);
    EXPECT_EQ(frame.frame.source_stream_id, -1);
    const Answer reply = parse_answer(octets(frame.data));
    EXPECT_EQ(reply.error_code, code) << reply.error_text;
    EXPECT_FALSE(reply.stream);
  };
  const StreamSettings settings{client_id, true, true};
  refused({.method = "Nobody", .meta = {.stream = settings}}, 1002);
  refused({.method = "Stream", .data = "refuse", .meta = {.stream = settings}}, 1003);
  refused({.method = "Stream", .meta = {.stream = StreamSettings{client_id, true, false}}}, 1003);
  // A method without a stream answers, and does not accept the stream.
  const Answer frame = ask(socket, {.meta = {.stream = settings}});
  ASSERT_EQ(frame.kind, BaiduStdFrameKind::stream);
  const Answer reply = parse_answer(octets(frame.data));
  EXPECT_EQ(reply.data, "hello");
  EXPECT_FALSE(reply.stream);
  // A method with a stream needs one.
  EXPECT_EQ(ask(socket, {.method = "Stream"}).error_code, 1003);
}

TEST_F(BaiduStd, MessagesInSeveralFrames) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Stream");
  std::string whole;
  for (const std::size_t size : {3UZ, 0UZ, 100'000UZ, 5UZ}) {
    const std::string part = text_of(size);
    whole += part;
    socket.send(data(stream, part, size != 5));
  }
  const Answer frame = next_frame(socket);
  EXPECT_TRUE(frame.data == whole) << frame.data.size();
  socket.send(data(stream, "stop"));
}

TEST_F(BaiduStd, FeedbackIsCumulative) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Stream");
  std::int64_t consumed = 0;
  std::int64_t sent = 0;
  for (int i = 0; i < 10; ++i) {
    const std::string item = text_of(static_cast<std::size_t>(i) * 7000);
    socket.send(data(stream, item));
    sent += static_cast<std::int64_t>(item.size());
    const std::int64_t before = consumed;
    EXPECT_TRUE(next_frame(socket, &consumed).data == item);
    EXPECT_GE(consumed, before);
    // The client has read all, so that it may send more than 2 MiB if it acknowledges.
    socket.send(stream_frame({stream, client_id, StreamFrameType::feedback, false, sent}));
  }
  EXPECT_EQ(consumed, sent);
  socket.send(data(stream, "stop"));
  EXPECT_EQ(next_frame(socket).data, "end");
}

TEST_F(BaiduStd, AClientThatNeedsNoFeedbackGetsNone) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Stream", {client_id, false, true});
  socket.send(data(stream, "one") + data(stream, "stop"));
  for (const std::string_view expected : {"one", "end"}) {
    const std::optional<Answer> frame = receive_answer(socket);
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->data, expected);
  }
}

TEST_F(BaiduStd, AWriterStopsUntilTheClientHasConsumed) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Pour");
  // The default buffer is 2 MiB. The last message may pass it.
  constexpr std::int64_t buffer = 2 << 20;
  std::int64_t received = 0;
  while (received < buffer) received += static_cast<std::int64_t>(next_frame(socket).data.size());
  EXPECT_LT(received, buffer + 1000);
  // Other calls are answered, and nothing of the stream comes before their answer.
  EXPECT_EQ(ask(socket, {.id = 2}).data, "hello");
  socket.send(stream_frame({stream, client_id, StreamFrameType::feedback, false, received}));
  EXPECT_EQ(next_frame(socket).data.size(), 1000U);
  socket.send(stream_frame({stream, client_id, StreamFrameType::close}));
}

TEST_F(BaiduStd, ManyStreamsOnOneConnection) {
  RawSocket socket = connected();
  std::vector<std::int64_t> streams;
  for (std::int64_t i = 0; i < 10; ++i) streams.push_back(open(socket, "Stream", {100 + i, false, true}, i));
  for (std::int64_t i = 0; i < 10; ++i) socket.send(data(streams[static_cast<std::size_t>(i)], std::to_string(i)));
  for (std::int64_t i = 0; i < 10; ++i) {
    const Answer frame = next_frame(socket);
    EXPECT_EQ(frame.data, std::to_string(frame.frame.stream_id - 100));
  }
}

// ---- Hostile clients ----

TEST_F(BaiduStd, FeedbackForBytesThatWereNotSentEndsTheConnection) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Stream");
  socket.send(stream_frame({stream, client_id, StreamFrameType::feedback, false, 1}));
  EXPECT_TRUE(socket.closed_by_peer());
}

// Computing with them must not overflow.
TEST_F(BaiduStd, IdsAndFeedbackAtTheirExtremes) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Stream");
  for (const std::int64_t number : {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(),
                                    std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 32, stream + 1}) {
    socket.send(stream_frame({number, client_id, StreamFrameType::feedback, false, 1}));
    socket.send(stream_frame({number, client_id, StreamFrameType::data}, "nobody's"));
    const Answer frame = next_frame(socket);
    EXPECT_EQ(frame.frame.type, StreamFrameType::reset) << number;
    EXPECT_EQ(frame.frame.source_stream_id, number);
  }
  socket.send(stream_frame({stream, client_id, StreamFrameType::data}, "item"));
  EXPECT_EQ(next_frame(socket).data, "item");
  socket.send(stream_frame({stream, client_id, StreamFrameType::feedback, false, 4}));
  for (const std::int64_t consumed : {std::numeric_limits<std::int64_t>::min(), std::int64_t{0}, std::int64_t{4}}) {
    socket.send(stream_frame({stream, client_id, StreamFrameType::feedback, false, consumed}));
  }
  socket.send(bytes_of({.id = 7}));
  EXPECT_EQ(next_frame(socket).id, 7);
}

TEST_F(BaiduStd, AStreamThatNobodyReadsIsResetWhenItsMemoryIsUsedUp) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Lazy");
  const Octets items = data(stream, text_of(100'000)) + data(stream, text_of(1000)) + data(stream, "");
  // The connection's share is 4 MiB.
  for (int i = 0; i < 60; ++i) socket.send(items);
  EXPECT_EQ(next_frame(socket).frame.type, StreamFrameType::reset);
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
  EXPECT_GE(server->counters().memory_refusals, 1U);
}

// Sends empty items without an end. The server refuses one and resets the stream. If there is also no memory for the
// connection's receive block then, the connection ends, perhaps before the frame.
void expect_refused(RawSocket& socket, const Server& server, const Octets& item) {
  Octets items;
  for (int i = 0; i < 1000; ++i) items = items + item;
  for (int i = 0; i < 60; ++i) {
    if (!socket.send(items)) break;
  }
  EXPECT_TRUE(soon([&] { return server.counters().memory_refusals != 0; }));
  EXPECT_LE(server.counters().receive_bytes, 5U << 20);
  for (;;) {
    const std::optional<Answer> frame = receive_answer(socket);
    if (!frame) {
      EXPECT_TRUE(socket.closed_by_peer());
      break;
    }
    if (frame->kind == BaiduStdFrameKind::stream && frame->frame.type == StreamFrameType::feedback) continue;
    EXPECT_EQ(frame->frame.type, StreamFrameType::reset);
    break;
  }
}

TEST_F(BaiduStd, EmptyItemsAreCharged) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Lazy");
  expect_refused(socket, *server, data(stream, ""));
}

TEST_F(BaiduStd, AnItemWithoutAnEndIsReset) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Stream");
  const Octets part = data(stream, text_of(300'000), true);
  for (int i = 0; i < 8; ++i) socket.send(part);
  EXPECT_EQ(next_frame(socket).frame.type, StreamFrameType::reset);
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
}

TEST_F(BaiduStd, EmptyPartsWithoutAnEndAreReset) {
  RawSocket socket = connected();
  const std::int64_t stream = open(socket, "Stream");
  expect_refused(socket, *server, data(stream, "", true));
}

TEST_F(BaiduStd, AClientThatDoesNotReadItsStreamStopsTheWriter) {
  RawSocket socket = connected();
  const std::uint64_t before = poured.load();
  socket.send(bytes_of({.method = "Pour", .data = "", .meta = {.stream = StreamSettings{client_id, true, true}}}));
  // The backlog stops the writer before the stream's buffer does.
  ASSERT_TRUE(soon([&] { return poured.load() > before; }));
  EXPECT_TRUE(good_client->sees_calls(50));
  socket.close();
}

}  // namespace
}  // namespace hawser::protocol::baidu_std
