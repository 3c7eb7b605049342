#include "protocol/grpc/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "protocol/grpc/compression.h"
#include "protocol/grpc/test/machine_pair.h"

namespace hawser::protocol::grpc::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

TEST(GrpcMachine, AnswersAUnaryCall) {
  ServerLog server;
  ClientLog client;
  client.call("/unary", "hello", {{"grpc-timeout", "5S"}, {"x-key", "value"}, {"x-bytes-bin", "AAE="}});
  exchange(client, server);
  EXPECT_THAT(server.events[1],
              ElementsAre("headers /unary timeout=5000000000 x-key=value x-bytes-bin=" + std::string("\0\1", 2),
                          "end with 1 hello", "closed 0"));
  EXPECT_THAT(client.messages[1], ElementsAre("hello"));
  EXPECT_EQ(client.status[1].grpc_status, 0);
  EXPECT_EQ(client.closed[1], 0U);
  EXPECT_EQ(server.machine.used_streams(), 0U);
  EXPECT_EQ(client.machine.used_streams(), 0U);
}

TEST(GrpcMachine, DeliversMessagesOfAStreamInOrder) {
  ServerLog server;
  ClientLog client;
  GrpcStream& stream = client.begin("/stream");
  for (const char* message : {"one", "", "three"}) client.machine.send_message(stream, framed(message), {}, nullptr, 7);
  client.machine.send_end(stream);
  exchange(client, server);
  EXPECT_THAT(client.messages[1], ElementsAre("one", "", "three"));
  EXPECT_EQ(client.sent, 21U);
  EXPECT_EQ(client.status[1].grpc_status, 0);
}

// The borders of what is received at a time mean nothing.
TEST(GrpcMachine, EveryCutOfTheInputGivesTheSameEvents) {
  std::string input;
  std::map<std::int32_t, std::vector<std::string>> expected;
  {
    ServerLog server;
    ClientLog client;
    client.call("/unary/1", "hello", {{"x-key", "value"}});
    client.call("/unary/2", "");
    client.call("/unary/3", std::string(400, 'x'), {{"grpc-timeout", "100m"}});
    const Result<Buffer> packed = compress(Encoding::gzip, as_bytes(std::string(1000, 'y')));
    GrpcStream& stream = client.begin("/stream", {{"grpc-encoding", "gzip"}});
    client.machine.send_message(stream, framed(packed->text(), true), {}, nullptr, 1);
    client.machine.send_message(stream, framed("plain"), {}, nullptr, 1);
    client.machine.send_end(stream);
    input = exchange(client, server);
    expected = server.events;
    ASSERT_EQ(expected.size(), 4U);
    EXPECT_THAT(expected[7], ElementsAre("headers /stream", "message " + std::string(1000, 'y'), "message plain", "end",
                                         "closed 0"));
  }
  for (std::size_t cut = 1; cut <= input.size(); ++cut) {
    ServerLog server;
    take_output(server.machine, server.output);
    ASSERT_TRUE(server.feed(std::string_view(input).substr(0, cut)));
    take_output(server.machine, server.output);
    if (cut < input.size()) {
      ASSERT_TRUE(server.feed(std::string_view(input).substr(cut)));
      take_output(server.machine, server.output);
    }
    ASSERT_EQ(server.events, expected) << "cut at " << cut;
  }
  ServerLog server;
  for (const char byte : input) {
    take_output(server.machine, server.output);
    ASSERT_TRUE(server.feed(std::string_view(&byte, 1)));
  }
  take_output(server.machine, server.output);
  EXPECT_EQ(server.events, expected);
}

TEST(GrpcMachine, LargeMessagesPassWithSmallWindows) {
  MachineOptions options{.connection = {.stream_window_bytes = 65'535, .connection_window_bytes = 65'535},
                         .message_bytes_max = 3'000'000};
  ServerLog server(options);
  ClientLog client(options);
  const std::string large(2'500'000, 'z');
  client.call("/unary", large);
  client.call("/stream", large);
  exchange(client, server);
  EXPECT_THAT(client.messages[1], ElementsAre(large));
  EXPECT_THAT(client.messages[3], ElementsAre(large));
}

