#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <deque>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/protobuf_stream.h"
#include "tests/baidu_std/fixture.h"
#include "tests/pb_channel/stream_fixture.h"

// Streams of hawser::pb: StreamCreate() and StreamAccept().
namespace hawser::pb {

// The method of StreamOffice as a client with coroutines declares it.
inline Task<Result<protocol::baidu_std::RawMessage>> deliver_with_stream(Context&,
                                                                         const protocol::baidu_std::RawMessage&,
                                                                         Reader<protocol::baidu_std::RawMessage>,
                                                                         Writer<protocol::baidu_std::RawMessage>) {
  co_return protocol::baidu_std::RawMessage{};
}

}  // namespace hawser::pb

template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::pb::deliver_with_stream> =
    "probe.PostService/Deliver";

namespace hawser::pb {
namespace {

TEST_F(PbStreams, MessagesGoBothWaysInOrder) {
  Inbox inbox;
  StreamOptions small = with(inbox);
  small.max_buf_size = 100'000;
  small.messages_in_batch = 7;
  StreamId stream = INVALID_STREAM_ID;
  ASSERT_EQ(open("echo", stream, small), 0);
  std::vector<std::string> sent;
  for (std::size_t i = 0; i < 2000; ++i) {
    sent.push_back(i % 100 == 0 ? text_of(300'000) : i % 3 == 0 ? "" : std::to_string(i));
    const IOBuf message = message_of(sent.back());
    int error = 0;
    while ((error = StreamWrite(stream, message)) == EAGAIN) {
      EXPECT_EQ(StreamWait(stream, nullptr), 0);
    }
    ASSERT_EQ(error, 0);
  }
  ASSERT_TRUE(inbox.wait_for(sent.size()));
  EXPECT_TRUE(inbox.messages() == sent);
  EXPECT_LE(inbox.largest_batch(), 7U);
  EXPECT_EQ(office.echo.closed, 0);
  EXPECT_EQ(StreamClose(stream), 0);
  EXPECT_TRUE(inbox.wait_until_closed());
  EXPECT_TRUE(soon([&] { return office.echo.closed == 1; }));
  EXPECT_EQ(StreamClose(stream), EINVAL);
  EXPECT_EQ(StreamWrite(stream, message_of("late")), EINVAL);
  EXPECT_EQ(StreamWait(stream, nullptr), EINVAL);
}

// Messages that were written before the end arrive, although nobody waits for them.
TEST_F(PbStreams, TheClientClosesAfterItsLastMessage) {
  Inbox inbox;
  StreamId stream = INVALID_STREAM_ID;
  ASSERT_EQ(open("inbox", stream, with(inbox)), 0);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(StreamWrite(stream, message_of(std::to_string(i))), 0);
  EXPECT_EQ(StreamClose(stream), 0);
  EXPECT_TRUE(office.inbox.wait_until_closed());
  const std::vector<std::string> messages = office.inbox.messages();
  ASSERT_EQ(messages.size(), 1000U);
  EXPECT_EQ(messages.back(), "999");
  EXPECT_TRUE(inbox.wait_until_closed());
}

TEST_F(PbStreams, TheServiceWritesAndCloses) {
  Inbox inbox;
  StreamId stream = INVALID_STREAM_ID;
  ASSERT_EQ(open("write first", stream, with(inbox)), 0);
  ASSERT_TRUE(inbox.wait_for(1));
  EXPECT_EQ(StreamWrite(stream, message_of("two")), 0);
  EXPECT_EQ(StreamWrite(stream, message_of("close")), 0);
  EXPECT_TRUE(inbox.wait_until_closed());
  EXPECT_EQ(inbox.messages(), (std::vector<std::string>{"first", "two"}));
  EXPECT_TRUE(soon([&] { return office.echo.closed == 1; }));

  Inbox second;
  ASSERT_EQ(open("close first", stream, with(second)), 0);
  EXPECT_TRUE(second.wait_until_closed());
  EXPECT_EQ(second.messages(), (std::vector<std::string>{"only"}));
}

TEST_F(PbStreams, CallsThatOpenNoStream) {
  StreamId stream = INVALID_STREAM_ID;
  {
    Inbox inbox;
    EXPECT_EQ(open("do not accept", stream, with(inbox)), EREQUEST);
    EXPECT_TRUE(inbox.wait_until_closed());
  }
  {
    Inbox inbox;
    EXPECT_EQ(open("accept and fail", stream, with(inbox)), 18);
    EXPECT_TRUE(inbox.wait_until_closed());
    EXPECT_TRUE(soon([&] { return office.echo.closed == 1; }));
    EXPECT_EQ(office.echo.on_loops, 0);
  }
  {
    Inbox inbox;
    Controller controller;
    const StreamOptions stream_options = with(inbox);
    EXPECT_EQ(StreamCreate(&stream, controller, &stream_options), 0);
    EXPECT_EQ(StreamCreate(&stream, controller, &stream_options), -1);
    EXPECT_EQ(StreamWrite(stream, message_of("waits")), 0);
    controller.Reset();
    EXPECT_TRUE(inbox.wait_until_closed());
    EXPECT_EQ(StreamWrite(stream, message_of("late")), EINVAL);
    EXPECT_EQ(StreamAccept(&stream, controller, &stream_options), -1);
  }
  {
    Inbox inbox;
    options.protocol = "hawser";
    channel = std::make_unique<Channel>();
    ASSERT_EQ(channel->Init(server->address(), &options), 0);
    EXPECT_EQ(open("echo", stream, with(inbox)), EREQUEST);
    EXPECT_TRUE(inbox.wait_until_closed());
  }
  {
    Inbox inbox;
    options.protocol = "baidu_std";
    channel = std::make_unique<Channel>();
    ASSERT_EQ(channel->Init("127.0.0.1:1", &options), 0);
    EXPECT_EQ(open("echo", stream, with(inbox)), EHOSTDOWN);
    EXPECT_TRUE(inbox.wait_until_closed());
  }
}

TEST_F(PbStreams, AStreamWithoutAHandler) {
  Inbox inbox;
  StreamId stream = INVALID_STREAM_ID;
  ASSERT_EQ(open("no handler", stream, with(inbox)), 0);
  EXPECT_EQ(StreamWrite(office.last_stream, message_of("pushed")), 0);
  ASSERT_TRUE(inbox.wait_for(1));
  EXPECT_EQ(StreamWrite(stream, message_of("unread")), 0);
  EXPECT_TRUE(inbox.wait_until_closed());
  EXPECT_TRUE(soon([&] { return StreamWrite(office.last_stream, message_of("x")) == EINVAL; }));

  ASSERT_EQ(open("inbox", stream, {}), 0);
  EXPECT_EQ(StreamWrite(stream, message_of("read")), 0);
  EXPECT_TRUE(office.inbox.wait_for(1));
  EXPECT_EQ(StreamClose(stream), 0);
  EXPECT_TRUE(office.inbox.wait_until_closed());
}

struct Outcome {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<int> error;

  static void on_writable(StreamId, void* argument, int error) {
    auto* const self = static_cast<Outcome*>(argument);
    const std::lock_guard lock(self->mutex);
    EXPECT_FALSE(self->error);
    self->error = error;
    self->changed.notify_all();
  }
  int wait() {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, patience, [&] { return error.has_value(); }));
    return error.value_or(-1);
  }
};

TEST_F(PbStreams, WaitsForRoom) {
  Inbox inbox;
  StreamId stream = INVALID_STREAM_ID;
  StreamOptions small = with(inbox);
  small.max_buf_size = 10'000;
  office.inbox.hold(true);
  ASSERT_EQ(open("inbox", stream, small), 0);
  Outcome at_once;
  StreamWait(stream, nullptr, &Outcome::on_writable, &at_once);
  EXPECT_EQ(at_once.wait(), 0);
  // The buffers between the two sides fill, because the service does not return from its handler.
  const IOBuf item = message_of(text_of(100'000));
  const timespec past = in(-1ms);
  // A clock of nanoseconds never shows this time.
  const timespec latest = {std::numeric_limits<std::time_t>::max(), 999'999'999};
  std::deque<Outcome> without_end;
  std::size_t written = 0;
  for (int result = 0; result != ETIMEDOUT;) {
    while (StreamWrite(stream, item) == 0) ASSERT_LT(++written, 1000U);
    StreamWait(stream, &latest, &Outcome::on_writable, &without_end.emplace_back());
    Outcome late;
    StreamWait(stream, &past, &Outcome::on_writable, &late);
    result = late.wait();
    EXPECT_TRUE(result == 0 || result == ETIMEDOUT) << result;
  }
  Outcome room;
  StreamWait(stream, nullptr, &Outcome::on_writable, &room);
  office.inbox.hold(false);
  EXPECT_EQ(room.wait(), 0);
  for (Outcome& one : without_end) EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(StreamWait(stream, nullptr), 0);
  EXPECT_TRUE(office.inbox.wait_for(written));
  EXPECT_EQ(StreamClose(stream), 0);
  EXPECT_TRUE(inbox.wait_until_closed());
  EXPECT_TRUE(office.inbox.wait_until_closed());
  Outcome unknown;
  StreamWait(stream, nullptr, &Outcome::on_writable, &unknown);
  EXPECT_EQ(unknown.wait(), EINVAL);
}

// A stream that is not open sends nothing.
TEST_F(PbStreams, WaitsForRoomThatDoesNotCome) {
  Inbox inbox;
  StreamOptions small = with(inbox);
  small.max_buf_size = 1;
  Controller controller;
  StreamId stream = INVALID_STREAM_ID;
  ASSERT_EQ(StreamCreate(&stream, controller, &small), 0);
  EXPECT_EQ(StreamWrite(stream, message_of("one")), 0);
  EXPECT_EQ(StreamWrite(stream, message_of("two")), EAGAIN);
  const timespec due = in(10ms);
  EXPECT_EQ(StreamWait(stream, &due), ETIMEDOUT);
  sync_wait([](StreamId id) -> Task<void> {
    EXPECT_EQ(StreamWait(id, nullptr), EDEADLK);
    co_return;
  }(stream));
  Outcome reset;
  StreamWait(stream, nullptr, &Outcome::on_writable, &reset);
  std::thread waiting([&] {
    const int result = StreamWait(stream, nullptr);
    EXPECT_TRUE(result == ECONNRESET || result == EINVAL) << result;
  });
  controller.Reset();
  EXPECT_EQ(reset.wait(), ECONNRESET);
  waiting.join();
  EXPECT_TRUE(inbox.wait_until_closed());
}

TEST_F(PbStreams, IdleStreams) {
  Inbox inbox;
  StreamId stream = INVALID_STREAM_ID;
  StreamOptions idle = with(inbox);
  idle.idle_timeout_ms = 10;
  ASSERT_EQ(open("echo", stream, idle), 0);
  EXPECT_TRUE(inbox.wait_for_idle(2));
  EXPECT_EQ(StreamWrite(stream, message_of("still open")), 0);
  EXPECT_TRUE(inbox.wait_for(1));
  EXPECT_EQ(StreamClose(stream), 0);
  EXPECT_TRUE(inbox.wait_until_closed());
}

TEST_F(PbStreams, AStreamOutlivesItsChannel) {
  Inbox inbox;
  StreamId stream = INVALID_STREAM_ID;
  ASSERT_EQ(open("echo", stream, with(inbox)), 0);
  channel.reset();
  EXPECT_EQ(StreamWrite(stream, message_of("one")), 0);
  EXPECT_TRUE(inbox.wait_for(1));
  EXPECT_EQ(StreamClose(stream), 0);
  EXPECT_TRUE(inbox.wait_until_closed());
  EXPECT_TRUE(soon([&] { return office.echo.closed == 1; }));
}

TEST_F(PbStreams, TheEndOfTheServerClosesStreams) {
  Inbox inbox;
  StreamId stream = INVALID_STREAM_ID;
  ASSERT_EQ(open("echo", stream, with(inbox)), 0);
  server->stop(Duration(0));
  server.reset();
  EXPECT_EQ(office.echo.closed, 1);
  EXPECT_TRUE(inbox.wait_until_closed());
  EXPECT_EQ(StreamWrite(stream, message_of("late")), EINVAL);
}

// More handlers block than a loop has threads for them.
TEST_F(PbStreams, HandlersThatBlock) {
  constexpr int streams = 10;
  std::vector<std::unique_ptr<Inbox>> inboxes;
  std::vector<StreamId> ids(streams, INVALID_STREAM_ID);
  for (int i = 0; i < streams; ++i) {
    inboxes.push_back(std::make_unique<Inbox>());
    inboxes.back()->hold(true);
    ASSERT_EQ(open("echo", ids[static_cast<std::size_t>(i)], with(*inboxes.back())), 0);
    EXPECT_EQ(StreamWrite(ids[static_cast<std::size_t>(i)], message_of("x")), 0);
  }
  for (const auto& inbox : inboxes) inbox->hold(false);
  for (const auto& inbox : inboxes) EXPECT_TRUE(inbox->wait_for(1));
  for (const StreamId id : ids) EXPECT_EQ(StreamClose(id), 0);
  for (const auto& inbox : inboxes) EXPECT_TRUE(inbox->wait_until_closed());
}

// Every thread for blocking work waits for room in a stream. The end of the connection frees them.
TEST_F(PbStreams, HandlersThatWaitEndWithTheConnection) {
  sync_wait([](PbStreams* test) -> Task<void> {
    BaiduStdClient client;
    auto connected = co_await client.connect(test->server->address());
    REQUIRE_OK(connected);
    const protocol::baidu_std::RawMessage request{
        "\x0a\x04"
        "echo"};  // Parcel::text.
    std::vector<StreamingCall<deliver_with_stream>> calls;
    for (int i = 0; i < 6; ++i) {
      auto call = co_await client.open<deliver_with_stream>(request);
      REQUIRE_OK(call);
      const protocol::baidu_std::RawMessage item{"item"};
      auto written_by = call->writer();  // The task refers to it.
      auto written = co_await written_by.write(item);
      REQUIRE_OK(written);
      auto same_by = call->reader();  // The task refers to it.
      auto same = co_await same_by.next();
      REQUIRE_OK(same);
      calls.push_back(std::move(*call));
    }
    // More than the service may have outstanding, 2 MiB, and than may wait there, 2 MiB too. Nobody reads it. The last
    // streams get no thread.
    const protocol::baidu_std::RawMessage item{text_of(100'000)};
    for (std::size_t i = 0; i < calls.size(); ++i) {
      for (int k = 0; k < (i < 4 ? 50 : 5); ++k) {
        auto written = co_await calls[i].writer().write(item);
        REQUIRE_OK(written);
      }
    }
    // The connection ends only when the handlers wait.
    const Result<bool> waited =
        co_await Loop::current()->offload([test] { return soon([&] { return test->office.echo.waiting >= 4; }); });
    EXPECT_TRUE(waited && *waited) << test->office.echo.waiting;
    client.close();
  }(this));
  EXPECT_TRUE(soon([&] { return office.echo.closed == 6; })) << office.echo.closed;
}

// Frames of streams in any order from a client that is played by hand, and connections that end at any time. Another
// client is served meanwhile, and every accepted stream is closed.
TEST_F(PbStreams, RandomFramesOfClients) {
  Inbox inbox;
  StreamId stream = INVALID_STREAM_ID;
  ASSERT_EQ(open("echo", stream, with(inbox)), 0);
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
    RawSocket socket = RawSocket::connected_to(server->address());
    const std::int64_t id = 1000 + seed;
    Octets bytes;
    const std::size_t requests = 1 + below(2);
    for (std::size_t k = 0; k < requests; ++k) {
      protocol::baidu_std::RpcMeta meta{.request = protocol::baidu_std::RequestMeta{.service = "probe.PostService"}};
      if (below(10) != 0)
        meta.stream = protocol::baidu_std::StreamSettings{id, below(2) == 0, below(3) != 0, below(2) == 0, {id + 1}};
      static constexpr std::string_view texts[] = {"echo",        "inbox",      "do not accept", "accept and fail",
                                                   "write first", "close first"};
      const std::string text(texts[below(std::size(texts))]);
      const std::string request = "\x0a" + std::string(1, static_cast<char>(text.size())) + text;
      bytes = bytes + protocol::baidu_std::bytes_of(
                          {.method = "Deliver", .id = 1 + static_cast<std::int64_t>(k), .data = request, .meta = meta});
    }
    // Most frames follow the reply, whose stream has the number of the call; others precede it.
    if (below(2) == 0) {
      socket.send(bytes);
      bytes.clear();
      static_cast<void>(socket.receive(protocol::baidu_std::FrameHeader::bytes));
    }
    for (std::size_t frames = below(30); frames != 0; --frames) {
      protocol::baidu_std::StreamFrameMeta meta{
          .stream_id = static_cast<std::int64_t>((below(2) << 16) | (1 + below(2))),
          .source_stream_id = id,
          .type = static_cast<protocol::baidu_std::StreamFrameType>(below(6)),
          .has_continuation = below(3) == 0};
      meta.consumed_size = static_cast<std::int64_t>(below(100));
      meta.result = below(4) == 0;
      bytes = bytes + protocol::baidu_std::stream_frame(meta, text_of(below(4) == 0 ? below(60'000) : below(20)));
    }
    socket.send(bytes);
    if (below(2) == 0) ::shutdown(socket.fd(), SHUT_WR);
    if (below(2) == 0) socket.reset();
    socket.close();
    ASSERT_EQ(StreamWrite(stream, message_of(std::to_string(seed))), 0);
    ASSERT_TRUE(inbox.wait_for(seed));
  }
  EXPECT_EQ(StreamClose(stream), 0);
  EXPECT_TRUE(inbox.wait_until_closed());
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
  // Every stream that was accepted had its on_closed().
  EXPECT_TRUE(soon([&] { return office.echo.closed + office.inbox.closed() == office.accepted; }));
}

// Threads open, use and close streams while others do; either side closes at any time.
TEST_F(PbStreams, SeveralThreads) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int round = 0; round < 25; ++round) {
        Inbox inbox;
        StreamId stream = INVALID_STREAM_ID;
        ASSERT_EQ(open("echo", stream, with(inbox)), 0);
        const unsigned messages = random() % 50;
        for (unsigned i = 0; i < messages; ++i) {
          if (StreamWrite(stream, message_of(text_of(random() % 10'000))) == EAGAIN) StreamWait(stream, nullptr);
        }
        if (random() % 2 == 0) {
          static_cast<void>(StreamWrite(stream, message_of("close")));
        } else {
          static_cast<void>(StreamClose(stream));
        }
        EXPECT_TRUE(inbox.wait_until_closed());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hawser::pb
