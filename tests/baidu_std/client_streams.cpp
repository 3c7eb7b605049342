#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/baidu_std/client_tools.h"
#include "tests/baidu_std/played_server.h"

// The streams of the library's own client of baidu_std.
namespace hawser::protocol::baidu_std {

// The server has a method of this name, without a stream.
inline Task<Result<RawMessage>> no_stream_there(Context&, const RawMessage&, Reader<RawMessage>) {
  co_return RawMessage{};
}

}  // namespace hawser::protocol::baidu_std

template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::protocol::baidu_std::no_stream_there> =
    "test.Raw/Echo";

namespace hawser::protocol::baidu_std {
namespace {

using namespace std::string_view_literals;

TEST_F(BaiduStd, StreamsOfTheClient) {
  with_client(server->address(), {}, [](BaiduStdClient& client) -> Task<void> {
    const RawMessage request;
    auto call = co_await client.open<stream_message>(request);
    REQUIRE_OK(call);
    auto reader = call->reader();
    auto writer = call->writer();
    for (const std::size_t size : {3UZ, 0UZ, 100'000UZ, 1'000'000UZ, 1UZ}) {
      const RawMessage item = raw(text_of(size));
      auto written = co_await writer.write(item);
      REQUIRE_OK(written);
      auto same = co_await reader.next();
      REQUIRE_OK(same);
      REQUIRE(same->has_value());
      EXPECT_TRUE((*same)->bytes == item.bytes) << size;
    }
    auto result = co_await call->finish();
    REQUIRE_OK(result);
    EXPECT_EQ(result->bytes, "end");
    const RawMessage echoed_message = raw("after");
    auto echoed = co_await client.call<echo_message>(echoed_message);
    REQUIRE_OK(echoed);
    EXPECT_EQ(echoed->bytes, "after");
  });
}

// A server of this library knows that the caller writes no more, and still writes.
TEST_F(BaiduStd, AStreamIsReadAfterTheWriterHasEnded) {
  with_client(server->address(), {}, [](BaiduStdClient& client) -> Task<void> {
    const RawMessage request;
    auto call = co_await client.open<stream_message>(request);
    REQUIRE_OK(call);
    auto reader = call->reader();
    auto writer = call->writer();
    for (int i = 0; i < 50; ++i) {
      const RawMessage item = raw(std::to_string(i));
      auto written = co_await writer.write(item);
      REQUIRE_OK(written);
    }
    writer.end();
    for (int i = 0; i < 50; ++i) {
      auto item = co_await reader.next();
      REQUIRE_OK(item);
      REQUIRE(item->has_value());
      EXPECT_EQ((*item)->bytes, std::to_string(i));
    }
    auto end = co_await reader.next();
    REQUIRE_OK(end);
    EXPECT_FALSE(end->has_value());
    auto result = co_await call->finish();
    REQUIRE_OK(result);
    EXPECT_EQ(result->bytes, "end");
  });
}

TEST_F(BaiduStd, ErrorsOfStreamsReachTheClient) {
  with_client(server->address(), {}, [](BaiduStdClient& client) -> Task<void> {
    {
      const RawMessage request;
      auto call = co_await client.open<stream_message>(request);
      REQUIRE_OK(call);
      auto reader = call->reader();
      auto writer = call->writer();
      const RawMessage written_message = raw("fail");
      auto written = co_await writer.write(written_message);
      REQUIRE_OK(written);
      auto item = co_await reader.next();
      EXPECT_ERROR(item, invalid_argument, "failed");
      auto result = co_await call->finish();
      EXPECT_ERROR(result, invalid_argument, "failed");
    }
    {
      const RawMessage call_message = raw("refuse");
      auto call = co_await client.open<stream_message>(call_message);
      REQUIRE_OK(call);
      auto result = co_await call->finish();
      EXPECT_ERROR(result, invalid_argument, "refused at once");
    }
    const RawMessage call_message = raw("x");
    auto call = co_await client.open<no_stream_there>(call_message);
    REQUIRE_OK(call);
    auto result = co_await call->finish();
    EXPECT_ERROR(result, signature_mismatch, "has no stream there");
  });
}

// More than the buffer of the server's stream arrives only if the client acknowledges what it has read.
TEST_F(BaiduStd, TheClientAcknowledgesAndDropsAStream) {
  with_client(server->address(), {}, [](BaiduStdClient& client) -> Task<void> {
    const RawMessage call_message = RawMessage{};
    auto call = co_await client.open<pour_message>(call_message);
    REQUIRE_OK(call);
    auto reader = call->reader();
    for (int i = 0; i < 5000; ++i) {
      auto item = co_await reader.next();
      REQUIRE_OK(item);
      REQUIRE(item->has_value());
    }
    call = fail(ErrorCode::cancelled, "dropped");
    bool ended = false;
    // Items that have arrived can still be read.
    while (!ended) {
      auto item = co_await reader.next();
      ended = !item || !item->has_value();
    }
    const RawMessage echoed_message = raw("after");
    auto echoed = co_await client.call<echo_message>(echoed_message);
    EXPECT_OK(echoed);
    EXPECT_EQ(client.calls_in_flight(), 0U);
  });
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
}

TEST_F(BaiduStd, ADeadlineEndsAStreamOfTheClient) {
  BaiduStdClientOptions options;
  options.stream_buffer_bytes = 10'000;
  with_client(server->address(), options, [](BaiduStdClient& client) -> Task<void> {
    const CallOptions with{.timeout = 100ms};
    const RawMessage request;
    auto call = co_await client.open<lazy_message>(with, request);
    REQUIRE_OK(call);
    auto writer = call->writer();
    // Nobody reads: the buffer fills, and the writer waits for the deadline.
    const RawMessage item = raw(text_of(1000));
    int items = 0;
    for (bool open = true; open;) {
      auto written = co_await writer.write(item);
      if (written) {
        ++items;
      } else {
        EXPECT_ERROR(written, deadline_exceeded, "");
        open = false;
      }
    }
    EXPECT_LE(items, 10);
    auto result = co_await call->finish();
    EXPECT_ERROR(result, deadline_exceeded, "");
  });
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
}

TEST_F(BaiduStd, TheEndOfTheClientEndsItsStreams) {
  with_client(server->address(), {}, [](BaiduStdClient& client) -> Task<void> {
    const RawMessage request;
    auto call = co_await client.open<stream_message>(request);
    REQUIRE_OK(call);
    auto reader = call->reader();
    auto writer = call->writer();
    const RawMessage written_message = raw("one");
    auto written = co_await writer.write(written_message);
    REQUIRE_OK(written);
    auto item = co_await reader.next();
    REQUIRE_OK(item);
    client.close();
    auto none = co_await reader.next();
    EXPECT_ERROR(none, outcome_unknown, "the client was closed");
    const RawMessage refused_message = raw("two");
    auto refused = co_await writer.write(refused_message);
    EXPECT_ERROR(refused, outcome_unknown, "the client was closed");
    auto result = co_await call->finish();
    EXPECT_ERROR(result, outcome_unknown, "the client was closed");
  });
}

// ---- Servers that are played by hand, as those of bRPC ----

template <class Play>
void with_played_server(Play play, const BaiduStdClientOptions& options, Script script) {
  RawListener listener;
  std::thread serving([&] {
    PlayedServer server(listener.accept());
    play(server);
    server.wait_for_the_end();
  });
  with_client(listener.address(), options, script);
  serving.join();
}

TEST(BaiduStdClientStreams, AServerOfBrpc) {
  with_played_server(
      [](PlayedServer& server) {
        const PlayedServer::Opening opening = server.accept();
        EXPECT_EQ(opening.method, "Stream");
        EXPECT_TRUE(opening.settings.need_feedback);
        EXPECT_TRUE(opening.settings.writable);
        for (const std::string_view text : {"one", "", "two"}) {
          const Answer item = server.next();
          EXPECT_EQ(item.frame.type, StreamFrameType::data);
          EXPECT_EQ(item.frame.stream_id, server_id);
          EXPECT_EQ(item.frame.source_stream_id, opening.settings.stream_id);
          EXPECT_FALSE(item.frame.result);
          EXPECT_EQ(item.data, text);
          server.send(stream_frame({opening.settings.stream_id, server_id, StreamFrameType::data}, item.data));
        }
        // The end of the caller's items is CLOSE, because bRPC has no other. FEEDBACK precedes it, because the caller
        // has read everything.
        EXPECT_EQ(server.next().frame.type, StreamFrameType::close);
        EXPECT_EQ(server.consumed, 6);
        server.send(stream_frame({opening.settings.stream_id, server_id, StreamFrameType::data, true}, "in ") +
                    stream_frame({opening.settings.stream_id, server_id, StreamFrameType::data, false}, "parts"));
        server.send(stream_frame({opening.settings.stream_id, server_id, StreamFrameType::data}, "last") +
                    stream_frame({opening.settings.stream_id, server_id, StreamFrameType::close}));
      },
      {},
      [](BaiduStdClient& client) -> Task<void> {
        const RawMessage call_message = raw("x");
        auto call = co_await client.open<stream_message>(call_message);
        REQUIRE_OK(call);
        auto reader = call->reader();
        auto writer = call->writer();
        for (const std::string_view text : {"one"sv, ""sv, "two"sv}) {
          const RawMessage item = raw(text);
          auto written = co_await writer.write(item);
          REQUIRE_OK(written);
          auto same = co_await reader.next();
          REQUIRE_OK(same);
          REQUIRE(same->has_value());
          EXPECT_EQ((*same)->bytes, text);
        }
        writer.end();
        for (const std::string_view text : {"in parts"sv, "last"sv}) {
          auto item = co_await reader.next();
          REQUIRE_OK(item);
          REQUIRE(item->has_value());
          EXPECT_EQ((*item)->bytes, text);
        }
        auto end = co_await reader.next();
        REQUIRE_OK(end);
        EXPECT_FALSE(end->has_value());
        auto result = co_await call->finish();
        REQUIRE_OK(result);
        EXPECT_EQ(result->bytes, "opened");
      });
}

TEST(BaiduStdClientStreams, AWriterWaitsForTheServer) {
  BaiduStdClientOptions options;
  options.stream_buffer_bytes = 1000;
  with_played_server(
      [](PlayedServer& server) {
        const PlayedServer::Opening opening = server.accept();
        // One message may pass the buffer. The next one waits for FEEDBACK, which is cumulative.
        std::int64_t received = 0;
        for (int round = 0; round < 5; ++round) {
          while (received < (round + 1) * 1200) received += static_cast<std::int64_t>(server.next().data.size());
          EXPECT_EQ(received, (round + 1) * 1200);
          server.send(
              stream_frame({opening.settings.stream_id, server_id, StreamFrameType::feedback, false, received}));
        }
        EXPECT_EQ(server.next().frame.type, StreamFrameType::close);
        server.send(stream_frame({opening.settings.stream_id, server_id, StreamFrameType::close}));
      },
      options,
      [](BaiduStdClient& client) -> Task<void> {
        const RawMessage call_message = raw("x");
        auto call = co_await client.open<stream_message>(call_message);
        REQUIRE_OK(call);
        auto writer = call->writer();
        for (int i = 0; i < 10; ++i) {
          const RawMessage item = raw(text_of(600));
          auto written = co_await writer.write(item);
          REQUIRE_OK(written);
        }
        auto result = co_await call->finish();
        EXPECT_OK(result);
      });
}

TEST(BaiduStdClientStreams, ServersThatRefuse) {
  with_played_server(
      [](PlayedServer& server) {
        const PlayedServer::Opening refused = server.receive_opening();
        server.send(PlayedServer::opening_reply(refused, {}, "", 1002));
        // Some errors come without the DATA frame.
        const PlayedServer::Opening bare = server.receive_opening();
        server.send(reply_frame({.response = ResponseMeta{1003, "bare"}, .correlation_id = bare.correlation_id}, ""));
        const PlayedServer::Opening unread = server.receive_opening();
        server.send(PlayedServer::opening_reply(unread, {server_id, true, false}));
        EXPECT_EQ(server.next().frame.type, StreamFrameType::reset);
        const PlayedServer::Opening reset = server.accept();
        server.send(stream_frame({reset.settings.stream_id, server_id, StreamFrameType::reset}));
      },
      {},
      [](BaiduStdClient& client) -> Task<void> {
        const auto outcome = [&]() -> Task<Result<RawMessage>> {
          const RawMessage call_message = raw("x");
          auto call = co_await client.open<stream_message>(call_message);
          if (!call) co_return std::unexpected(call.error());
          const RawMessage written_message = raw("item");
          auto written_by = call->writer();  // The task refers to it.
          auto written = co_await written_by.write(written_message);
          static_cast<void>(written);
          auto result = co_await call->finish();
          co_return std::move(result);
        };
        auto refused = co_await outcome();
        EXPECT_ERROR(refused, unknown_method, "as asked");
        auto bare = co_await outcome();
        EXPECT_ERROR(bare, invalid_argument, "bare");
        auto unread = co_await outcome();
        EXPECT_ERROR(unread, signature_mismatch, "does not read the stream");
        auto reset = co_await outcome();
        EXPECT_ERROR(reset, internal, "reset the stream");
      });
}

// A call that was given up before its stream was open: the server learns of it when it opens the stream.
TEST(BaiduStdClientStreams, FramesOfAnEndedStreamAreAnsweredByAReset) {
  with_played_server(
      [](PlayedServer& server) {
        const PlayedServer::Opening late = server.receive_opening();
        const PlayedServer::Opening second = server.receive_opening();
        server.send(PlayedServer::opening_reply(late));
        const Answer reset = server.next();
        EXPECT_EQ(reset.frame.type, StreamFrameType::reset);
        EXPECT_EQ(reset.frame.stream_id, server_id);
        EXPECT_EQ(reset.frame.source_stream_id, late.settings.stream_id);
        // Neither a refusal nor the end of a stream is answered.
        server.send(PlayedServer::opening_reply(late, {}, "", 1003) +
                    stream_frame({late.settings.stream_id, server_id, StreamFrameType::close}) +
                    stream_frame({late.settings.stream_id, server_id, StreamFrameType::feedback, false, 5}) +
                    PlayedServer::opening_reply(second));
        EXPECT_EQ(server.next().data, "item");
        server.send(stream_frame({second.settings.stream_id, server_id, StreamFrameType::close}));
      },
      {},
      [](BaiduStdClient& client) -> Task<void> {
        const CallOptions with{.timeout = 1ms};
        const RawMessage request;
        auto late = co_await client.open<stream_message>(with, request);
        REQUIRE_OK(late);
        auto given_up = co_await late->finish();
        EXPECT_ERROR(given_up, deadline_exceeded, "");
        auto call = co_await client.open<stream_message>(request);
        REQUIRE_OK(call);
        auto writer = call->writer();
        const RawMessage written_message = raw("item");
        auto written = co_await writer.write(written_message);
        REQUIRE_OK(written);
        auto reader = call->reader();
        auto end = co_await reader.next();
        REQUIRE_OK(end);
        EXPECT_FALSE(end->has_value());
        auto result = co_await call->finish();
        EXPECT_OK(result);
      });
}

TEST(BaiduStdClientStreams, ItemsThatNobodyReadsAreBounded) {
  for (const std::size_t size : {0UZ, 1000UZ, 100'000UZ}) {
    for (const bool continued : {false, true}) {
      BaiduStdClientOptions options;
      options.stream_receive_bytes_max = 1 << 20;
      static std::size_t item_bytes = 0;
      item_bytes = size;
      with_played_server(
          [&](PlayedServer& server) {
            const PlayedServer::Opening opening = server.accept();
            const Octets item = stream_frame({opening.settings.stream_id, server_id, StreamFrameType::data, continued},
                                             std::string(size, 'i'));
            // Twice the limit, even if only the bookkeeping of an item counted. Many items are sent together: one by
            // one, they would take longer than call_timeout on a busy machine.
            const std::size_t items = std::min<std::size_t>(40'000, (std::size_t{4} << 20) / (size + 64) + 1);
            Octets together;
            for (std::size_t i = 0; i < items; ++i) {
              together.insert(together.end(), item.begin(), item.end());
              if (together.size() < 64 * 1024 && i + 1 != items) continue;
              server.send(together);
              together.clear();
            }
            EXPECT_EQ(server.next().frame.type, StreamFrameType::reset);
            server.answer_call();
          },
          options,
          [](BaiduStdClient& client) -> Task<void> {
            const RawMessage call_message = raw("x");
            auto call = co_await client.open<pour_message>(call_message);
            REQUIRE_OK(call);
            auto result = co_await call->finish();
            EXPECT_ERROR(result, limit_exceeded, "stream_receive_bytes_max (1048576 bytes)");
            const RawMessage answer_message = raw("x");
            auto answer = co_await client.call<echo_message>(answer_message);
            EXPECT_TRUE(answer) << item_bytes << error_of(answer);
          });
    }
  }
}

// Each of them ends the connection.
TEST(BaiduStdClientStreams, ServersThatBreakTheProtocol) {
  using Opening = PlayedServer::Opening;
  using Bad = std::function<Octets(const Opening&)>;
  const auto frame = [](const Opening& opening, StreamFrameType type, std::string_view data = {}) {
    return stream_frame({opening.settings.stream_id, server_id, type}, data);
  };
  const std::vector<Bad> bad = {
      [&](const Opening& opening) { return frame(opening, StreamFrameType::close); },
      [&](const Opening& opening) { return frame(opening, StreamFrameType::feedback); },
      [&](const Opening& opening) { return frame(opening, StreamFrameType::data); },
      [&](const Opening& opening) { return frame(opening, StreamFrameType::data, "PRPC"); },
      [&](const Opening& opening) { return frame(opening, StreamFrameType::data, "PRPC\0\0\0\0\0\0\0\1"sv); },
      [&](const Opening& opening) { return frame(opening, StreamFrameType::data, "STRM\0\0\0\2\0\0\0\2\x08\1"sv); },
      [&](const Opening& opening) {
        Opening other = opening;
        ++other.correlation_id;
        return PlayedServer::opening_reply(other);
      },
      [&](const Opening& opening) {
        return PlayedServer::opening_reply(opening) +
               reply_frame({.response = ResponseMeta{}, .correlation_id = opening.correlation_id}, "again");
      },
      [&](const Opening& opening) {
        return PlayedServer::opening_reply(opening) + frame(opening, StreamFrameType::unknown);
      },
      // This server has not agreed to know END.
      [&](const Opening& opening) {
        return PlayedServer::opening_reply(opening) + frame(opening, StreamFrameType::end);
      },
      [&](const Opening& opening) {
        return PlayedServer::opening_reply(opening, {server_id, true, true, true}) +
               frame(opening, StreamFrameType::end) + frame(opening, StreamFrameType::data, "after the end");
      },
      [&](const Opening& opening) {
        return PlayedServer::opening_reply(opening) +
               stream_frame({opening.settings.stream_id, server_id, StreamFrameType::feedback, false, 1'000'000});
      },
  };
  for (std::size_t i = 0; i < bad.size(); ++i) {
    SCOPED_TRACE(i);
    with_played_server([&](PlayedServer& server) { server.send(bad[i](server.receive_opening())); }, {},
                       [](BaiduStdClient& client) -> Task<void> {
                         const RawMessage call_message = raw("x");
                         auto call = co_await client.open<stream_message>(call_message);
                         REQUIRE_OK(call);
                         auto reader = call->reader();
                         auto item = co_await reader.next();
                         EXPECT_ERROR(item, outcome_unknown, "");
                         auto result = co_await call->finish();
                         EXPECT_ERROR(result, outcome_unknown, "");
                         EXPECT_FALSE(client.connected());
                       });
  }
}

// Valid frames in any order, with damaged bytes and cut anywhere. The call ends, and what it held is released.
TEST(BaiduStdClientStreams, RandomFrames) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    with_played_server(
        [seed](PlayedServer& server) {
          std::mt19937 random(seed);
          const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
          const PlayedServer::Opening opening = server.receive_opening();
          const std::int64_t id = opening.settings.stream_id;
          Octets bytes;
          if (below(8) != 0) bytes = PlayedServer::opening_reply(opening, {server_id, true, true, below(2) == 0});
          for (std::size_t frames = below(12); frames != 0; --frames) {
            StreamFrameMeta meta{.stream_id = below(10) == 0 ? id ^ (std::int64_t{1} << below(40)) : id,
                                 .source_stream_id = server_id,
                                 .type = static_cast<StreamFrameType>(below(10) == 0 ? below(7) : 3 + below(3))};
            meta.has_continuation = below(3) == 0;
            meta.result = below(4) == 0;
            meta.consumed_size = static_cast<std::int64_t>(below(20));
            if (below(4) == 0) meta.error_code = static_cast<std::int32_t>(1000 + below(20));
            bytes = bytes + stream_frame(meta, text_of(below(3) == 0 ? below(60'000) : below(20)));
          }
          for (std::size_t damage = below(4) == 0 ? 3 : 0; damage != 0 && !bytes.empty(); --damage) {
            bytes[below(std::min<std::size_t>(bytes.size(), 300))] = static_cast<std::byte>(below(256));
          }
          for (std::size_t at = 0; at < bytes.size();) {
            const std::size_t part = std::min(bytes.size() - at, 1 + below(30'000));
            server.send(Octets(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                               bytes.begin() + static_cast<std::ptrdiff_t>(at + part)));
            at += part;
          }
          server.end_sending();
        },
        {},
        [](BaiduStdClient& client) -> Task<void> {
          const RawMessage call_message = raw("x");
          auto call = co_await client.open<stream_message>(call_message);
          REQUIRE_OK(call);
          auto reader = call->reader();
          auto writer = call->writer();
          const RawMessage written_message = raw("item");
          auto written = co_await writer.write(written_message);
          static_cast<void>(written);
          for (bool open = true; open;) {
            auto item = co_await reader.next();
            open = item && item->has_value();
          }
          auto result = co_await call->finish();
          static_cast<void>(result);
          EXPECT_EQ(client.calls_in_flight(), 0U);
        });
  }
}

}  // namespace
}  // namespace hawser::protocol::baidu_std
