#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/interceptor.h"
#include "tests/pb_channel/stream_fixture.h"

// Calls of hawser::pb with several streams: extra_stream_ids.
namespace hawser::pb {
namespace {

class PbSeveralStreams : public PbStreams {
 public:
  // Calls with streams that have a handler each. Returns the controller's error code.
  int open_all(const std::string& text, StreamIds& streams, int count, StreamInputHandler& handler) {
    Controller controller;
    const StreamOptions stream_options = with(handler);
    EXPECT_EQ(StreamCreate(streams, count, controller, &stream_options), 0);
    EXPECT_EQ(streams.size(), static_cast<std::size_t>(count));
    probe::PostService_Stub stub(channel.get());
    probe::Parcel parcel;
    parcel.set_text(text);
    probe::Receipt receipt;
    stub.Deliver(&controller, &parcel, &receipt, nullptr);
    error_text = controller.ErrorText();
    return controller.ErrorCode();
  }
  std::string error_text;
};

// Keeps what comes apart by stream.
class Inboxes final : public StreamInputHandler {
 public:
  int on_received_messages(StreamId id, IOBuf* const messages[], std::size_t size) override {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < size; ++i) messages_[id].push_back(messages[i]->to_string());
    return 0;
  }
  void on_idle_timeout(StreamId) override {}
  void on_closed(StreamId id) override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(closed_.insert(id).second) << "a second end";
  }
  std::vector<std::string> of(StreamId id) {
    const std::lock_guard lock(mutex_);
    return messages_[id];
  }
  bool closed(StreamId id) {
    const std::lock_guard lock(mutex_);
    return closed_.contains(id);
  }
  std::size_t closed() {
    const std::lock_guard lock(mutex_);
    return closed_.size();
  }

 private:
  std::mutex mutex_;
  std::map<StreamId, std::vector<std::string>> messages_;
  std::set<StreamId> closed_;
};

TEST_F(PbSeveralStreams, EachStreamHasItsOwnMessagesAndEnd) {
  Inboxes inboxes;
  StreamIds streams;
  ASSERT_EQ(open_all("several", streams, 5, inboxes), 0) << error_text;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    for (int k = 0; k < 100; ++k) {
      ASSERT_EQ(StreamWrite(streams[i], message_of(std::to_string(i) + "/" + std::to_string(k))), 0);
    }
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    ASSERT_TRUE(soon([&] { return inboxes.of(streams[i]).size() == 101; })) << i;
    const std::vector<std::string> messages = inboxes.of(streams[i]);
    EXPECT_EQ(messages.front(), "stream " + std::to_string(i));
    for (int k = 0; k < 100; ++k) {
      EXPECT_EQ(messages[static_cast<std::size_t>(k) + 1], std::to_string(i) + "/" + std::to_string(k));
    }
  }
  // From both sides, the first stream in the midst. The others go on.
  EXPECT_EQ(StreamClose(streams[3]), 0);
  EXPECT_TRUE(soon([&] { return inboxes.closed(streams[3]); }));
  EXPECT_EQ(StreamWrite(streams[1], message_of("close")), 0);
  EXPECT_TRUE(soon([&] { return inboxes.closed(streams[1]); }));
  EXPECT_EQ(StreamClose(streams[0]), 0);
  EXPECT_TRUE(soon([&] { return inboxes.closed(streams[0]); }));
  EXPECT_EQ(inboxes.closed(), 3U);
  EXPECT_TRUE(soon([&] { return office.echo.closed == 3; }));
  for (const std::size_t left : {2U, 4U}) {
    EXPECT_EQ(StreamWrite(streams[left], message_of("still")), 0);
    EXPECT_TRUE(soon([&] { return inboxes.of(streams[left]).back() == "still"; }));
    EXPECT_EQ(server->counters().calls_in_flight, 1U);
    EXPECT_EQ(StreamClose(streams[left]), 0);
  }
  EXPECT_TRUE(soon([&] { return inboxes.closed() == 5; }));
  EXPECT_TRUE(soon([&] { return office.echo.closed == 5; }));
}

// Messages written before the call are sent when its streams are open. A stream may be closed before, too.
TEST_F(PbSeveralStreams, MessagesAndEndsBeforeTheStreamsAreOpen) {
  Inboxes inboxes;
  Controller controller;
  const StreamOptions stream_options = with(inboxes);
  StreamIds streams;
  ASSERT_EQ(StreamCreate(streams, 3, controller, &stream_options), 0);
  for (const StreamId stream : streams) EXPECT_EQ(StreamWrite(stream, message_of("early")), 0);
  EXPECT_EQ(StreamClose(streams[1]), 0);
  probe::PostService_Stub stub(channel.get());
  probe::Parcel parcel;
  parcel.set_text("several inbox");
  probe::Receipt receipt;
  stub.Deliver(&controller, &parcel, &receipt, nullptr);
  ASSERT_FALSE(controller.Failed()) << controller.ErrorText();
  EXPECT_TRUE(office.inbox.wait_for(3));
  EXPECT_TRUE(soon([&] { return inboxes.closed(streams[1]); }));
  EXPECT_TRUE(soon([&] { return inboxes.of(streams[2]).size() == 1; }));
  EXPECT_EQ(inboxes.closed(), 1U);
  EXPECT_EQ(StreamClose(streams[0]), 0);
  EXPECT_EQ(StreamClose(streams[2]), 0);
  EXPECT_TRUE(soon([&] { return inboxes.closed() == 3; }));
  EXPECT_TRUE(soon([&] { return office.inbox.closed() == 3; }));
}

