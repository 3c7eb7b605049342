#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/baidu_std/fixture.h"
#include "tests/pb_channel/stream_fixture.h"
#include "wire/call_id.h"

// Clients that speak by hand, whose calls offer several streams.
namespace hawser::pb {
namespace {

using protocol::baidu_std::Answer;
using protocol::baidu_std::RpcMeta;
using protocol::baidu_std::stream_frame;
using protocol::baidu_std::StreamFrameType;
using protocol::baidu_std::StreamSettings;

class PbHostileClients : public PbStreams {
 public:
  PbHostileClients() : socket(RawSocket::connected_to(server->address())) {}
  ~PbHostileClients() override {
    socket.close();
    EXPECT_TRUE(soon([&] { return !server || server->counters().calls_in_flight == 0; }));
    EXPECT_TRUE(soon([&] { return office.echo.closed + office.inbox.closed() == office.accepted; }));
    // The server serves others.
    Inbox inbox;
    StreamId stream = INVALID_STREAM_ID;
    EXPECT_EQ(open("echo", stream, with(inbox)), 0);
    EXPECT_EQ(StreamWrite(stream, message_of("after")), 0);
    EXPECT_TRUE(inbox.wait_for(1));
    EXPECT_EQ(StreamClose(stream), 0);
    EXPECT_TRUE(inbox.wait_until_closed());
  }
  static Octets request(std::string_view text, std::int64_t id, const std::vector<std::int64_t>& streams,
                        bool extended = false) {
    RpcMeta meta{.request = protocol::baidu_std::RequestMeta{.service = "probe.PostService"},
                 .stream = StreamSettings{streams.front(), true, true, extended,
                                          std::vector<std::int64_t>(streams.begin() + 1, streams.end())}};
    const std::string data = "\x0a" + std::string(1, static_cast<char>(text.size())) + std::string(text);
    return bytes_of(protocol::baidu_std::Call{.method = "Deliver", .id = id, .data = data, .meta = meta});
  }
  // The reply to a request whose first stream is `first`. Empty error: the server's ids of all streams.
  struct Opened {
    std::vector<std::int64_t> ids;
    std::int32_t error = 0;
    std::string text;
  };
  Opened opened() {
    for (;;) {
      const std::optional<Answer> frame = protocol::baidu_std::receive_answer(socket);
      if (!frame) {
        ADD_FAILURE() << "no reply";
        return {};
      }
      if (frame->kind != protocol::baidu_std::BaiduStdFrameKind::stream || !frame->data.starts_with("PRPC")) continue;
      const Answer reply = protocol::baidu_std::parse_answer(octets(frame->data));
      if (reply.error_code != 0 || !reply.stream) return {{}, reply.error_code, reply.error_text};
      std::vector<std::int64_t> ids{reply.stream->stream_id};
      ids.insert(ids.end(), reply.stream->extra_ids.begin(), reply.stream->extra_ids.end());
      return {ids, 0, {}};
    }
  }
  Opened call(std::string_view text, std::int64_t id, const std::vector<std::int64_t>& streams) {
    socket.send(request(text, id, streams));
    return opened();
  }
  // The next frame that is not a FEEDBACK.
  Answer next() {
    for (;;) {
      const std::optional<Answer> frame = protocol::baidu_std::receive_answer(socket);
      if (!frame) return {};
      if (frame->kind != protocol::baidu_std::BaiduStdFrameKind::stream ||
          frame->frame.type != StreamFrameType::feedback)
        return *frame;
    }
  }
  static Octets frame(std::int64_t to, StreamFrameType type, std::string_view data = {}) {
    return stream_frame({to, 77, type}, data);
  }
  // The server's id of the stream that gets a slot which was not used before.
  static std::int64_t guess(std::uint16_t slot) { return std::int64_t{wire::CallId(slot, 1).number()} + 1; }