// A request above the server's MAX_CONCURRENT_STREAMS waits in order. One that is cancelled meanwhile leaves at once.
TEST(GrpcMachine, ARequestThatWaitsForAStreamCanBeCancelled) {
  ServerLog server({.connection = {.streams_max = 1}});
  server.silent = true;
  ClientLog client;
  exchange(client, server);  // SETTINGS.
  GrpcStream& first = client.begin("/stream/first");
  GrpcStream& cancelled = client.begin("/stream/cancelled");
  GrpcStream& last = client.begin("/stream/last");
  EXPECT_EQ(client.machine.used_streams(), 3U);
  exchange(client, server);
  EXPECT_EQ(server.events.size(), 1U);
  client.machine.reset(cancelled, 8);
  EXPECT_EQ(client.machine.used_streams(), 2U);
  for (int i = 0; i < 1000; ++i) client.machine.reset(client.begin("/stream/more"), 8);
  EXPECT_EQ(client.machine.used_streams(), 2U);
  client.machine.send_message(last, framed("text"), {}, nullptr, 1);
  client.machine.reset(first, 8);
  exchange(client, server);
  EXPECT_THAT(server.events[3], ElementsAre("headers /stream/last", "message text"));
}

TEST(GrpcMachine, RequestsThatWaitForAStreamAreRefusedByAGoaway) {
  ServerLog server({.connection = {.streams_max = 1}});
  server.silent = true;
  ClientLog client;
  exchange(client, server);
  client.begin("/stream/first");
  client.begin("/stream/second");
  exchange(client, server);
  server.machine.announce_goaway();
  exchange(client, server);
  EXPECT_EQ(client.machine.used_streams(), 1U);
  EXPECT_EQ(client.closed[0], 7U);  // REFUSED_STREAM; the request never had an id.
}

