#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/baidu_std/played_server.h"
#include "tests/pb_channel/stream_fixture.h"

// Servers that answer calls with several streams wrongly, late or never.
namespace hawser::pb {
namespace {

using protocol::baidu_std::PlayedServer;
using protocol::baidu_std::server_id;
using protocol::baidu_std::stream_frame;
using protocol::baidu_std::StreamFrameType;
using protocol::baidu_std::StreamSettings;
using Opening = PlayedServer::Opening;

constexpr std::string_view receipt_bytes = "\x0a\x02ok";

Octets reply_with(const Opening& opening, std::vector<std::int64_t> extra_ids, bool extended = false) {
  return PlayedServer::opening_reply(opening, {server_id, true, true, extended, std::move(extra_ids)}, receipt_bytes);
}

// The ids of the caller, and those of the server when it numbers its own one after another.
std::vector<std::int64_t> ids_of(const Opening& opening) {
  std::vector<std::int64_t> ids{opening.settings.stream_id};
  ids.insert(ids.end(), opening.settings.extra_ids.begin(), opening.settings.extra_ids.end());
  return ids;
}
std::vector<std::int64_t> own_extras(const Opening& opening) {
  std::vector<std::int64_t> ids;
  for (std::size_t i = 1; i <= opening.settings.extra_ids.size(); ++i) {
    ids.push_back(server_id + static_cast<std::int64_t>(i));
  }
  return ids;
}

struct PlayedCall {
  explicit PlayedCall(Channel& on) : channel(on) { options.handler = &inbox; }
  // `cancel_after`: the call is cancelled when this is true.
  int open(int count, std::int64_t timeout_ms = -1, const std::atomic<bool>* cancel_after = nullptr) {
    Controller controller;
    if (timeout_ms >= 0) controller.set_timeout_ms(timeout_ms);
    std::thread cancelling;
    if (cancel_after != nullptr) {
      cancelling = std::thread([cancel_after, id = controller.call_id()] {
        while (!*cancel_after) std::this_thread::yield();
        StartCancel(id);
      });
    }
    EXPECT_EQ(StreamCreate(streams, count, controller, &options), 0);
    probe::PostService_Stub stub(&channel);
    probe::Parcel parcel;
    parcel.set_text("x");
    probe::Receipt receipt;
    stub.Deliver(&controller, &parcel, &receipt, nullptr);
    if (cancelling.joinable()) cancelling.join();
    text = controller.ErrorText();
    return controller.ErrorCode();
  }
  Channel& channel;
  Inbox inbox;
  StreamOptions options;
  StreamIds streams;
  std::string text;
};

void with_played(const std::function<void(PlayedServer&)>& play, const std::function<void(Channel&)>& use) {
  RawListener listener;
  std::thread serving([&] {
    PlayedServer server(listener.accept());
    play(server);
    server.wait_for_the_end();
  });
  {
    ChannelOptions options;
    options.timeout_ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
    options.connect_timeout_ms = static_cast<std::int32_t>(options.timeout_ms);
    options.max_retry = 0;
    Channel channel;
    EXPECT_EQ(channel.Init(listener.address(), &options), 0) << channel.error_text();
    use(channel);
  }
  serving.join();
}

Octets reset_of(std::int64_t id) { return stream_frame({id, server_id, StreamFrameType::reset}); }
Octets close_of(std::int64_t id) { return stream_frame({id, server_id, StreamFrameType::close}); }

// Whichever of its streams is reset before the reply, the call has not been opened.
TEST(PbHostileServers, ResetsBeforeTheReplyFailTheCall) {
  for (const std::vector<std::size_t>& resets : {std::vector<std::size_t>{0}, {1}, {2}, {0, 1, 2}, {2, 1, 0}, {1, 2}}) {
    SCOPED_TRACE(::testing::PrintToString(resets));
    with_played(
        [&](PlayedServer& server) {
          const Opening opening = server.receive_opening();
          Octets bytes;
          for (const std::size_t which : resets) bytes = bytes + reset_of(ids_of(opening).at(which));
          server.send(bytes + reply_with(opening, own_extras(opening)));
        },
        [](Channel& channel) {
          PlayedCall call(channel);
          EXPECT_NE(call.open(3), 0);
          EXPECT_NE(call.text.find("reset"), std::string::npos) << call.text;
          EXPECT_TRUE(soon([&] { return call.inbox.closed() == 3; }));
        });
  }
}

// Streams that the server has accepted and the caller does not use are reset, one by one.
TEST(PbHostileServers, AReplyWithAnotherNumberOfStreams) {
  for (const int offered : {1, 2, 4}) {
    for (const std::size_t accepted : {0U, 1U, 2U, 3U, 4U, 254U}) {
      if (static_cast<int>(accepted) + 1 == offered) continue;
      SCOPED_TRACE(std::to_string(offered) + " offered, accepted beside the first: " + std::to_string(accepted));
      with_played(
          [&](PlayedServer& server) {
            const Opening opening = server.receive_opening();
            std::vector<std::int64_t> extra_ids;
            std::set<std::int64_t> open{server_id};
            for (std::size_t i = 0; i < accepted; ++i) {
              extra_ids.push_back(100 + static_cast<std::int64_t>(i));
              open.insert(extra_ids.back());
            }
            server.send(reply_with(opening, extra_ids));
            while (!open.empty()) {
              const protocol::baidu_std::Answer frame = server.next();
              ASSERT_EQ(frame.frame.type, StreamFrameType::reset);
              EXPECT_EQ(open.erase(frame.frame.stream_id), 1U);
            }
          },
          [&](Channel& channel) {
            PlayedCall call(channel);
            EXPECT_NE(call.open(offered), 0);
            EXPECT_NE(call.text.find("has accepted " + std::to_string(accepted + 1) + " of the"), std::string::npos)
                << call.text;
            EXPECT_TRUE(soon([&] { return call.inbox.closed() == offered; }));
          });
    }
  }
}

// The reply comes after the caller has given up: each stream is reset, and the connection is used again.
TEST(PbHostileServers, ALateReply) {
  std::atomic<bool> received{false};
  std::atomic<bool> given_up{false};
  std::atomic<bool> all_reset{false};
  with_played(
      [&](PlayedServer& server) {
        const Opening late = server.receive_opening();
        received = true;
        while (!given_up) std::this_thread::yield();
        server.send(reply_with(late, own_extras(late)));
        std::set<std::int64_t> open{server_id, server_id + 1, server_id + 2};
        while (!open.empty()) {
          const protocol::baidu_std::Answer frame = server.next();
          ASSERT_EQ(frame.frame.type, StreamFrameType::reset);
          EXPECT_EQ(open.erase(frame.frame.stream_id), 1U);
        }
        all_reset = true;
        const Opening second = server.receive_opening();
        server.send(reply_with(second, own_extras(second)));
        for (const std::int64_t id : ids_of(second)) server.send(close_of(id));
      },
      [&](Channel& channel) {
        PlayedCall late(channel);
        EXPECT_NE(late.open(3, -1, &received), 0);
        EXPECT_TRUE(soon([&] { return late.inbox.closed() == 3; }));
        given_up = true;
        ASSERT_TRUE(soon([&] { return all_reset.load(); }));
        PlayedCall second(channel);
        EXPECT_EQ(second.open(4), 0) << second.text;
        EXPECT_TRUE(soon([&] { return second.inbox.closed() == 4; }));
      });
}

// Ids of the server that are equal to each other, negative or 0.
TEST(PbHostileServers, OddIds) {
  for (const std::vector<std::int64_t>& extra_ids :
       {std::vector<std::int64_t>{server_id, server_id}, {0, 0}, {-1, -1}, {INT64_MIN, INT64_MAX}}) {
    with_played(
        [&](PlayedServer& server) {
          const Opening opening = server.receive_opening();
          server.send(reply_with(opening, extra_ids));
          for (int i = 0; i < 3; ++i) {
            const protocol::baidu_std::Answer frame = server.next();
            EXPECT_EQ(frame.frame.type, StreamFrameType::data);
            EXPECT_EQ(frame.data, "to all");
          }
          const std::vector<std::int64_t> ids = ids_of(opening);
          server.send(close_of(ids[1]) + reset_of(ids[2]) + reset_of(ids[0]));
        },
        [&](Channel& channel) {
          PlayedCall call(channel);
          EXPECT_EQ(call.open(3), 0) << call.text;
          for (const StreamId stream : call.streams) EXPECT_EQ(StreamWrite(stream, message_of("to all")), 0);
          EXPECT_TRUE(soon([&] { return call.inbox.closed() == 3; }));
        });
  }
}

// Valid frames for any of the streams in any order, damaged and cut anywhere, while the caller writes, closes and gives
// up. Each stream ends once.
TEST(PbHostileServers, RandomFrames) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 choices(seed);
    const int count = 2 + static_cast<int>(choices() % 6);
    const bool gives_up = choices() % 6 == 0;
    with_played(
        [seed](PlayedServer& server) {
          std::mt19937 random(seed);
          const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
          const Opening opening = server.receive_opening();
          const std::vector<std::int64_t> ids = ids_of(opening);
          Octets bytes;
          const auto add_frames = [&](std::size_t frames) {
            for (; frames != 0; --frames) {
              std::int64_t id = ids[below(ids.size())];
              if (below(12) == 0) id ^= std::int64_t{1} << below(40);
              protocol::baidu_std::StreamFrameMeta meta{
                  .stream_id = id,
                  .source_stream_id = server_id,
                  .type = static_cast<StreamFrameType>(below(5) == 0 ? below(7) : 1 + below(5))};
              if (meta.type == StreamFrameType::end && below(2) == 0) meta.type = StreamFrameType::data;
              meta.has_continuation = below(4) == 0;
              meta.result = below(8) == 0;
              meta.consumed_size = static_cast<std::int64_t>(below(8));
              if (below(6) == 0) meta.error_code = static_cast<std::int32_t>(1000 + below(20));
              bytes = bytes + stream_frame(meta, std::string(below(4) == 0 ? below(60'000) : below(20), 'd'));
            }
          };
          if (below(10) == 0) add_frames(1);
          std::vector<std::int64_t> extra_ids = own_extras(opening);
          if (below(10) == 0) extra_ids.resize(below(8));
          if (below(12) != 0) bytes = bytes + reply_with(opening, extra_ids, below(2) == 0);
          add_frames(below(30));
          for (std::size_t damage = below(6) == 0 ? 3 : 0; damage != 0 && !bytes.empty(); --damage) {
            bytes[below(std::min<std::size_t>(bytes.size(), 600))] = static_cast<std::byte>(below(256));
          }
          for (std::size_t at = 0; at < bytes.size();) {
            const std::size_t part = std::min(bytes.size() - at, 1 + below(30'000));
            server.send(Octets(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                               bytes.begin() + static_cast<std::ptrdiff_t>(at + part)));
            at += part;
          }
          server.end_sending();
        },
        [&](Channel& channel) {
          auto call = std::make_unique<PlayedCall>(channel);
          static_cast<void>(call->open(count, gives_up ? static_cast<std::int64_t>(choices() % 3) : -1));
          std::thread other([&] {
            std::mt19937 random(seed + 1000);
            for (int i = 0; i < 30; ++i) {
              const StreamId stream = call->streams[random() % call->streams.size()];
              if (random() % 12 == 0) {
                StreamClose(stream);
              } else {
                StreamWrite(stream, message_of(std::string(random() % 3000, 'w')));
              }
            }
          });
          for (int i = 0; i < 30; ++i) {
            const StreamId stream = call->streams[choices() % call->streams.size()];
            if (choices() % 12 == 0) {
              StreamClose(stream);
            } else {
              StreamWrite(stream, message_of("x"));
            }
          }
          other.join();
          EXPECT_TRUE(soon([&] { return call->inbox.closed() == count; })) << call->inbox.closed() << " of " << count;
        });
  }
}

}  // namespace
}  // namespace hawser::pb