  RawSocket socket;
};

TEST_F(PbHostileClients, OddIdsOfTheClient) {
  std::int64_t id = 0;
  for (const std::vector<std::int64_t>& streams :
       {std::vector<std::int64_t>{5, 5, 5}, {0, 0}, {-1, -1, -1}, {INT64_MIN, INT64_MAX, 0, -1}}) {
    const Opened call_opened = call("several", ++id, streams);
    ASSERT_EQ(call_opened.ids.size(), streams.size()) << call_opened.text;
    std::multiset<std::string> greetings;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const Answer greeting = next();
      EXPECT_TRUE(std::ranges::find(streams, greeting.frame.stream_id) != streams.end());
      greetings.insert(greeting.data);
    }
    for (std::size_t i = 0; i < streams.size(); ++i) {
      EXPECT_EQ(greetings.count("stream " + std::to_string(i)), 1U);
      socket.send(frame(call_opened.ids[i], StreamFrameType::close));
    }
    EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
    for (std::size_t i = 0; i < streams.size(); ++i) socket.send(frame(call_opened.ids[i], StreamFrameType::data, "x"));
    for (std::size_t i = 0; i < streams.size(); ++i) EXPECT_EQ(next().frame.type, StreamFrameType::reset);
  }
}

TEST_F(PbHostileClients, TooManyStreams) {
  for (const std::size_t count : {17U, 255U, 256U, 257U, 3000U}) {
    const Opened refused = call("several", static_cast<std::int64_t>(count), std::vector<std::int64_t>(count, 9));
    EXPECT_EQ(refused.error, EREQUEST) << count;
    EXPECT_NE(refused.text.find("streams_per_call_max of the server is 16"), std::string::npos) << refused.text;
  }
  // A method that accepts none answers, however many it is offered.
  const Opened none = call("do not accept", 5, {1, 2, 3});
  EXPECT_EQ(none.error, 0);
  EXPECT_TRUE(none.ids.empty());
  const Opened most = call("several", 6, std::vector<std::int64_t>(16, 9));
  EXPECT_EQ(most.ids.size(), 16U);
  for (const std::int64_t id : most.ids) socket.send(frame(id, StreamFrameType::reset));
}

// Frames for streams that do not exist yet, in the same packet as the request.
TEST_F(PbHostileClients, FramesBeforeTheStreamsAreOpen) {
  for (const StreamFrameType type : {StreamFrameType::reset, StreamFrameType::close, StreamFrameType::data,
                                     StreamFrameType::feedback, StreamFrameType::end}) {
    for (const bool before : {false, true}) {
      socket = RawSocket::connected_to(server->address());
      Octets bytes = before ? Octets() : request("several", 1, {1, 2, 3});
      for (std::uint16_t slot = 0; slot < 4; ++slot) bytes = bytes + frame(guess(slot), type, "early");
      if (before) bytes = bytes + request("several", 1, {1, 2, 3});
      socket.send(bytes);
      EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight <= 1; }));
    }
  }
}

// One stream after another is reset or closed by the client. The handler closes none.
TEST_F(PbHostileClients, EndsInAnyOrder) {
  std::int64_t id = 0;
  for (const StreamFrameType type : {StreamFrameType::reset, StreamFrameType::close}) {
    std::vector<std::size_t> order{0, 1, 2};
    do {
      const Opened all = call("several inbox", ++id, {1, 2, 3});
      ASSERT_EQ(all.ids.size(), 3U);
      const int closed_before = office.inbox.closed();
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(server->counters().calls_in_flight, 1U);
        socket.send(frame(all.ids[order[i]], type));
        EXPECT_TRUE(soon([&] { return office.inbox.closed() == closed_before + static_cast<int>(i) + 1; }));
        // Whatever follows for it is answered by RST at most.
        socket.send(frame(all.ids[order[i]], StreamFrameType::data, "late") + frame(all.ids[order[i]], type) +
                    stream_frame({all.ids[order[i]], 77, StreamFrameType::feedback, false, INT64_MAX}));
      }
      EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
    } while (std::ranges::next_permutation(order).found);
  }
}