TEST_F(PbSeveralStreams, WrongUse) {
  Inbox inbox;
  const StreamOptions stream_options = with(inbox);
  Controller controller;
  StreamIds streams;
  EXPECT_EQ(StreamCreate(streams, 0, controller, &stream_options), -1);
  EXPECT_EQ(StreamCreate(streams, streams_per_call_max + 1, controller, &stream_options), -1);
  StreamIds used{7};
  EXPECT_EQ(StreamCreate(used, 2, controller, &stream_options), -1);
  EXPECT_EQ(StreamAccept(streams, controller, &stream_options), -1);
  EXPECT_TRUE(streams.empty());
  ASSERT_EQ(StreamCreate(streams, 2, controller, &stream_options), 0);
  StreamIds more;
  EXPECT_EQ(StreamCreate(more, 2, controller, &stream_options), -1);
  controller.Reset();
  EXPECT_TRUE(soon([&] { return inbox.closed() == 2; }));
}

TEST_F(PbSeveralStreams, CallsThatOpenNoStreams) {
  {
    Inbox inbox;
    StreamIds streams;
    EXPECT_EQ(open_all("do not accept", streams, 3, inbox), EREQUEST);
    EXPECT_TRUE(soon([&] { return inbox.closed() == 3; }));
  }
  {
    Inbox inbox;
    StreamIds streams;
    EXPECT_EQ(open_all("several and fail", streams, 3, inbox), 18);
    EXPECT_TRUE(soon([&] { return inbox.closed() == 3; }));
    EXPECT_TRUE(soon([&] { return office.echo.closed == 3; }));
  }
  {
    Inbox inbox;
    StreamIds streams;
    EXPECT_EQ(open_all("several", streams, 17, inbox), EREQUEST);
    EXPECT_EQ(error_text, "the call has 17 streams: streams_per_call_max of the server is 16");
    EXPECT_TRUE(soon([&] { return inbox.closed() == 17; }));
  }
  {
    Inbox inbox;
    StreamIds streams;
    EXPECT_EQ(open_all("several", streams, 256, inbox), EREQUEST);
    EXPECT_TRUE(soon([&] { return inbox.closed() == 256; }));
  }
  {  // A single stream can be accepted by either function.
    Inbox inbox;
    StreamIds streams;
    EXPECT_EQ(open_all("several as one", streams, 1, inbox), 0) << error_text;
    EXPECT_EQ(StreamClose(streams[0]), 0);
    EXPECT_TRUE(inbox.wait_until_closed());
  }
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
}

TEST_F(PbSeveralStreams, TheServerStops) {
  Inboxes inboxes;
  StreamIds streams;
  ASSERT_EQ(open_all("several", streams, 4, inboxes), 0);
  server->stop(Duration(0));
  EXPECT_TRUE(soon([&] { return inboxes.closed() == 4; }));
  EXPECT_TRUE(soon([&] { return office.echo.closed == 4; }));
  EXPECT_EQ(StreamWrite(streams[2], message_of("late")), EINVAL);
}

// Interceptors of the channel's connections surround the call, and its streams reach the application.
TEST_F(PbSeveralStreams, WithInterceptors) {
  std::atomic<int> seen{0};
  options.client.interceptors = {client_interceptor([&seen](OutgoingCall&, Next next) -> Task<Result<void>> {
    ++seen;
    co_return co_await next();
  })};
  channel = std::make_unique<Channel>();
  ASSERT_EQ(channel->Init(server->address(), &options), 0) << channel->error_text();
  Inboxes inboxes;
  StreamIds streams;
  ASSERT_EQ(open_all("several", streams, 3, inboxes), 0) << error_text;
  EXPECT_EQ(seen, 1);
  for (const StreamId stream : streams) {
    EXPECT_EQ(StreamWrite(stream, message_of("more")), 0);
    EXPECT_TRUE(soon([&] { return inboxes.of(stream).size() == 2; }));
    EXPECT_EQ(StreamClose(stream), 0);
  }
  EXPECT_TRUE(soon([&] { return inboxes.closed() == 3; }));
}

TEST_F(PbSeveralStreams, ManyCallsAndThreads) {
  constexpr int threads = 4;
  std::vector<std::thread> callers;
  for (int t = 0; t < threads; ++t) {
    callers.emplace_back([&, t] {
      std::minstd_rand random(static_cast<unsigned>(t) + 1);
      for (int round = 0; round < 25; ++round) {
        Inboxes inboxes;
        const StreamOptions stream_options = with(inboxes);
        Controller controller;
        StreamIds streams;
        const int count = 1 + static_cast<int>(random() % 16);
        ASSERT_EQ(StreamCreate(streams, count, controller, &stream_options), 0);
        probe::PostService_Stub stub(channel.get());
        probe::Parcel parcel;
        parcel.set_text(count == 1 ? "echo" : "several");
        probe::Receipt receipt;
        stub.Deliver(&controller, &parcel, &receipt, nullptr);
        ASSERT_FALSE(controller.Failed()) << controller.ErrorText();
        std::vector<std::size_t> written(streams.size(), count == 1 ? 0 : 1);
        for (int k = 0; k < 60; ++k) {
          const std::size_t which = random() % streams.size();
          const int error = StreamWrite(streams[which], message_of(text_of(random() % 2000)));
          if (error == 0) ++written[which];
          if (random() % 40 == 0) StreamClose(streams[which]);
        }
        for (std::size_t i = 0; i < streams.size(); ++i) {
          const bool open = StreamClose(streams[i]) == 0;
          EXPECT_TRUE(soon([&] { return inboxes.closed(streams[i]); }));
          if (open) {
            EXPECT_LE(inboxes.of(streams[i]).size(), written[i]);
          }
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace hawser::pb
