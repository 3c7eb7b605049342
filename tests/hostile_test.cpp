#include <string>

#include "base/random.h"
#include "tests/hostile/server_fixture.h"

// A server that is attacked by clients that know the wire format, and by clients that do not.
namespace hawser::hostile {

// ---- The hello ----

TEST_F(HostileClient, OtherProtocols) {
  for (const std::string_view bytes :
       {std::string_view("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string_view("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        std::string_view("PRPC\0\0\0\0\0\0\0\0", 12), std::string_view("\x16\x03\x01\x02\x00\x01\x00", 7),
        std::string_view("HWSX\1\1\0\0", 8), std::string_view("\0\0\0\0", 4)}) {
    RawSocket attacker = connected();
    attacker.send(as_bytes(bytes));
    EXPECT_TRUE(attacker.closed_by_peer()) << bytes;
  }
  EXPECT_TRUE(soon([&] { return server->counters().handshakes_failed == 6; }));
}

TEST_F(HostileClient, HellosThatAreCut) {
  const Octets hello = wire::encode_hello(usual_hello());
  std::uint64_t closed = 0;
  for (std::size_t bytes = 1; bytes < hello.size(); ++bytes) {
    RawSocket attacker = connected();
    attacker.send(first(hello, bytes));
    if (bytes % 2 == 0) {
      attacker.reset();  // The bytes may be lost with it. Then the connection does not count as a failed handshake.
    } else {
      ++closed;
    }
  }
  EXPECT_TRUE(soon([&] { return server->counters().handshakes_failed >= closed; }));
  EXPECT_LT(server->counters().handshakes_failed, hello.size());
}

TEST(HostileHello, ThatIsSlowIsCutByTheHandshakeTimeout) {
  ServerOptions options;
  options.handshake_timeout = 500ms;
  options.loop.log = no_log();
  Server server(options);
  ASSERT_TRUE(server.start());
  const Octets hello = wire::encode_hello(usual_hello());
  RawSocket silent = RawSocket::connected_to(server.address());
  RawSocket slow = RawSocket::connected_to(server.address());
  bool cut = false;
  // Far slower than the timeout allows.
  for (std::size_t i = 0; i < hello.size() && !cut; ++i) {
    cut = !slow.send(Bytes(hello).subspan(i, 1));
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_TRUE(cut || slow.closed_by_peer());
  EXPECT_TRUE(silent.closed_by_peer());
  EXPECT_TRUE(soon([&] { return server.counters().connections_open == 0; }));
}

TEST_F(HostileClient, HellosThatLie) {
  const Octets good = wire::encode_hello(usual_hello());
  const auto with = [&](std::size_t at, int value) {
    Octets hello = good;
    hello[at] = static_cast<std::byte>(value);
    return hello;
  };
  // Version 0; a range of versions with its ends swapped; a body above the limit; lengths of fields that exceed the
  // body; a number of three bytes.
  Octets long_body = good;
  store_le(long_body.data() + 6, std::uint16_t{4097});
  Octets short_field = good;
  store_le(short_field.data() + 10, std::uint16_t{3});
  Octets long_field = good;
  store_le(long_field.data() + 10, std::uint16_t{40'000});
  for (const Octets& hello : {with(4, 0), with(4, 2), long_body, short_field, long_field}) {
    RawSocket attacker = connected();
    attacker.send(hello);
    EXPECT_TRUE(attacker.closed_by_peer());
  }
  EXPECT_TRUE(soon([&] { return server->counters().handshakes_failed == 5; }));
}

// Unknown fields, and a body of the largest size, are not a reason to refuse.
TEST_F(HostileClient, HellosOfTheFuture) {
  Octets hello = wire::encode_hello(usual_hello());
  Octets field(4);
  store_le(field.data(), std::uint16_t{999});
  store_le(field.data() + 2, std::uint16_t{1000});
  for (int i = 0; i < 4; ++i) hello = hello + field + Octets(1000);
  store_le(hello.data() + 6, static_cast<std::uint16_t>(hello.size() - wire::hello_prefix_bytes));
  hello[5] = std::byte{200};  // The client speaks versions 1 to 200.
  RawSocket friendly = connected();
  friendly.send(hello);
  const Result<wire::Hello> answer = friendly.receive_hello();
  ASSERT_TRUE(answer) << error_of(answer);
  EXPECT_FALSE(answer->refusal);
  EXPECT_EQ(answer->version_max, wire::version);
  expect_alive(friendly);

  RawSocket later = connected();
  wire::Hello unknown = usual_hello();
  unknown.version_min = 2;
  unknown.version_max = 3;
  later.send(wire::encode_hello(unknown));
  const Result<wire::Hello> refusal = later.receive_hello();
  ASSERT_TRUE(refusal) << error_of(refusal);
  ASSERT_TRUE(refusal->refusal);
  EXPECT_NE(refusal->refusal->text.find("the server speaks version 1 of the protocol, the client 2 to 3"),
            std::string::npos);
  EXPECT_TRUE(later.closed_by_peer());
}

// A client that accepts no message at all could not even receive an error.
TEST_F(HostileClient, HellosWithoutRoomForAMessage) {
  for (const std::uint32_t bytes : {0U, 1U, 7U, 8U, 35U}) {
    RawSocket attacker = connected();
    wire::Hello hello = usual_hello();
    hello.message_bytes_max = bytes;
    attacker.send(wire::encode_hello(hello));
    const Result<wire::Hello> answer = attacker.receive_hello();
    ASSERT_TRUE(answer) << error_of(answer);
    ASSERT_TRUE(answer->refusal) << bytes;
    EXPECT_NE(answer->refusal->text.find("message_bytes_max"), std::string::npos);
    EXPECT_TRUE(attacker.closed_by_peer());
  }
  // The smallest value that is allowed: errors reach the client without their text.
  wire::Hello hello = usual_hello();
  hello.message_bytes_max = 36;
  RawSocket narrow = RawSocket::greeted(server->address(), hello);
  narrow.send(echo_request(call_id(0), "a reply that is too long"));
  const std::optional<RawFrame> answer = narrow.receive_frame();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.kind, FrameKind::error);
  EXPECT_EQ(static_cast<ErrorCode>(answer->header.method & 0xffffU), ErrorCode::limit_exceeded);
}

// The server's timer may be earlier than that of the client.
TEST_F(HostileClient, AHandlerThatItsDeadlineCancelsReportsTheDeadline) {
  RawHeader request = request_of<nap>(call_id(0));
  request.deadline = wire::encode_deadline(5000);
  expect_refused(message(request), call_id(0), ErrorCode::deadline_exceeded, "a stop was requested");
}

TEST_F(HostileClient, HelloTwiceAndGarbageAfterIt) {
  expect_protocol_violation(wire::encode_hello(usual_hello()), "a second hello");
  Random random(1);
  for (int round = 0; round < 50; ++round) {
    Octets garbage(1 + random.below(300));
    for (std::byte& one : garbage) one = static_cast<std::byte>(random.next());
    RawSocket attacker = greeted();
    attacker.send(garbage);
    attacker.close();
  }
}

// ---- Frames ----

TEST_F(HostileClient, FramesCutAtEveryByte) {
  const Octets frame = echo_request(call_id(0), "hello");
  for (std::size_t bytes = 0; bytes < frame.size(); ++bytes) {
    RawSocket attacker = greeted();
    attacker.send(first(frame, bytes));
    if (bytes % 3 == 0) attacker.reset();
  }
  // In a payload with a receive buffer, too.
  const Octets large = message(request_of<testing_tools::echo>(call_id(0)), text_body(""), std::string(100'000, 'x'));
  for (const std::size_t bytes : {40UL, 41UL, 1'000UL, 33'000UL, 99'999UL}) {
    RawSocket attacker = greeted();
    attacker.send(first(large, bytes));
  }
}

TEST_F(HostileClient, LengthsThatLie) {
  const Octets header(wire::header_bytes);
  expect_protocol_violation(prefix(0, 0), "no head");
  expect_protocol_violation(prefix(27, 0) + Octets(27), "a head shorter than its header");
  expect_protocol_violation(prefix(0xffff'ffff, 0), "a head of 4 GiB");
  expect_protocol_violation(prefix(28, 0xffff'ffff), "a payload of 4 GiB");
  expect_protocol_violation(prefix(0xffff'ffff, 0xffff'ffff), "8 GiB");
  expect_protocol_violation(prefix(28, 1U << 30), "1 GiB");
  expect_protocol_violation(prefix(28, message_bytes_max - 8 - 28 + 1), "one byte too many");
  // A large payload is announced with a head that is not a frame.
  expect_protocol_violation(prefix(28, 100'000) + header, "kind 0 with a payload");
}

TEST_F(HostileClient, UnknownKindsAndFlags) {
  for (const int kind : {0, 11, 12, 100, 255}) {
    expect_protocol_violation(message({.kind = static_cast<FrameKind>(kind), .call = call_id(0)}), "an unknown kind");
  }
  for (const int flags : {4, 8, 128, 255}) {
    RawHeader header = request_of<testing_tools::echo>(call_id(0));
    header.flags = static_cast<std::uint8_t>(flags);
    expect_protocol_violation(message(header, text_body("x")), "an unknown flag");
  }
  for (const FrameKind kind : {FrameKind::response, FrameKind::error}) {
    expect_protocol_violation(message({.kind = kind, .call = call_id(0)}), "a frame that only servers send");
  }
  for (const FrameKind kind :
       {FrameKind::cancel, FrameKind::ping, FrameKind::pong, FrameKind::stream_end, FrameKind::stream_credit}) {
    expect_protocol_violation(message({.kind = kind, .call = call_id(0)}, {}, "payload"),
                              "a payload where there is none");
    expect_protocol_violation(message({.kind = kind, .call = call_id(0)}, {}, std::string(50'000, 'p')), "a large one");
  }
}

TEST_F(HostileClient, MetadataAndAttachmentsThatLie) {
  RawHeader header = request_of<testing_tools::echo>(call_id(0));
  header.metadata_bytes = 100;
  expect_protocol_violation(message(header, text_body("x")), "metadata passes the frame");
  header.metadata_bytes = 5;
  expect_protocol_violation(message(header, std::string("\x03\xff\xff"
                                                        "ab",
                                                        5) +
                                                text_body("x")),
                            "an entry passes the metadata");
  header.metadata_bytes = 2;
  expect_protocol_violation(message(header, std::string("\x01\x00", 2) + text_body("x")),
                            "an entry without its lengths");
  header.metadata_bytes = 65 * 3;
  expect_protocol_violation(message(header, std::string(65 * 3, '\0') + text_body("x")), "65 entries");
  header.metadata_bytes = 0;
  header.attachment_bytes = 1;
  expect_protocol_violation(message(header, text_body("x")), "an attachment without a payload");
  header.attachment_bytes = 50'001;
  expect_protocol_violation(message(header, text_body("x"), std::string(50'000, 'a')),
                            "an attachment larger than the payload");
}

TEST_F(HostileClient, DamagedFrames) {
  wire::Hello hello = usual_hello();
  hello.checksum = true;
  for (const bool damaged : {false, true}) {
    RawSocket attacker = RawSocket::greeted(server->address(), hello);
    RawHeader header = request_of<testing_tools::echo>(call_id(0));
    header.flags = wire::flag_checksum;
    Octets frame = message(header, text_body("hello"));
    wire::write_checksum(MutableBytes(frame).subspan(8), {});
    if (damaged) frame.back() ^= std::byte{1};
    attacker.send(frame);
    if (damaged) {
      EXPECT_TRUE(attacker.closed_by_peer());
    } else {
      expect_alive(attacker);
    }
  }
}

// ---- Calls ----

TEST_F(HostileClient, CallsThatAreWrong) {
  const std::uint32_t id = call_id(0);
  RawHeader unknown = request_of<testing_tools::echo>(id);
  unknown.method ^= 1;
  expect_refused(message(unknown, text_body("x")), id, ErrorCode::unknown_method, "no handler of that name");
  expect_refused(message(unknown, text_body("x"), std::string(100'000, 'x')), id, ErrorCode::unknown_method,
                 "no handler");
  RawHeader other = request_of<testing_tools::echo>(id);
  other.signature ^= 1;
  expect_refused(message(other, text_body("x")), id, ErrorCode::signature_mismatch, "other types");
  const RawHeader good = request_of<testing_tools::echo>(id);
  expect_refused(message(good), id, ErrorCode::protocol_error, "can't decode");
  expect_refused(message(good, "\x05\x00\x00"), id, ErrorCode::protocol_error, "can't decode");
  expect_refused(message(good, std::string("\xff\xff\xff\x7f", 4)), id, ErrorCode::protocol_error, "can't decode");
  expect_refused(message(good, std::string("\xff\xff\xff\xff", 4)), id, ErrorCode::protocol_error, "can't decode");
  expect_refused(message(good, text_body("x") + "more"), id, ErrorCode::protocol_error, "follow the last value");
  expect_refused(message(good, text_body("x"), "payload!"), id, ErrorCode::protocol_error, "follows the last value");
  // The same for a coroutine.
  expect_refused(message(request_of<hold>(id), "x"), id, ErrorCode::protocol_error, "follow the last value");
}

TEST_F(HostileClient, CallIdsThatAreInUseOrTooHigh) {
  const Octets held = message(request_of<hold>(call_id(3)));
  expect_protocol_violation(held + held, "one id twice");
  expect_protocol_violation(held + message(request_of<hold>(call_id(3, 2))), "one slot twice");
  // A refusal of the second call would count as the answer of the first, which could then not be cancelled any more.
  RawHeader unknown = request_of<hold>(call_id(3));
  unknown.method ^= 1;
  expect_protocol_violation(held + message(unknown), "one id twice, for a method that does not exist");
  Octets all;
  for (std::uint32_t slot = 0; slot < calls_max; ++slot) all = all + message(request_of<hold>(call_id(slot)));
  expect_protocol_violation(all + held, "one id twice, beyond calls_per_connection_max");
  expect_refused(message(request_of<hold>(call_id(calls_max))), call_id(calls_max), ErrorCode::overloaded,
                 "calls_per_connection_max");
  expect_refused(message(request_of<hold>(0xffff'ffff)), 0xffff'ffff, ErrorCode::overloaded,
                 "calls_per_connection_max");
  // The largest number of calls that is allowed, and one more.
  RawSocket attacker = greeted();
  for (std::uint32_t slot = 0; slot < calls_max; ++slot) attacker.send(message(request_of<hold>(call_id(slot))));
  attacker.send(echo_request(call_id(calls_max)));
  expect_error(attacker, call_id(calls_max), ErrorCode::overloaded, "calls_per_connection_max");
  // The calls of the connections before may still be ending.
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == calls_max; }));
}

TEST_F(HostileClient, FramesForCallsThatAreNot) {
  RawSocket attacker = greeted();
  for (const FrameKind kind :
       {FrameKind::cancel, FrameKind::stream_end, FrameKind::stream_credit, FrameKind::stream_data}) {
    for (const std::uint32_t call : {0U, call_id(0), call_id(15), call_id(5'000), 0xffff'ffffU}) {
      attacker.send(message({.kind = kind, .call = call, .signature = 100}));
      if (kind == FrameKind::stream_data)
        attacker.send(message({.kind = kind, .call = call}, "x", std::string(100'000, 'x')));
    }
  }
  expect_alive(attacker);
  // The same for calls that have no streams.
  attacker.send(message(request_of<hold>(call_id(1))));
  attacker.send(message({.kind = FrameKind::stream_data, .call = call_id(1)}, text_body("x")));
  attacker.send(message({.kind = FrameKind::stream_credit, .call = call_id(1), .signature = 1}));
  expect_alive(attacker);
  // A CANCEL for an older generation does not reach the call that uses the slot now.
  attacker.send(message({.kind = FrameKind::cancel, .call = call_id(1, 7)}));
  expect_alive(attacker);
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 1; }));  // Besides those of background_client.
  attacker.send(message({.kind = FrameKind::cancel, .call = call_id(1)}));
  const std::optional<RawFrame> answer = attacker.receive_frame(FrameKind::response);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.call, call_id(1));
}

// ---- Streams ----

TEST_F(HostileClient, StreamsThatBreakTheirRules) {
  const std::uint32_t id = call_id(0);
  const Octets open = message(request_of<collect>(id), std::string(1, '\0'));
  const Octets item = message({.kind = FrameKind::stream_data, .call = id}, text_body(std::string(60'000, 's')));
  const Octets end = message({.kind = FrameKind::stream_end, .call = id});
  // The window is 256 KiB: the fifth item uses up the credit, and the sixth is a protocol violation.
  expect_protocol_violation(open + item + item + item + item + item + item, "items without credit");
  expect_protocol_violation(open + end + item, "an item after the end");
  expect_protocol_violation(open + end + end, "an end twice");
  Octets empty_items = open;
  const Octets empty = message({.kind = FrameKind::stream_data, .call = id}, text_body(""));
  for (int i = 0; i < 5'000; ++i) empty_items = empty_items + empty;
  expect_protocol_violation(empty_items, "empty items without credit");
  const Octets pouring = message(request_of<pour>(id));
  const Octets credit = message({.kind = FrameKind::stream_credit, .call = id, .signature = 0xffff'ffff});
  expect_protocol_violation(pouring + credit + credit + credit, "more credit than there can be");
}

// A reader that saw the end of the stream before the error would take the items for all of them.
TEST_F(HostileClient, AStreamOfACallThatFailsHasNoEndButTheError) {
  RawSocket client = greeted();
  client.send(message(request_of<pour_and_fail>(call_id(0))));
  const std::optional<RawFrame> item = client.receive_frame();
  ASSERT_TRUE(item);
  EXPECT_EQ(item->header.kind, FrameKind::stream_data);
  const std::optional<RawFrame> end = client.receive_frame();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->header.kind, FrameKind::error);
}

// ---- Floods ----

// A client that is killed while its replies wait leaves nothing behind, and the server notices it before two ping
// intervals have passed.
TEST_F(HostileClient, KilledWithItsRepliesUnread) {
  for (int round = 0; round < 3; ++round) {
    RawSocket attacker = greeted();
    // Far more than the sockets hold, so that the server stops reading.
    const std::string text(900'000, 'x');
    Octets requests;
    for (std::uint32_t i = 1; i <= calls_max; ++i) requests = requests + echo_request(call_id(0, i), text);
    std::size_t sent = 0;
    for (int idle = 0; idle < 200 && sent < 60'000'000;) {
      const std::size_t some = attacker.send_some(Bytes(requests).subspan(sent % requests.size()));
      sent += some;
      idle = some == 0 ? idle + 1 : 0;
      if (some == 0) std::this_thread::sleep_for(1ms);
    }
    attacker.reset();
  }
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 1; }));
}

TEST_F(HostileClient, PingFlood) {
  Octets pings;
  for (int i = 0; i < 1'000; ++i) pings = pings + message({.kind = FrameKind::ping});
  RawSocket attacker = greeted();
  for (int i = 0; i < 100; ++i) attacker.send(pings);
  EXPECT_TRUE(attacker.receive_frame(FrameKind::pong));
  expect_alive(attacker);
}

TEST_F(HostileClient, ManyRandomConnections) {
  Random random(2);
  const Octets hello = wire::encode_hello(usual_hello());
  const Octets request = echo_request(call_id(0));
  std::vector<RawSocket> open;
  for (int round = 0; round < 2'000; ++round) {
    RawSocket attacker = connected();
    Octets bytes = random.chance(0.7) ? hello : Octets();
    const Octets garbage = [&] {
      Octets out = random.chance(0.5) ? request : Octets(random.below(200));
      for (std::size_t i = 0, count = random.below(8); i < count && !out.empty(); ++i) {
        out[random.below(out.size())] = static_cast<std::byte>(random.next());
      }
      return out;
    }();
    attacker.send(bytes + garbage);
    if (random.chance(0.1)) attacker.reset();
    open.push_back(std::move(attacker));
    if (open.size() > 50) open[random.below(open.size())].close();
    if (open.size() > 100) open.erase(open.begin(), open.begin() + 50);
  }
}

}  // namespace hawser::hostile
