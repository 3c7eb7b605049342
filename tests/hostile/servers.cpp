#include <functional>
#include <thread>

#include "exec/condition.h"
#include "tests/hostile/server_fixture.h"

// A client whose server breaks the rules: every call ends soon, with an error that gives the reason, and nothing else
// happens.
namespace hawser::hostile {

class HostileServer : public ::testing::Test {
 protected:
  // Runs `script` with an accepted connection, and `body` with a loop beside it.
  void run(std::function<void(RawListener&)> script, std::function<Task<void>(Loop&, const std::string&)> body) {
    RawListener listener;
    std::thread thread([&] { script(listener); });
    {
      Loop loop;  // Destroyed, with all connections, before the script has to end.
      loop.run(body(loop, listener.address()));
    }
    thread.join();
  }
  // A connected client calls echo(), and the server answers with `bytes`.
  void answered_by(std::function<Octets(std::uint32_t call)> bytes, ErrorCode code, std::string_view text,
                   const char* what, ClientOptions options = {}) {
    run(
        [&](RawListener& listener) {
          RawSocket peer = listener.accept_greeted();
          const std::optional<RawFrame> request = peer.receive_frame(FrameKind::request);
          ASSERT_TRUE(request);
          peer.send(bytes(request->header.call));
          peer.closed_by_peer();
        },
        [&](Loop& loop, std::string address) -> Task<void> {
          Client client(loop, options);
          auto connected = co_await client.connect(address);
          REQUIRE_OK(connected);
          auto reply = co_await client.call<testing_tools::echo>("hello");
          EXPECT_TRUE(is_error(reply, code, text)) << what;
          client.close();
        });
  }
};

TEST_F(HostileServer, HellosThatAreNone) {
  const auto refuse = [&](const Octets& hello, ErrorCode code, std::string_view text) {
    run(
        [&](RawListener& listener) {
          RawSocket peer = listener.accept();
          peer.receive_hello();
          peer.send(hello);
          peer.closed_by_peer();
        },
        [&](Loop& loop, std::string address) -> Task<void> {
          Client client(loop, {});
          auto connected = co_await client.connect(address);
          EXPECT_TRUE(is_error(connected, code, text));
          EXPECT_FALSE(client.connected());
        });
  };
  refuse(octets("HTTP/1.1 400 Bad Request\r\n\r\n"), ErrorCode::protocol_error, "another protocol");
  wire::Hello hello{.message_bytes_max = 1U << 20, .calls_max = 16, .stream_window_bytes = 1000};
  wire::Hello wrong = hello;
  wrong.calls_max = 0;
  refuse(wire::encode_hello(wrong), ErrorCode::protocol_error, "invalid server HELLO: calls_max is 0");
  wrong = hello;
  wrong.message_bytes_max = 35;
  refuse(wire::encode_hello(wrong), ErrorCode::protocol_error, "invalid server HELLO: message_bytes_max is 35");
  wrong = hello;
  wrong.version_max = 2;
  refuse(wire::encode_hello(wrong), ErrorCode::protocol_error, "invalid server HELLO: versions 1 to 2");
  Octets long_hello = wire::encode_hello(hello);
  store_le(long_hello.data() + 6, std::uint16_t{5000});
  refuse(long_hello, ErrorCode::protocol_error, "a body of 5000 bytes exceeds 4096");
  wrong = hello;
  wrong.refusal = Error::of_connection(ErrorCode::overloaded, "come again later");
  refuse(wire::encode_hello(wrong), ErrorCode::overloaded, "come again later");
  wrong.refusal->code = static_cast<ErrorCode>(999);
  refuse(wire::encode_hello(wrong), ErrorCode::internal, "come again later");
}

TEST_F(HostileServer, NoHelloAtAll) {
  run([](RawListener& listener) { listener.accept().closed_by_peer(); },
      [](Loop& loop, std::string address) -> Task<void> {
        Client client(loop, {.connect_timeout = 100ms});
        auto connected = co_await client.connect(address);
        EXPECT_ERROR(connected, unavailable, "hello in time");
      });
  run([](RawListener& listener) { listener.accept().receive_hello(); },
      [](Loop& loop, std::string address) -> Task<void> {
        Client client(loop, {});
        auto connected = co_await client.connect(address);
        EXPECT_ERROR(connected, unavailable, "before the hello was complete");
      });
}

TEST_F(HostileServer, AnswersThatBreakTheProtocol) {
  constexpr ErrorCode unknown = ErrorCode::outcome_unknown;
  const auto response = [](std::uint32_t call, std::string_view body, std::string_view payload = {}) {
    return message({.kind = FrameKind::response, .call = call}, body, payload);
  };
  answered_by([&](std::uint32_t call) { return response(call + 1, text_body("x")); }, unknown, "which is not in flight",
              "an answer to a call that is not");
  answered_by([&](std::uint32_t call) { return response(call + (1 << 16), text_body("x")); }, unknown,
              "which is not in flight", "an answer to a later call of the slot");
  answered_by([&](std::uint32_t call) { return response(call + 1, "", std::string(100'000, 'x')); }, unknown,
              "which is not in flight", "a large one");
  answered_by([&](std::uint32_t) { return message({.kind = FrameKind::error, .call = 0}, "x"); }, unknown,
              "which is not in flight", "an error for no call");
  answered_by([&](std::uint32_t call) { return message({.kind = FrameKind::request, .call = call}); }, unknown,
              "REQUEST frame from the server: only a client sends this kind", "a request");
  answered_by([&](std::uint32_t call) { return message({.kind = FrameKind::cancel, .call = call}); }, unknown,
              "CANCEL frame from the server: only a client sends this kind", "a cancellation");
  answered_by(
      [&](std::uint32_t call) { return message({.kind = FrameKind::stream_data, .call = call}, text_body("x")); },
      unknown, "STREAM_DATA frame for a call without streams", "a stream item");
  answered_by([&](std::uint32_t) { return prefix(0xffff'ffff, 0); }, unknown, "message_bytes_max", "4 GiB");
  answered_by([&](std::uint32_t) { return prefix(28, (64U << 20) - 35); }, unknown,
              "message of 67108865 bytes exceeds message_bytes_max (64 MiB)", "one byte more than allowed");
  answered_by([&](std::uint32_t) { return prefix(3, 0) + Octets(3); }, unknown, "shorter than its header", "3 bytes");
  answered_by([&](std::uint32_t) { return octets("garbage, and not a little of it"); }, unknown, "", "garbage");
  answered_by([&](std::uint32_t call) { return message({.kind = FrameKind::response, .flags = 64, .call = call}); },
              unknown, "unknown frame flags", "a flag");
}

TEST_F(HostileServer, AnswersThatCannotBeRead) {
  const auto body = [](std::string_view bytes, std::string_view payload = {}) {
    return [bytes, payload](std::uint32_t call) {
      return message({.kind = FrameKind::response, .call = call}, bytes, payload);
    };
  };
  answered_by(body(""), ErrorCode::protocol_error, "can't decode", "no body");
  answered_by(body(std::string_view("\xff\0\0\0x", 5)), ErrorCode::protocol_error, "can't decode", "a short body");
  answered_by(body(std::string_view("\0\0\0\0x", 5)), ErrorCode::protocol_error, "follow the last value",
              "a long body");
  answered_by(body(std::string_view("\x10\0\0\x80", 4), "short"), ErrorCode::protocol_error, "payload",
              "a short payload");
  answered_by([](std::uint32_t call) { return message({.kind = FrameKind::error, .call = call, .method = 0}, "fine"); },
              ErrorCode::internal, "fine", "an error that is none");
  answered_by(
      [](std::uint32_t call) {
        return message({.kind = FrameKind::error, .call = call, .method = 0xffff'ffff}, "odd");
      },
      ErrorCode::internal, "odd", "an error of no known kind");
  answered_by([](std::uint32_t call) { return message({.kind = FrameKind::error, .call = call, .method = 6}, "full"); },
              ErrorCode::overloaded, "full", "an error as it should be");
}

TEST_F(HostileServer, AnswersThatAreCut) {
  for (const std::size_t bytes : {0UL, 1UL, 7UL, 8UL, 20UL, 36UL, 40UL}) {
    run(
        [&](RawListener& listener) {
          RawSocket peer = listener.accept_greeted();
          const std::optional<RawFrame> request = peer.receive_frame(FrameKind::request);
          ASSERT_TRUE(request);
          peer.send(
              first(message({.kind = FrameKind::response, .call = request->header.call}, text_body("hello")), bytes));
          if (bytes % 2 == 0) peer.reset();
        },
        [](Loop& loop, std::string address) -> Task<void> {
          Client client(loop, {});
          auto connected = co_await client.connect(address);
          REQUIRE_OK(connected);
          auto reply = co_await client.call<testing_tools::echo>("hello");
          EXPECT_ERROR(reply, outcome_unknown, "may have been executed");
          auto late = co_await client.call<testing_tools::echo>("late");
          EXPECT_ERROR(late, not_sent, "not connected any more");
        });
  }
  // In the middle of a payload that is being received into the caller's memory.
  run(
      [&](RawListener& listener) {
        RawSocket peer = listener.accept_greeted();
        const std::optional<RawFrame> request = peer.receive_frame(FrameKind::request);
        ASSERT_TRUE(request);
        const Octets whole = message({.kind = FrameKind::response, .call = request->header.call},
                                     std::string_view("\xa0\x86\x01\x80", 4), std::string(100'000, 'x'));
        peer.send(first(whole, 60'000));
        std::this_thread::sleep_for(10ms);
      },
      [](Loop& loop, std::string address) -> Task<void> {
        Client client(loop, {});
        auto connected = co_await client.connect(address);
        REQUIRE_OK(connected);
        std::vector<std::byte> memory(100'000);
        auto reply = co_await client.call<testing_tools::echo>("hello").into(memory);
        EXPECT_ERROR(reply, outcome_unknown, "may have been executed");
      });
}

// The connection breaks while a request of send_request() still waits to be sent.
TEST_F(HostileServer, GarbageWhileARequestIsLeaving) {
  run(
      [](RawListener& listener) {
        RawSocket peer = listener.accept_greeted();
        peer.receive(100'000);  // A part of the request.
        peer.send(Octets(100, std::byte{0xee}));
        std::this_thread::sleep_for(20ms);
      },
      [](Loop& loop, std::string address) -> Task<void> {
        Client client(loop, {});
        auto connected = co_await client.connect(address);
        REQUIRE_OK(connected);
        Scope scope;
        const std::string text = text_of(30 << 20);
        for (int i = 0; i < 2; ++i) {
          scope.spawn([](Client& from, const std::string& argument) -> Task<void> {
            auto sent = co_await from.send_request<testing_tools::echo>(argument);
            EXPECT_ERROR(sent, not_sent, "before the request was sent");
          }(client, text));
        }
        co_await scope.join();
      });
}

// The connection breaks while the writer of a stream waits until its item is sent, and a reader waits for an item. The
// first coroutine that learns of it ends the other.
TEST_F(HostileServer, GarbageWhileStreamsAreWaiting) {
  for (const bool writer_first : {false, true}) {
    run(
        [](RawListener& listener) {
          wire::Hello hello{.message_bytes_max = 64U << 20, .calls_max = 16, .stream_window_bytes = 64U << 20};
          RawSocket peer = listener.accept_greeted(hello);
          peer.receive(100'000);
          peer.send(Octets(100, std::byte{0xee}));
          std::this_thread::sleep_for(20ms);  // Then the server closes the connection, with most of the item unread.
        },
        [&](Loop& loop, std::string address) -> Task<void> {
          Client client(loop, {});
          auto connected = co_await client.connect(address);
          REQUIRE_OK(connected);
          auto call = co_await client.open<collect>(true);
          REQUIRE_OK(call);
          const std::string item = text_of(30 << 20);
          auto writer = call->writer();
          Scope writers[2];
          exec::Condition done(loop);
          bool ended = false;
          auto write = [&](Scope& other) -> Task<void> {
            auto written = co_await writer.write(item);
            EXPECT_FALSE(written);
            other.clear();
            ended = true;
            done.notify_all();
          };
          auto wait = [&](Scope& other) -> Task<void> {
            auto pinged = co_await client.ping();
            EXPECT_FALSE(pinged);
            other.clear();
            ended = true;
            done.notify_all();
          };
          writers[0].spawn(writer_first ? write(writers[1]) : wait(writers[1]));
          writers[1].spawn(writer_first ? wait(writers[0]) : write(writers[0]));
          while (!ended) {
            co_await done.wait();
          }
        });
  }
}

// More items than the client has granted, and credit beyond all windows.
TEST_F(HostileServer, StreamsThatBreakTheirRules) {
  for (const bool credit : {false, true}) {
    run(
        [&](RawListener& listener) {
          RawSocket peer = listener.accept_greeted();
          const std::optional<RawFrame> request = peer.receive_frame(FrameKind::request);
          ASSERT_TRUE(request);
          const std::uint32_t call = request->header.call;
          const Octets item =
              message({.kind = FrameKind::stream_data, .call = call}, text_body(std::string(2'000, 'x')));
          const Octets grant = message({.kind = FrameKind::stream_credit, .call = call, .signature = 0xffff'ffff});
          for (int i = 0; i < 3; ++i) peer.send(credit ? grant : item);
          peer.closed_by_peer();
        },
        [&](Loop& loop, std::string address) -> Task<void> {
          Client client(loop, {.stream_window_bytes = 4'000});
          auto connected = co_await client.connect(address);
          REQUIRE_OK(connected);
          auto call = co_await client.open<pour>();
          REQUIRE_OK(call);
          auto result = co_await call->finish();
          EXPECT_ERROR(result, outcome_unknown,
                       credit ? "STREAM_CREDIT of 4294967295 bytes raises the credit" : "STREAM_DATA without credit");
        });
  }
}

// A server that sends many PINGs to its client and does not read the answers.
TEST_F(HostileServer, FloodsOfPings) {
  run(
      [](RawListener& listener) {
        RawSocket peer = listener.accept_greeted();
        const Octets ping = message({.kind = FrameKind::ping});
        Octets pings;
        for (int i = 0; i < 1'000; ++i) pings = pings + ping;
        for (int i = 0; i < 300; ++i) peer.send(pings);
        const std::optional<RawFrame> request = peer.receive_frame(FrameKind::request);
        ASSERT_TRUE(request);
        peer.send(message({.kind = FrameKind::response, .call = request->header.call}, text_body("done")));
        peer.closed_by_peer();
      },
      [](Loop& loop, std::string address) -> Task<void> {
        Client client(loop, {});
        auto connected = co_await client.connect(address);
        REQUIRE_OK(connected);
        auto reply = co_await client.call<testing_tools::echo>("hello");
        EXPECT_EQ(reply, "done");
        client.close();
      });
}

}  // namespace hawser::hostile