// Valid frames for any stream of several calls in any order, damaged and cut anywhere, and then an end of any kind.
TEST_F(PbHostileClients, RandomFramesOfTheClient) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
    socket = RawSocket::connected_to(server->address());
    constexpr std::string_view texts[] = {"several", "several inbox", "several and fail", "do not accept"};
    Octets bytes;
    std::vector<std::int64_t> ids;
    std::size_t streams_sent = 0;
    for (std::size_t calls = 1 + below(4); calls != 0; --calls) {
      std::vector<std::int64_t> streams;
      for (std::size_t count = 2 + below(below(8) == 0 ? 300 : 6); count != 0; --count) {
        streams.push_back(static_cast<std::int64_t>(below(6)) - 1);
      }
      streams_sent += streams.size();
      bytes = bytes +
              request(texts[below(8) < 5 ? 0 : below(4)], static_cast<std::int64_t>(below(3)), streams, below(2) == 0);
      for (std::size_t frames = below(15); frames != 0; --frames) {
        std::int64_t id = guess(static_cast<std::uint16_t>(below(streams_sent + 1)));
        if (below(6) == 0) id += std::int64_t{1} << (16 + below(2));  // A later generation.
        if (below(12) == 0) id ^= std::int64_t{1} << below(40);
        protocol::baidu_std::StreamFrameMeta meta{
            .stream_id = id,
            .source_stream_id = static_cast<std::int64_t>(below(6)),
            .type = static_cast<StreamFrameType>(below(12) == 0 ? below(7) : 1 + below(4))};
        meta.has_continuation = below(4) == 0;
        meta.consumed_size = static_cast<std::int64_t>(below(10));
        bytes = bytes + stream_frame(meta, below(8) == 0 ? "close" : std::string(below(4) == 0 ? below(9000) : 9, 'd'));
      }
    }
    for (std::size_t damage = below(6) == 0 ? 3 : 0; damage != 0; --damage) {
      bytes[below(std::min<std::size_t>(bytes.size(), 600))] = static_cast<std::byte>(below(256));
    }
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t part = std::min(bytes.size() - at, 1 + below(20'000));
      socket.send(Octets(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                         bytes.begin() + static_cast<std::ptrdiff_t>(at + part)));
      at += part;
    }
    if (below(3) == 0) {
      ::shutdown(socket.fd(), SHUT_WR);
      EXPECT_TRUE(socket.closed_by_peer());
    } else if (below(2) == 0) {
      socket.reset();
    }
    socket.close();
    EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
  }
}

// Items that were not read when the handler closed their stream are not charged while other streams are open.
TEST(PbHostileClientMemory, ItemsOfAClosedStreamAreReleased) {
  StreamOffice office;
  Server server;
  server.enable(baidu_std());
  add_service(server, &office);
  ASSERT_TRUE(server.start());
  {
    RawSocket socket = RawSocket::connected_to(server.address());
    socket.send(PbHostileClients::request("several inbox", 1, {1, 2}));
    std::vector<std::int64_t> ids;
    while (ids.empty()) {
      const std::optional<Answer> frame = protocol::baidu_std::receive_answer(socket);
      ASSERT_TRUE(frame);
      if (!frame->data.starts_with("PRPC")) continue;
      const Answer reply = protocol::baidu_std::parse_answer(octets(frame->data));
      ASSERT_TRUE(reply.stream);
      ids = {reply.stream->stream_id, reply.stream->extra_ids.at(0)};
    }
    ASSERT_TRUE(soon([&] { return office.accepted == 2; }));
    // The handler is busy while further items come.
    office.inbox.hold(true);
    const std::string item(200'000, 'i');
    for (int i = 0; i < 30; ++i) socket.send(stream_frame({ids[1], 77, StreamFrameType::data}, item));
    EXPECT_TRUE(soon([&] { return server.counters().receive_bytes > 1'000'000; }));
    EXPECT_EQ(StreamClose(office.streams().at(1)), 0);
    office.inbox.hold(false);
    EXPECT_TRUE(soon([&] { return office.inbox.closed() == 1; }));
    EXPECT_TRUE(soon([&] { return server.counters().receive_bytes < 300'000; })) << server.counters().receive_bytes;
  }
  EXPECT_TRUE(soon([&] { return server.counters().calls_in_flight == 0; }));
  server.stop(Duration(0));
}

}  // namespace
}  // namespace hawser::pb