// Memory on loan is released when it has been sent.
TEST(GrpcMachine, LoansEndWhenTheyHaveBeenSent) {
  struct Loan final : SendCompletion {
    void on_send_complete() noexcept override { ++ended; }
    int ended = 0;
  };
  ServerLog server({.message_bytes_max = 200'000});
  ClientLog client;
  const std::string text(150'000, 'q');
  Loan sent;
  GrpcStream& stream = client.begin("/unary");
  const std::size_t whole = 150'000 + MessageReader::prefix_bytes;
  Buffer head = framed(text).slice(0, MessageReader::prefix_bytes);
  const Bytes bytes = as_bytes(text);
  const ConstBuffer pieces[] = {{bytes.data(), 100'000}, {bytes.data() + 100'000, 50'000}};
  client.machine.send_message(stream, head, pieces, &sent, static_cast<std::uint32_t>(whole));
  client.machine.send_end(stream);
  EXPECT_EQ(sent.ended, 0);
  exchange(client, server);
  EXPECT_EQ(sent.ended, 1);
  EXPECT_THAT(server.events[1].at(1), "end with 1 " + text);

  // A stream that ends first ends the loan too, also when parts of it are in the output.
  Loan dropped;
  GrpcStream& second = client.begin("/unary");
  client.machine.send_message(second, head, pieces, &dropped, 1);
  client.machine.pump();
  client.machine.reset(second, 8);
  exchange(client, server);
  EXPECT_EQ(dropped.ended, 1);

  // Memory that is released must be copied, wherever it is.
  Loan copied;
  std::string scratch = text;
  GrpcStream& third = client.begin("/unary");
  const ConstBuffer one[] = {{as_bytes(scratch).data(), scratch.size()}};
  client.machine.send_message(third, head, one, &copied, 1);
  client.machine.send_end(third);
  client.machine.pump();
  client.machine.copy_and_release(copied);
  std::fill(scratch.begin(), scratch.end(), '#');
  exchange(client, server);
  EXPECT_EQ(copied.ended, 0);
  EXPECT_THAT(server.events[5].at(1), "end with 1 " + text);
}

TEST(GrpcMachine, StatusWithoutAMessageIsOneHeaderBlock) {
  struct Refusing final : ServerLog {
    void on_headers(GrpcStream& stream) override { machine.send_status(stream, 12, "no such method: 100 %"); }
  };
  Refusing server;
  ClientLog client;
  client.call("/unary", "hello");
  exchange(client, server);
  EXPECT_EQ(client.status[1].grpc_status, 12);
  EXPECT_EQ(client.status[1].grpc_message, "no such method: 100 %");
  EXPECT_EQ(client.closed[1], 0U);
  EXPECT_EQ(server.machine.used_streams(), 0U);
}

TEST(GrpcMachine, RefusesWhatIsNoMessage) {
  for (const auto& [bytes, code] : std::vector<std::pair<std::string, std::string>>{
           {std::string("\2\0\0\0\0", 5), "bad protocol_error"},        // An unknown flag.
           {std::string("\1\0\0\0\1x", 6), "bad internal"},             // Compressed without an encoding.
           {std::string("\0\0\1\0\0", 5), "bad limit_exceeded"},        // 64 KiB, where 1,000 bytes are the limit.
           {std::string("\0\0\0\0\5abc", 8), "bad protocol_error"}}) {  // Cut off.
    ServerLog server({.message_bytes_max = 1000});
    ASSERT_TRUE(server.feed(hello() + frame(1, 4, 1, request_fields("/unary")) + frame(0, 1, 1, bytes)));
    EXPECT_THAT(server.events[1].at(1), code);
  }
}

// The sink has the charge for a message that it decompresses later. So its memory is the sink's alone.
TEST(GrpcMachine, KeepsNoMessageThatTheSinkDecompresses) {
  struct Later final : ServerLog {
    bool on_packed(std::uint32_t call, PackedMessage&& packed, detail::ReceiveCharge&&) override {
      last_call = call;
      kept = std::move(packed);
      return true;
    }
    std::uint32_t last_call = 0;
    PackedMessage kept;
  };
  std::string text(40'000, ' ');
  std::uint32_t number = 1;
  for (char& c : text) c = static_cast<char>((number = number * 1'664'525 + 1'013'904'223) >> 24);
  const Result<Buffer> packed = compress(Encoding::gzip, as_bytes(text));
  Later server;
  ClientLog client;
  GrpcStream& stream = client.begin("/stream", {{"grpc-encoding", "gzip"}});
  client.machine.send_message(stream, framed(packed->text(), true), {}, nullptr, 1);
  exchange(client, server);
  ASSERT_EQ(server.kept.bytes.size(), packed->size());
  EXPECT_TRUE(server.kept.bytes.block()->unique()) << "the stream keeps memory that nobody pays for";
  server.machine.unpacked(server.last_call, unpack(server.kept));
  client.machine.send_end(stream);
  exchange(client, server);
  EXPECT_THAT(client.messages[1], ElementsAre(text));
}

// The session decompresses it.
TEST(GrpcMachine, AUnaryMessageStaysCompressedAtAServer) {
  const std::string packed(compress(Encoding::gzip, as_bytes(std::string(1000, 'y')))->text());
  ServerLog server;
  ClientLog client;
  GrpcStream& stream = client.begin("/unary", {{"grpc-encoding", "gzip"}});
  client.machine.send_message(stream, framed(packed, true), {}, nullptr, 1);
  client.machine.send_end(stream);
  exchange(client, server);
  EXPECT_THAT(server.events[1], ElementsAre("headers /unary", "end with 1 " + packed, "closed 0"));
}

// While the sink does not allow it, nothing behind the first compressed message is taken.
TEST(GrpcMachine, ItemsWaitCompressedUntilTheyAreReleased) {
  struct Guarded final : ServerLog {
    bool may_unpack(const GrpcStream& stream) const noexcept override {
      call = stream.call;
      return allowed;
    }
    mutable std::uint32_t call = 0;
    bool allowed = false;
  };
  const std::string packed(compress(Encoding::gzip, as_bytes(std::string(1000, 'y')))->text());
  for (const bool released : {true, false}) {
    Guarded server;
    server.hold = true;
    ClientLog client;
    GrpcStream& stream = client.begin("/stream", {{"grpc-encoding", "gzip"}});
    client.machine.send_message(stream, framed("plain"), {}, nullptr, 1);
    for (int i = 0; i < 2; ++i) client.machine.send_message(stream, framed(packed, true), {}, nullptr, 1);
    client.machine.send_end(stream);
    exchange(client, server);
    EXPECT_THAT(server.events[1], ElementsAre("headers /stream", "message plain"));
    ASSERT_NE(server.call, 0U);
    if (!released) {
      server.machine.send_status(*server.machine.find(server.call), 16, "refused");
      server.machine.release_stream(*server.machine.find(server.call));
      exchange(client, server);
      EXPECT_THAT(server.events[1], ElementsAre("headers /stream", "message plain", "closed 0"));
      EXPECT_EQ(server.machine.used_streams(), 0U);
      continue;
    }
    server.allowed = true;
    server.machine.release_packed(server.call);
    const std::string item = "message " + std::string(1000, 'y');
    EXPECT_THAT(server.events[1], ElementsAre("headers /stream", "message plain", item, item, "end"));
  }
}

TEST(GrpcMachine, TakesNoMoreThanItsWindowFromAStreamThatNobodyReads) {
  MachineOptions options{.connection = {.stream_window_bytes = 65'535}, .message_bytes_max = 1000};
  ServerLog server(options);
  server.silent = true;
  ClientLog client;
  GrpcStream& stream = client.begin("/stream");
  for (int i = 0; i < 1000; ++i) client.machine.send_message(stream, framed(std::string(995, 'x')), {}, nullptr, 1);
  exchange(client, server);
  // One window of messages, and one of bytes behind them.
  EXPECT_LE(server.events[1].size(), 68U);
  EXPECT_GE(client.machine.waiting_bytes(), 1000U * 1000 - 3U * 65'535);
  // When somebody reads, the rest follows.
  GrpcStream* const held = server.machine.find(0x10000);
  ASSERT_NE(held, nullptr);
  while (held->held_bytes != 0) {
    server.machine.release(*held, held->held_bytes);
    exchange(client, server);
  }
  EXPECT_EQ(client.machine.waiting_bytes(), 0U);
  EXPECT_EQ(server.events[1].size(), 1001U);
}

// Calls that are open when a server goes away are answered.
// The GOAWAY of grpc-go's clients names the highest id. It is a regular end, and no fault of the client.
TEST(GrpcMachine, AClientEndsWithGoaway) {
  for (const std::string& last : {std::string("\x7f\xff\xff\xff"), std::string(4, '\0')}) {
    ServerLog server;
    ASSERT_TRUE(server.feed(hello() + frame(7, 0, 0, last + std::string(4, '\0') + "client transport shutdown")));
    take_output(server.machine, server.output);
    EXPECT_FALSE(server.machine.failure()) << server.machine.failure()->text;
    EXPECT_TRUE(server.machine.finished());
  }
  ServerLog server;
  static_cast<void>(server.feed(hello() + frame(7, 0, 0, std::string("\x7f\xff\xff\xff\0\0\0\1", 8) + "why")));
  take_output(server.machine, server.output);
  ASSERT_TRUE(server.machine.failure());
  EXPECT_EQ(server.machine.failure()->text, "HTTP/2: the client ended the connection with GOAWAY PROTOCOL_ERROR (why)");
}

TEST(GrpcMachine, GoawayComesInTwoSteps) {
  ServerLog server;
  ClientLog client;
  GrpcStream& open = client.begin("/stream");
  client.machine.send_message(open, framed("first"), {}, nullptr, 1);
  exchange(client, server);
  server.machine.ping();  // Its acknowledgement does not complete the first step.
  exchange(client, server);
  EXPECT_EQ(server.pongs, 1U);
  EXPECT_EQ(server.goaway_pongs, 0U);
  server.machine.announce_goaway();
  exchange(client, server);
  EXPECT_THAT(client.goaways, ElementsAre("2147483647 0 "));
  EXPECT_EQ(server.pongs, 2U);
  EXPECT_EQ(server.goaway_pongs, 1U);
  server.machine.send_goaway(0, "");
  exchange(client, server);
  EXPECT_THAT(client.goaways, ElementsAre("2147483647 0 ", "1 0 "));
  EXPECT_FALSE(server.machine.finished());
  client.machine.send_message(open, framed("second"), {}, nullptr, 1);
  client.machine.send_end(open);
  exchange(client, server);
  EXPECT_THAT(client.messages[1], ElementsAre("first", "second"));
  EXPECT_TRUE(server.machine.finished());
}

}  // namespace
}  // namespace hawser::protocol::grpc::testing
