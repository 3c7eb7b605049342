#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "hawser/detail/receive_account.h"
#include "protocol/grpc/test/machine_pair.h"
#include "protocol/http2/error_codes.h"

// Each attack is cut off; what a good client does for the same length of time is not.
namespace hawser::protocol::grpc::testing {
namespace {

using ::testing::HasSubstr;

// Sends `once(i)` until the server gives up, at most `most` times. Returns how often it was sent.
template <class Once>
std::size_t flood(ServerLog& server, std::size_t most, Once once) {
  EXPECT_TRUE(server.feed(hello()));
  for (std::size_t i = 0; i < most; ++i) {
    if (!server.feed(once(i))) return i + 1;
    take_output(server.machine, server.output);
  }
  return most + 1;
}

std::string why(ServerLog& server) { return server.machine.failure() ? server.machine.failure()->text : "none"; }

TEST(GrpcFlood, Ping) {
  ServerLog server;
  EXPECT_LE(flood(server, 10'000, [](std::size_t) { return frame(6, 0, 0, "12345678"); }), 1100U);
  EXPECT_THAT(why(server), HasSubstr("PING"));
}

TEST(GrpcFlood, PingSoonerThanAllowed) {
  ServerLog server({.connection = {.ping_interval_min = std::chrono::minutes(5)}});
  EXPECT_EQ(flood(server, 100, [](std::size_t) { return frame(6, 0, 0, "12345678"); }), 4U);
  EXPECT_THAT(take_output(server.machine, server.output), HasSubstr("too_many_pings"));
}

// Clients of HTTP/2 test a connection whose response is slow. The server sends nothing meanwhile.
TEST(GrpcFlood, KeepalivesOfASlowStreamAreServed) {
  ServerLog server;
  server.silent = true;
  Time now{};
  EXPECT_TRUE(server.feed(hello() + frame(1, 4, 1, request_fields("/stream")), now));
  for (int i = 0; i < 1000; ++i) {
    now += std::chrono::milliseconds(500);
    ASSERT_TRUE(server.feed(frame(6, 0, 0, "12345678"), now)) << i << why(server);
    EXPECT_EQ(take_output(server.machine, server.output).empty(), false);
  }
}

// Callers that give up calls they have waited for end none of their other calls.
TEST(GrpcFlood, ResetsOfCallsThatHaveLivedAreServed) {
  ServerLog server;
  server.silent = true;
  Time now{};
  EXPECT_TRUE(server.feed(hello(), now));
  std::uint32_t id = 1;
  for (int round = 0; round < 500; ++round) {
    const std::uint32_t first = id;
    for (; id < first + 200; id += 2) ASSERT_TRUE(server.feed(frame(1, 4, id, request_fields("/stream")), now));
    now += std::chrono::milliseconds(20);  // 5,000 resets a second.
    for (std::uint32_t one = first; one != id; one += 2) {
      ASSERT_TRUE(server.feed(frame(3, 0, one, std::string("\0\0\0\10", 4)), now)) << round << why(server);
    }
    take_output(server.machine, server.output);
  }
}

// The server did not run for a while: what the client has opened and given up meanwhile comes at once, and its calls
// have not lived. docs/decisions/0070.
TEST(GrpcFlood, ResetsThatCameDuringAStallAreServed) {
  ServerLog server;
  server.silent = true;
  Time now{};
  EXPECT_TRUE(server.feed(hello(), now));
  std::uint32_t id = 1;
  const auto resets = [&](std::size_t count) {
    std::string all;
    for (const std::uint32_t end = id + static_cast<std::uint32_t>(2 * count); id != end; id += 2) {
      all += frame(1, 4, id, request_fields("/stream")) + frame(3, 0, id, std::string("\0\0\0\10", 4));
    }
    const bool served = server.feed(all, now).has_value();
    take_output(server.machine, server.output);
    return served;
  };
  EXPECT_TRUE(resets(1900));  // A client that has nearly used up its tokens,
  for (int stall = 0; stall < 100; ++stall) {
    now += std::chrono::milliseconds(400);
    EXPECT_TRUE(resets(200)) << stall << why(server);  // and gives up 500 calls a second.
  }
  now += std::chrono::hours(1);
  EXPECT_FALSE(resets(2100)) << "four seconds of the rate are the most";
  EXPECT_THAT(why(server), HasSubstr("RST_STREAM"));
}

TEST(GrpcFlood, TooLargeHeaderListFailsItsCallOnly) {
  ServerLog server;
  server.silent = true;
  std::string large = request_fields("/large");
  for (int i = 0; i < 360; ++i)
    large += hpack({{"x-large", std::string(100, 'x')}});  // 50 KiB, which is 70 KiB as a list.
  EXPECT_TRUE(server.feed(hello() + frame(1, 4, 1, request_fields("/first")))) << why(server);
  ASSERT_TRUE(server.feed(frame(1, 4, 3, large))) << why(server);
  ASSERT_TRUE(server.feed(frame(1, 4, 5, request_fields("/next")))) << why(server);
  EXPECT_THAT(server.events[3].at(0), HasSubstr("too-large"));
  EXPECT_THAT(server.events[5].at(0), HasSubstr("/next"));
  std::string endless = request_fields("/endless");
  for (int i = 0; i < 400; ++i) endless += hpack({{"x-large", std::string(100, 'x')}});
  std::size_t frames = 0;
  EXPECT_TRUE(server.feed(frame(1, 0, 7, endless))) << why(server);
  while (frames < 20 && server.feed(frame(9, 0, 7, endless.substr(request_fields("/endless").size())))) ++frames;
  EXPECT_LE(frames, 5U);
}

TEST(GrpcFlood, Settings) {
  ServerLog server;
  EXPECT_LE(flood(server, 10'000, [](std::size_t) { return frame(4, 0, 0, {}); }), 300U);
}

TEST(GrpcFlood, AcknowledgementsThatAreNotRead) {
  ServerLog server;
  std::string pings = hello();
  for (int i = 0; i < 500; ++i) pings += frame(6, 0, 0, "12345678");
  EXPECT_FALSE(server.feed(pings));
}

TEST(GrpcFlood, Continuation) {
  ServerLog server;
  EXPECT_TRUE(server.feed(hello() + frame(1, 0, 1, request_fields("/unary"))));
  std::size_t count = 0;
  while (count < 1000 && server.feed(frame(9, 0, 1, hpack({{"a", "b"}})))) ++count;
  EXPECT_LE(count, 10U);
}

TEST(GrpcFlood, RapidReset) {
  ServerLog server;
  server.silent = true;
  EXPECT_LE(flood(server, 100'000,
                  [](std::size_t i) {
                    const auto id = static_cast<std::uint32_t>(2 * i + 1);
                    return frame(1, 4, id, request_fields("/stream")) + frame(3, 0, id, std::string("\0\0\0\10", 4));
                  }),
            2100U);
  EXPECT_THAT(why(server), HasSubstr("RST_STREAM"));
}

// A reset does not free the slot of a call whose handler runs.
TEST(GrpcFlood, ResetCallsKeepTheirSlots) {
  ServerLog server({.connection = {.streams_max = 8}});
  server.silent = server.hold = true;
  EXPECT_TRUE(server.feed(hello()));
  for (std::uint32_t i = 0; i < 20; ++i) {
    const std::uint32_t id = 2 * i + 1;
    ASSERT_TRUE(server.feed(frame(1, 4, id, request_fields("/stream")) + frame(3, 0, id, std::string("\0\0\0\10", 4))));
    take_output(server.machine, server.output);
  }
  EXPECT_EQ(server.events.size(), 8U);
  EXPECT_EQ(server.machine.used_streams(), 8U);
  server.machine.for_each([&](GrpcStream& stream) { server.machine.release_stream(stream); });
  ASSERT_TRUE(server.feed(frame(1, 4, 41, request_fields("/stream"))));
  EXPECT_EQ(server.events.size(), 9U);
}

TEST(GrpcFlood, EmptyData) {
  ServerLog server;
  EXPECT_TRUE(server.feed(hello() + frame(1, 4, 1, request_fields("/stream"))));
  std::size_t count = 0;
  while (count < 10'000 && server.feed(frame(0, 0, 1, {}))) ++count;
  EXPECT_LE(count, 2100U);
  EXPECT_THAT(why(server), HasSubstr("DATA"));
}

TEST(GrpcFlood, TinyWindowUpdates) {
  ServerLog server;
  EXPECT_LE(flood(server, 10'000, [](std::size_t) { return frame(8, 0, 0, std::string("\0\0\0\1", 4)); }), 2100U);
  EXPECT_THAT(why(server), HasSubstr("WINDOW_UPDATE"));
}

// The server answers each WINDOW_UPDATE by a frame of one byte, which is not useful work.
TEST(GrpcFlood, WindowUpdatesThatAreAnsweredByOneByte) {
  ServerLog server;
  EXPECT_TRUE(server.feed(std::string(preface) + frame(4, 0, 0, std::string("\0\4\0\0\0\0", 6)) + frame(4, 1, 0, {}) +
                          frame(1, 4, 1, request_fields("/unary")) +
                          frame(0, 1, 1, std::string("\0\0\0\x13\x88", 5) + std::string(5000, 'x'))));
  std::size_t count = 0;
  while (count < 4000 && server.feed(frame(8, 0, 1, std::string("\0\0\0\1", 4)))) {
    take_output(server.machine, server.output);
    ++count;
  }
  EXPECT_LE(count, 2100U);
  EXPECT_GT(server.machine.data_sent(), 1000U);
  EXPECT_THAT(why(server), HasSubstr("WINDOW_UPDATE"));
}

// nghttp2 decodes header blocks on streams that it has forgotten, and ignores them.
TEST(GrpcFlood, HeadersOnForgottenStreams) {
  ServerLog server({.connection = {.streams_max = 1000}});
  EXPECT_TRUE(server.feed(hello()));
  for (std::uint32_t i = 0; i < 3 * http2::FloodGuard::remembered_streams; ++i) {
    ASSERT_TRUE(server.feed(frame(1, 5, 2 * i + 1, request_fields("/stream"))));
  }
  take_output(server.machine, server.output);
  std::size_t count = 0;
  while (count < 10'000 && server.feed(frame(1, 5, 1, hpack({{"a", "b"}})))) ++count;
  EXPECT_LE(count, 2100U);
  EXPECT_THAT(why(server), HasSubstr("HEADERS"));
}

// A block of 16,000 references is decoded, too.
TEST(GrpcFlood, LongHeadersOnForgottenStreams) {
  http2::FloodGuard guard({}, true);
  std::string opened(http2::FloodGuard::preface_bytes, 'p');
  for (std::uint32_t i = 0; i < 3 * http2::FloodGuard::remembered_streams; ++i) opened += frame(1, 5, 2 * i + 1, {});
  ASSERT_TRUE(guard.receive(as_bytes(opened), {}));
  std::size_t count = 0;
  while (count < 1000 && guard.receive(as_bytes(frame(1, 5, 1, std::string(16'000, '\xbe'))), {})) ++count;
  EXPECT_LE(count, 40U);
}

TEST(GrpcFlood, EmptyDataWithPadding) {
  ServerLog server;
  EXPECT_TRUE(server.feed(hello() + frame(1, 4, 1, request_fields("/stream"))));
  std::size_t count = 0;
  while (count < 10'000 && server.feed(frame(0, 8, 1, std::string("\4\0\0\0\0", 5)))) ++count;
  EXPECT_LE(count, 2100U);
  EXPECT_THAT(why(server), HasSubstr("DATA"));
}

TEST(GrpcFlood, InterimResponses) {
  ClientLog client;
  client.call("/unary", "x");
  take_output(client.machine, client.output);
  ASSERT_TRUE(client.feed(frame(4, 0, 0, {})));
  std::size_t count = 0;
  while (count < 10'000 && client.feed(frame(1, 4, 1, hpack({{":status", "100"}})))) ++count;
  EXPECT_LE(count, 2100U);
  EXPECT_THAT(client.machine.failure() ? client.machine.failure()->text : "none", HasSubstr("HEADERS"));
}

// A client that cancels its calls receives header blocks for nothing.
TEST(GrpcFlood, ResponsesOfCancelledCallsAreNoFlood) {
  ClientLog client({.connection = {.flood = {.tokens_max = 10, .tokens_per_second = 1}}});
  ASSERT_TRUE(client.feed(frame(4, 0, 0, {})));
  const std::string value(120, 'v');
  for (std::uint32_t i = 0; i < 100; ++i) {
    GrpcStream& stream = client.begin("/stream");
    const auto id = static_cast<std::uint32_t>(2 * i + 1);
    take_output(client.machine, client.output);
    ASSERT_EQ(stream.id, static_cast<std::int32_t>(id));
    client.machine.reset(stream, http2::cancel);
    take_output(client.machine, client.output);
    const std::string head = hpack({{":status", "200"}, {"a", value}, {"b", value}, {"c", value}, {"d", value}});
    ASSERT_TRUE(client.feed(frame(1, 4, id, head) + frame(1, 5, id, hpack({{"grpc-status", "0"}}))))
        << i << client.machine.failure()->text;
  }
}

TEST(GrpcFlood, PriorityAndUnknownFrames) {
  for (const std::uint8_t kind : {std::uint8_t{2}, std::uint8_t{0xAA}}) {
    ServerLog server;
    EXPECT_LE(flood(server, 10'000, [&](std::size_t) { return frame(kind, 0, 1, std::string("\0\0\0\3\1", 5)); }),
              2100U);
  }
}

// The peer makes the server reset its streams: here by windows that are too large.
TEST(GrpcFlood, ResetsThatThePeerCauses) {
  ServerLog server;
  server.silent = true;
  EXPECT_LE(flood(server, 10'000,
                  [](std::size_t i) {
                    const auto id = static_cast<std::uint32_t>(2 * i + 1);
                    return frame(1, 4, id, request_fields("/stream")) + frame(8, 0, id, "\x7f\xff\xff\xff");
                  }),
            300U);
}

// One reference to a long field costs a byte. The bytes are counted as they are decoded.
TEST(GrpcFlood, HeaderListThatGrowsWhenItIsDecoded) {
  ServerLog server({.connection = {.metadata_bytes_max = 16'384}});
  std::string block = request_fields("/unary");
  block += std::string("\x40\x03x-a", 5) + std::string("\x7f\xa1\x1e", 3) + std::string(4000, 'v');  // Indexed.
  block += std::string(8000, '\xbe');                                                                // Entry 62.
  EXPECT_FALSE(server.feed(hello() + frame(1, 4, 1, block)));
  EXPECT_THAT(why(server), HasSubstr("metadata_bytes_max"));
  EXPECT_LE(server.machine.guard().tokens(), 2000);
}

// Each stream costs the peer four bytes, and the server 16 KB. They are charged, and nothing of them is kept later.
TEST(GrpcFlood, HeaderListsOfManyStreamsAreCharged) {
  detail::ReceiveBudget budget(400'000, 400'000);
  detail::ReceiveAccount account(&budget);
  ServerLog server({.connection = {.streams_max = 1000}, .plain_requests = true}, &account);
  server.silent = true;
  std::string first = request_fields("/stream");
  first += std::string("\x40\x03x-a", 5) + std::string("\x7f\xa1\x1e", 3) + std::string(4000, 'v');  // Indexed.
  ASSERT_TRUE(server.feed(hello() + frame(1, 4, 1, first)));
  const auto request = [](std::uint32_t id) {
    return frame(1, 4, id, request_fields("/stream") + "\xbe\xbe\xbe");  // Entry 62 three times.
  };
  for (std::uint32_t i = 1; i < 1000; ++i) ASSERT_TRUE(server.feed(request(2 * i + 1)));
  std::size_t held = 0;
  std::size_t refused = 0;
  server.machine.for_each([&](const GrpcStream& stream) {
    held += stream.fields.held_bytes();
    refused += stream.fields.no_memory ? 1 : 0;
  });
  EXPECT_LE(held, 400'000 + 1000 * HeaderFields::free_bytes_max);
  EXPECT_GE(refused, 900U);
  EXPECT_GE(account.used(), 300'000U);
  for (std::uint32_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(server.feed(frame(3, 0, 2 * i + 1, std::string("\0\0\0\10", 4)), Time(std::chrono::seconds(i))));
  }
  EXPECT_EQ(account.used(), 0U);
  ASSERT_TRUE(server.feed(frame(1, 4, 2001, request_fields("/stream"))));
  server.machine.for_each(
      [&](const GrpcStream& stream) { EXPECT_LE(stream.fields.held_bytes(), HeaderFields::free_bytes_max); });
}

TEST(GrpcFlood, HeaderListAboveTheLimitIsRefusedAlone) {
  ServerLog server({.connection = {.metadata_bytes_max = 1000}});
  std::string block = request_fields("/unary");
  for (int i = 0; i < 30; ++i) block += hpack({{"x-key", "value"}});
  ASSERT_TRUE(server.feed(hello() + frame(1, 4, 1, block)));
  EXPECT_THAT(server.events[1].at(0), HasSubstr("too-large"));
  EXPECT_TRUE(server.feed(frame(1, 5, 3, request_fields("/unary"))));
}

// A good client makes many calls with large replies, and acknowledges all of them.
TEST(GrpcFlood, WorkIsNoFlood) {
  MachineOptions options{.connection = {.flood = {.tokens_max = 100, .tokens_per_second = 1}}};
  ServerLog server(options);
  ClientLog client({.connection = {.stream_window_bytes = 65'535, .connection_window_bytes = 65'535},
                    .message_bytes_max = 1'000'000});
  for (int i = 0; i < 500; ++i) {
    client.call("/unary", std::string(100'000, 'x'));
    exchange(client, server);
    ASSERT_FALSE(server.machine.failure()) << i << why(server);
  }
  EXPECT_EQ(client.messages.size(), 500U);
}

// A stream of small items, whose receiver does not answer each of them.
TEST(GrpcFlood, EmptyMessagesAreNoFlood) {
  ServerLog server({.connection = {.flood = {.tokens_max = 100, .tokens_per_second = 1}}});
  server.silent = true;
  ASSERT_TRUE(server.feed(hello() + frame(1, 4, 1, request_fields("/stream"))));
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(server.feed(frame(0, 0, 1, std::string(MessageReader::prefix_bytes, '\0')))) << i << why(server);
    take_output(server.machine, server.output);
  }
  EXPECT_EQ(server.events[1].size(), 501U);
}

// Each of many calls announces a long message and sends one byte of it. What is held grows with what arrives.
TEST(GrpcFlood, MessagesThatAreOnlyAnnouncedHoldLittle) {
  detail::ReceiveBudget budget(std::size_t{1} << 30, std::size_t{1} << 30);
  detail::ReceiveAccount account(&budget);
  ServerLog server({.message_bytes_max = std::size_t{64} << 20}, &account);
  ASSERT_TRUE(server.feed(hello()));
  constexpr std::size_t calls = 50;
  const std::string prefix("\0\0\x3f\xff\xff", MessageReader::prefix_bytes);  // 4 MiB less 1.
  for (std::uint32_t i = 0; i < calls; ++i) {
    const std::uint32_t id = 2 * i + 1;
    ASSERT_TRUE(server.feed(frame(1, 4, id, request_fields("/unary")) + frame(0, 0, id, prefix + "x"))) << why(server);
  }
  EXPECT_LE(account.used(), calls * MessageReader::first_step_bytes);
  // One call goes on, byte by byte: never more than sixteen times what has arrived.
  const std::size_t others = account.used() - MessageReader::first_step_bytes;
  for (std::size_t arrived = 2; arrived < 40'000; ++arrived) {
    ASSERT_TRUE(server.feed(frame(0, 0, 1, "x"))) << why(server);
    ASSERT_LE(account.used() - others, std::max(MessageReader::first_step_bytes, 16 * arrived)) << arrived;
    take_output(server.machine, server.output);
  }
}

// A sixteenth of the message has arrived when the last step before it is full. Until then it holds steps only.
TEST(GrpcFlood, AMessageHasItsMemoryWhenASixteenthHasArrived) {
  detail::ReceiveBudget budget(std::size_t{1} << 30, std::size_t{1} << 30);
  detail::ReceiveAccount account(&budget);
  ServerLog server({.message_bytes_max = std::size_t{64} << 20}, &account);
  const std::string prefix("\0\0\x40\0\0", MessageReader::prefix_bytes);  // 4 MiB.
  ASSERT_TRUE(server.feed(hello() + frame(1, 4, 1, request_fields("/unary")) + frame(0, 0, 1, prefix))) << why(server);
  constexpr std::size_t sixteenth = std::size_t{256} << 10;
  constexpr std::size_t part = 8 * 1024;
  for (std::size_t arrived = part; arrived <= sixteenth; arrived += part) {
    ASSERT_TRUE(server.feed(frame(0, 0, 1, std::string(part, 'x')))) << why(server);
    EXPECT_LE(account.used(), std::max(MessageReader::first_step_bytes, 2 * arrived)) << arrived;
    take_output(server.machine, server.output);
  }
  EXPECT_EQ(account.used(), sixteenth);
  ASSERT_TRUE(server.feed(frame(0, 0, 1, "x"))) << why(server);
  EXPECT_EQ(account.used(), std::size_t{4} << 20);
}

// A client that sends each write of its application, also of one byte.
TEST(GrpcFlood, DataInFramesOfOneByteIsNoFlood) {
  ServerLog server({.connection = {.flood = {.tokens_max = 100, .tokens_per_second = 1}}});
  server.silent = true;
  ASSERT_TRUE(server.feed(hello() + frame(1, 4, 1, request_fields("/stream"))));
  std::string items;
  for (int i = 0; i < 200; ++i) items += std::string("\0\0\0\0\2ab", 7);
  for (const char one : items) {
    ASSERT_TRUE(server.feed(frame(0, 0, 1, std::string(1, one)))) << why(server);
    take_output(server.machine, server.output);
  }
  EXPECT_EQ(server.events[1].size(), 201U);
}

// 64 responses of 1 MiB were sent before the client's application reads them, in parts of 4 KiB.
TEST(GrpcFlood, WindowUpdatesMayComeLongAfterTheData) {
  http2::FloodGuard guard({.tokens_max = 100, .tokens_per_second = 1}, false);
  constexpr std::size_t frames = 64 * 64;
  for (std::size_t i = 0; i < frames; ++i) guard.give_sent_data(16'384);
  const std::string update = frame(8, 0, 0, std::string("\0\0\x10\0", 4));
  for (std::size_t i = 0; i < 8 * frames; ++i) ASSERT_TRUE(guard.receive(as_bytes(update), Time())) << i;
  std::size_t more = 0;
  while (more < 10 * frames && guard.receive(as_bytes(update), Time())) ++more;
  EXPECT_LE(more, 2 * frames + 101);
}

TEST(GrpcFlood, TokensComeBackWithTime) {
  http2::FloodGuard guard({.tokens_max = 10, .tokens_per_second = 10}, false);
  const std::string update = frame(8, 0, 0, std::string("\0\0\0\1", 4));
  Time now{};
  for (int i = 0; i < 1000; ++i) {
    now += std::chrono::milliseconds(100);
    ASSERT_TRUE(guard.receive(as_bytes(update), now)) << i;
  }
}

// The GOAWAY that a server sends for these frames has this error code, and a stream of the client is not a reason for
// it.
void expect_goaway(const std::string& frames, std::uint8_t code, const std::string& part) {
  ServerLog server;
  EXPECT_FALSE(server.feed(hello() + frames));
  EXPECT_THAT(why(server), HasSubstr(part));
  const std::string sent = take_output(server.machine, server.output);
  // A frame of kind 7 with 8 bytes: the last stream, and the code.
  const std::size_t at = sent.find(std::string("\0\0\x08\x07\0\0\0\0\0", 9));
  ASSERT_NE(at, std::string::npos) << part;
  EXPECT_EQ(static_cast<std::uint8_t>(sent.at(at + 16)), code) << part;
}

TEST(GrpcStreamStates, FramesAfterTheEndOfAStreamEndTheConnection) {
  const std::string headers = frame(1, 4, 1, request_fields("/stream"));
  const std::string ending_headers = frame(1, 5, 1, request_fields("/stream"));
  const std::string reset = frame(3, 0, 1, std::string("\0\0\0\10", 4));
  const std::string data = frame(0, 0, 1, "12345");
  const std::string end = frame(0, 1, 1, {});
  for (const std::string& before : {ending_headers, headers + end, headers + reset}) {
    expect_goaway(before + data, http2::FloodGuard::stream_closed_code, "STREAM_CLOSED (DATA on a stream");
    expect_goaway(before + end, http2::FloodGuard::stream_closed_code, "STREAM_CLOSED (DATA on a stream");
    expect_goaway(before + headers, http2::FloodGuard::stream_closed_code, "STREAM_CLOSED (HEADERS on a stream");
  }
  // Frames that are allowed on a closed stream.
  ServerLog server;
  EXPECT_TRUE(server.feed(hello() + headers + end + reset + frame(8, 0, 1, std::string("\0\0\0\1", 4)) +
                          frame(2, 0, 1, std::string("\0\0\0\3\1", 5))))
      << why(server);
}

TEST(GrpcStreamStates, ALowerStreamThanTheLastOneEndsTheConnection) {
  const auto headers = [](std::uint32_t id) { return frame(1, 4, id, request_fields("/stream")); };
  expect_goaway(headers(5) + headers(3), http2::FloodGuard::protocol_error_code,
                "PROTOCOL_ERROR (HEADERS open a stream");
  // Ids may be left out, and trailers are not a new stream.
  ServerLog server;
  EXPECT_TRUE(server.feed(hello() + headers(5) + headers(9) + frame(0, 0, 5, std::string(5, '\0')) +
                          frame(1, 5, 5, hpack({{"a", "b"}}))))
      << why(server);
}

// grpcio resets a call that it cancels before its HEADERS have left. The other calls of the connection go on, wherever
// the bytes are cut, and also if HEADERS of a lower stream, or of the same one, follow.
TEST(GrpcStreamStates, ResetsOfStreamsThatHaveNotBeenOpenedAreIgnored) {
  const auto headers = [](std::uint32_t id) { return frame(1, 4, id, request_fields("/stream")); };
  const auto reset = [](std::uint32_t id) { return frame(3, 0, id, std::string("\0\0\0\10", 4)); };
  const std::string first = hello() + headers(1);
  const std::string bytes = reset(7) + reset(9) + headers(5) + headers(7) + reset(5) + frame(0, 1, 1, {});
  const std::string_view view = bytes;
  for (std::size_t cut = 0; cut <= view.size(); ++cut) {
    ServerLog server;
    server.silent = true;
    ASSERT_TRUE(server.feed(first)) << why(server);
    for (const std::string_view part : {view.substr(0, cut), view.substr(cut)}) {
      ASSERT_TRUE(server.feed(part)) << cut << why(server);
    }
    EXPECT_EQ(take_output(server.machine, server.output).find("idle"), std::string::npos);
    EXPECT_EQ(server.events[1].back(), "end") << cut;
    EXPECT_EQ(server.events[5].back(), "closed 8") << cut;
    EXPECT_EQ(server.events[7].size(), 1U) << cut;
    EXPECT_EQ(server.events.count(9), 0U) << cut;
  }
  ServerLog bytewise;
  bytewise.silent = true;
  for (const char byte : first + bytes) ASSERT_TRUE(bytewise.feed(std::string(1, byte))) << why(bytewise);
  EXPECT_EQ(bytewise.events[1].back(), "end");
  // They are counted as other resets, and a stream of the server is left to nghttp2, as is the first frame of all.
  ServerLog flooded;
  EXPECT_TRUE(flooded.feed(hello() + headers(1)));
  std::size_t count = 0;
  while (count < 10'000 && flooded.feed(reset(99))) ++count;
  EXPECT_LE(count, 2100U);
  EXPECT_THAT(why(flooded), HasSubstr("RST_STREAM"));
  for (const std::string& wrong : {headers(1) + reset(2), reset(1)}) {
    ServerLog server;
    static_cast<void>(server.feed(hello() + wrong));
    take_output(server.machine, server.output);
    EXPECT_THAT(why(server), HasSubstr("PROTOCOL_ERROR"));
  }
}

// The guard remembers the last streams only. It does not take an old one for one that was never opened.
TEST(GrpcStreamStates, OldStreamsAreForgotten) {
  http2::FloodGuard guard({}, true);
  std::string opened(http2::FloodGuard::preface_bytes, 'p');
  for (std::uint32_t i = 0; i < 3 * http2::FloodGuard::remembered_streams; ++i) opened += frame(1, 5, 2 * i + 1, {});
  ASSERT_TRUE(guard.receive(as_bytes(opened), {}));
  EXPECT_TRUE(guard.receive(as_bytes(frame(1, 5, 1, {}) + frame(0, 0, 3, "12345")), {}));
  const std::string recent = frame(0, 0, 4 * http2::FloodGuard::remembered_streams + 1, "12345");
  EXPECT_FALSE(guard.receive(as_bytes(recent), {}));
  EXPECT_EQ(guard.code(), http2::FloodGuard::stream_closed_code);
}

TEST(GrpcFlood, FramesAreCountedAtEveryCut) {
  const std::string two = frame(6, 0, 0, "12345678") + frame(8, 0, 0, std::string("\0\0\0\1", 4));
  for (std::size_t cut = 0; cut <= two.size(); ++cut) {
    http2::FloodGuard guard({}, false);
    ASSERT_TRUE(guard.receive(as_bytes(std::string_view(two).substr(0, cut)), {}));
    ASSERT_TRUE(guard.receive(as_bytes(std::string_view(two).substr(cut)), {}));
    EXPECT_EQ(guard.tokens(),
              http2::FloodLimits{}.tokens_max - http2::FloodGuard::ping_cost - http2::FloodGuard::other_cost);
  }
}

}  // namespace
}  // namespace hawser::protocol::grpc::testing
