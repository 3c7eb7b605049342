// Options that are changed while a server runs.
#include "hawser/change_option.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/pages.h"
#include "observe/page_state.h"
#include "tests/change_option/fixture.h"
#include "tests/raw_peer.h"

namespace hawser::change_option_test {

TEST_F(ChangeOption, ExceptionTextsOfExistingConnectionsOnEachLoop) {
  start();
  std::vector<RawSocket> peers = on_each_loop();
  for (const bool shown : {false, true, false}) {
    change("exception_texts", shown ? "true" : "false");
    for (RawSocket& peer : peers) {
      peer.send(request<fails>(1, "value"));
      const auto reply = peer.receive_frame(wire::FrameKind::error);
      ASSERT_TRUE(reply);
      EXPECT_EQ(reply->body.find("secret value") != std::string::npos, shown);
    }
  }
}

TEST_F(ChangeOption, CallsMaxOfExistingConnectionsOnEachLoop) {
  start();
  std::vector<RawSocket> peers = on_each_loop();
  for (RawSocket& peer : peers) peer.send(request<wait>(1, "first"));
  ASSERT_TRUE(soon([&] { return server->counters().calls_in_flight == loops; }));
  change("calls_max", "3");
  for (RawSocket& peer : peers) {
    peer.send(request<echo>(2, "second"));
    const auto reply = peer.receive_frame(wire::FrameKind::error);
    ASSERT_TRUE(reply);
    EXPECT_THAT(reply->body, HasSubstr("the server has 3 calls in flight already (calls_max)"));
  }
  change("calls_max", "4");
  for (RawSocket& peer : peers) {
    peer.send(request<echo>(2, "third"));
    const auto reply = peer.receive_frame(wire::FrameKind::response);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->body, text_body("third"));
  }
}

TEST_F(ChangeOption, ConnectionsMaxOfNewConnections) {
  start();
  std::vector<RawSocket> peers = on_each_loop();
  change("connections_max", "3");
  for (unsigned i = 0; i < loops; ++i) {
    RawSocket refused = RawSocket::connected_to(server->address());
    refused.send(wire::encode_hello(usual_hello()));
    const Result<wire::Hello> answer = refused.receive_hello();
    ASSERT_TRUE(answer) << error_of(answer);
    ASSERT_TRUE(answer->refusal);
    EXPECT_THAT(answer->refusal->text, HasSubstr("connections_max (3)"));
  }
  change("connections_max", "100");
  const RawSocket accepted = RawSocket::greeted(server->address());
  for (RawSocket& peer : peers) {  // They were never ended.
    peer.send(request<echo>(1, "here"));
    EXPECT_TRUE(peer.receive_frame(wire::FrameKind::response));
  }
}

TEST_F(ChangeOption, TheHelloOfNewConnectionsHasTheNewValues) {
  start();
  const auto greet = [&] {
    RawSocket socket = RawSocket::connected_to(server->address());
    wire::Hello hello = usual_hello();
    hello.checksum = true;
    socket.send(wire::encode_hello(hello));
    return socket.receive_hello();
  };
  for (unsigned i = 0; i < loops; ++i) {
    const auto before = greet();
    ASSERT_TRUE(before);
    EXPECT_TRUE(before->checksum);
    EXPECT_EQ(before->calls_max, 4096u);
    EXPECT_EQ(before->stream_window_bytes, 256u * 1024);
  }
  change("checksum", "false");
  change("calls_per_connection_max", "7");
  change("stream_window_bytes", "1MiB");
  for (unsigned i = 0; i < loops; ++i) {
    const auto after = greet();
    ASSERT_TRUE(after);
    EXPECT_FALSE(after->checksum);
    EXPECT_EQ(after->calls_max, 7u);
    EXPECT_EQ(after->stream_window_bytes, 1024u * 1024);
  }
}

TEST_F(ChangeOption, PingIntervalOfExistingConnectionsOnEachLoop) {
  start({.ping_interval = forever});
  std::vector<RawSocket> peers = on_each_loop();
  std::this_thread::sleep_for(100ms);  // Longer than two of the new intervals: this silence does not count.
  change("ping_interval", "40ms");
  for (RawSocket& peer : peers) {
    EXPECT_TRUE(peer.receive_frame(wire::FrameKind::ping));
    EXPECT_TRUE(peer.closed_by_peer());
  }
  change("ping_interval", "forever");
  ASSERT_TRUE(soon([&] { return server->counters().connections_open == 0; }));
  const std::vector<RawSocket> silent = on_each_loop();
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(server->counters().connections_open, loops);
}

TEST_F(ChangeOption, SendBacklogOfExistingConnectionsOnEachLoop) {
  constexpr int requests = 2000;
  const std::string text = text_of(8000);
  start();
  std::vector<RawSocket> peers = on_each_loop();
  change("send_backlog_bytes_max", "64KiB");
  std::vector<std::thread> senders;
  // The replies of each peer are about 16 MB, which no socket holds.
  for (RawSocket& peer : peers) {
    const int small = 64 * 1024;
    setsockopt(peer.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    senders.emplace_back([&peer, &text] {
      for (int i = 0; i < requests; ++i) {
        if (!peer.send(request<echo>(static_cast<std::uint16_t>(i), text))) break;
      }
    });
  }
  // The server stops to read when its backlog is above the mark.
  std::uint64_t calls = 0;
  ASSERT_TRUE(soon([&] {
    const std::uint64_t before = std::exchange(calls, server->counters().calls);
    std::this_thread::sleep_for(100ms);
    return calls != 0 && calls == before;
  }));
  EXPECT_LT(calls, std::uint64_t{requests} * loops);
  // The peers still do not read, so that only the change lets the server continue.
  change("send_backlog_bytes_max", "64MiB");
  EXPECT_TRUE(soon([&] { return server->counters().calls >= std::uint64_t{requests} * loops; }))
      << server->counters().calls;
  for (std::thread& sender : senders) sender.join();
  change("send_backlog_bytes_max", "0");
  for (RawSocket& peer : peers) {
    for (int i = 0; i < requests; ++i) ASSERT_TRUE(peer.receive_frame(wire::FrameKind::response)) << i;
    peer.send(request<echo>(0, "last"));
    EXPECT_TRUE(peer.receive_frame(wire::FrameKind::response));
  }
}

TEST_F(ChangeOption, TheRateOfExistingConnectionsOnEachLoop) {
  start({.receive_rate_min = 0});
  std::vector<RawSocket> peers = on_each_loop();
  // The rate applies while memory is held for a message, which it is for a payload.
  const Octets begun = first(message({.method = detail::MethodFacts<echo>::id}, "head", text_of(1'000'000)), 500'000);
  for (RawSocket& peer : peers) peer.send(begun);
  change("receive_window", "400ms");
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(server->counters().slow_peers, 0u);  // The rate is not checked yet.
  change("receive_rate_min", "64KiB");
  for (RawSocket& peer : peers) EXPECT_TRUE(peer.closed_by_peer());
  EXPECT_EQ(server->counters().slow_peers, loops);
}

TEST_F(ChangeOption, HandshakesOfNewConnections) {
  start({.handshake_timeout = 1h});
  change("handshakes_max", "1");
  std::vector<RawSocket> silent;
  for (unsigned i = 0; i < 2 * loops; ++i) silent.push_back(RawSocket::connected_to(server->address()));
  for (unsigned i = 0; i < loops; ++i) EXPECT_TRUE(silent[i].closed_by_peer());  // The oldest one of each loop.
  change("handshake_timeout", "20ms");
  std::vector<RawSocket> late;
  for (unsigned i = 0; i < loops; ++i) {
    late.push_back(RawSocket::connected_to(server->address()));
    // Before their first byte, clients of the pages may be silent for longer.
    late.back().send(as_bytes(std::string_view("H")));
  }
  for (RawSocket& one : late) EXPECT_TRUE(one.closed_by_peer());
}

TEST_F(ChangeOption, BlockedLoopsAreReportedByEachLoop) {
  ServerOptions options;
  options.loop.blocked_max = 1h;
  start(options);
  std::vector<RawSocket> peers = on_each_loop();
  const auto call_all = [&] {
    for (RawSocket& peer : peers) {
      peer.send(request<blocks>(1, "x"));
      ASSERT_TRUE(peer.receive_frame(wire::FrameKind::response));
    }
  };
  call_all();
  EXPECT_EQ(lines.count("the loop did nothing else"), 0u);
  change("loop.blocked_max", "5ms");
  call_all();
  EXPECT_TRUE(soon([&] { return lines.count("blocked_max is 5 ms") >= loops; }));
}

TEST_F(ChangeOption, AServerOnTheCallersLoopTakesChanges) {
  Loop loop({.log = lines.sink()});
  Server on_loop(loop, {.calls_per_connection_max = 5});
  on_loop.register_handler<fails>();
  EXPECT_OK(change_option(on_loop, &ServerOptions::exception_texts, true));  // Before the start.
  auto run = [](Server& serving) -> Task<void> {
    REQUIRE_OK(serving.start());
    Client client(*Loop::current());
    auto connected = co_await client.connect(serving.address());
    REQUIRE_OK(connected);
    auto shown = co_await client.call<fails>("a");
    EXPECT_ERROR(shown, internal, "secret a");
    EXPECT_OK(change_option(serving, &ServerOptions::exception_texts, false));
    // The loop takes the value in its next tick.
    co_await Loop::current()->sleep(1ms);
    auto hidden = co_await client.call<fails>("b");
    EXPECT_ERROR(hidden, internal, "whose text is in the server's log");
    co_await serving.shut_down();
  };
  loop.run(run(on_loop));
  EXPECT_OK(change_option(on_loop, "calls_max", "9"));  // After the end: nobody uses it.
}

TEST_F(ChangeOption, InvalidValuesChangeNothing) {
  start({.threads = 1});
  const std::vector<OptionState> before = changeable_options(*server);
  struct Case {
    std::string_view name, value, text;
  };
  const std::string long_value(option_value_bytes_max + 1, '1');
  const Case cases[] = {
      {"calls_max", "", "is not a number"},
      {"calls_max", "-1", "is not a number"},
      {"calls_max", "1.5", "is not a number"},
      {"calls_max", "0x10", "is not a number"},
      {"calls_max", " 1", "is not a number"},
      {"calls_max", "1 ", "is not a number"},
      {"calls_max", "1KB", "such as 1000, 64KiB"},
      {"calls_max", "18446744073709551616", "from 0 to 18446744073709551615"},
      {"calls_max", "99999999999999GiB", "from 0 to 18446744073709551615"},
      {"calls_max", "0", "0 is less than 1"},
      {"calls_max", long_value, "1025 bytes, which is more than 1024"},
      {"connections_max", "0", "option connections_max: 0 is less than 1"},
      {"calls_per_connection_max", "0", "0 is less than 1"},
      {"handshakes_max", "0", "0 is less than 1"},
      {"stream_window_bytes", "0", "0 is less than 1"},
      {"stream_window_bytes", "4GiB", "from 0 to 4294967295"},
      {"handshake_timeout", "5", "is not a duration"},
      {"handshake_timeout", "s", "is not a duration"},
      {"handshake_timeout", "-5s", "is not a duration"},
      {"handshake_timeout", "9999999999999h", "at most 292 years"},
      {"handshake_timeout", "1us", "1us is less than 1ms"},
      {"ping_interval", "0s", "0s is less than 1ms"},
      {"receive_window", "1us", "receive_window (1000) is less than 1000000 ns"},  // The rule of start().
      {"checksum", "yes", "is not true or false"},
      {"loop.blocked_max", "0ns", "is less than"},
      {"message_bytes_max", "1", "cannot be changed while the server runs"},
      {"threads", "4", "cannot be changed while the server runs"},
      {"", "4", "is unknown"},
      {"no_such_option", "4", "\"no_such_option\" is unknown"},
      {"<script>\n\x1b\x80", "4", "\"<script>\\x0a\\x1b\\x80\" is unknown"},
      {"calls_max", "<b>\r\n\x1b", "\"<b>\\x0d\\x0a\\x1b\""},
  };
  for (const Case& one : cases) {
    EXPECT_ERROR(change_option(*server, one.name, one.value), invalid_argument, one.text) << one.name << one.value;
  }
  EXPECT_ERROR(change_option(*server, &ServerOptions::message_bytes_max, 1), invalid_argument, "cannot be changed");
  const std::vector<OptionState> after = changeable_options(*server);
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].value, before[i].value) << after[i].name;
    EXPECT_EQ(after[i].origin, before[i].origin) << after[i].name;
  }
  EXPECT_EQ(lines.count("audit: "), 0u);
}

TEST_F(ChangeOption, ValuesAreShownInTheFormInWhichTheyAreAccepted) {
  start({.handshake_timeout = 1500ms, .ping_interval = 2min});
  for (const OptionState& one : changeable_options(*server)) {
    EXPECT_OK(change_option(*server, one.name, one.value));
    EXPECT_EQ(value_of(one.name), one.value);
  }
  EXPECT_EQ(value_of("handshake_timeout"), "1500ms");
  EXPECT_EQ(value_of("ping_interval"), "2min");
  EXPECT_OK(change_option(*server, &ServerOptions::ping_interval, forever));
  EXPECT_EQ(value_of("ping_interval"), "forever");
  EXPECT_OK(change_option(*server, &ServerOptions::calls_max, 12));
  EXPECT_OK(change_option(*server, &ServerOptions::stream_window_bytes, 13));
  EXPECT_OK(change_option(*server, &LoopOptions::blocked_max, 14us));
  EXPECT_EQ(value_of("calls_max") + value_of("stream_window_bytes") + value_of("loop.blocked_max"), "121314us");
}

TEST_F(ChangeOption, AThousandChangesFromManyThreads) {
  constexpr int threads = 8;
  constexpr int changes = 125;
  start();
  std::vector<RawSocket> peers = on_each_loop();
  std::atomic<bool> over{false};
  std::vector<std::thread> changing;
  for (int i = 0; i < threads; ++i) {
    changing.emplace_back([&, i] {
      for (int j = 0; j < changes; ++j) {
        const int value = 1000 + i * changes + j;
        // The intervals are long enough that no connection ends.
        const Result<void> done =
            j % 3 == 0   ? change_option(*server, "calls_per_connection_max", std::to_string(value), "a thread")
            : j % 3 == 1 ? change_option(*server, "send_backlog_bytes_max", std::to_string(value * 1024), "a thread")
                         : change_option(*server, "ping_interval", std::to_string(value) + "s", "a thread");
        EXPECT_OK(done);
      }
    });
  }
  std::thread calling([&] {
    while (!over.load()) {
      for (RawSocket& peer : peers) {
        peer.send(request<echo>(1, "still"));
        const auto reply = peer.receive_frame(wire::FrameKind::response);
        ASSERT_TRUE(reply);
        ASSERT_EQ(reply->body, text_body("still"));
      }
    }
  });
  for (std::thread& one : changing) one.join();
  over.store(true);
  calling.join();
  EXPECT_EQ(lines.count("audit: option "), std::size_t{threads} * changes);
  // All loops have the value that the last change gave.
  const std::string last = value_of("calls_per_connection_max");
  change("exception_texts", "true");
  for (unsigned i = 0; i < 2 * loops; ++i) {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(wire::encode_hello(usual_hello()));
    const Result<wire::Hello> answer = socket.receive_hello();
    ASSERT_TRUE(answer);
    EXPECT_EQ(std::to_string(answer->calls_max), last);
  }
}

TEST_F(ChangeOption, AnOptionOfTheApplication) {
  std::string seen;
  own.push_back({.name = "shop.discount", .value = "5", .change = [&](std::string_view value) -> Result<void> {
                   if (value == "throw") throw std::runtime_error("thrown");
                   if (value == "again") {
                     const Result<void> inner = change_option(*server, "calls_max", "1");
                     EXPECT_ERROR(inner, invalid_argument, "within OwnOption::change");
                   }
                   if (value.size() > 10) return fail(ErrorCode::limit_exceeded, "at most 10 characters");
                   seen = value;
                   return {};
                 }});
  start();
  EXPECT_EQ(value_of("shop.discount"), "5");
  EXPECT_OK(change_option(*server, "shop.discount", "7", "an admin"));
  EXPECT_EQ(seen, "7");
  EXPECT_ERROR(change_option(*server, "shop.discount", "a long discount"), invalid_argument,
               "option shop.discount: the value \"a long discount\" is refused: at most 10 characters");
  EXPECT_ERROR(change_option(*server, "shop.discount", "throw"), invalid_argument, "an exception: thrown");
  EXPECT_EQ(value_of("shop.discount"), "7");
  EXPECT_OK(change_option(*server, "shop.discount", "again"));
  EXPECT_OK(change_option(*server, "calls_max", "77"));  // Nothing is locked.
  EXPECT_EQ(lines.count("audit: option shop.discount changed from \"5\" to \"7\" by an admin"), 1u);
  const auto accept = [](std::string_view) -> Result<void> { return {}; };
  for (const std::string_view wrong :
       {"", "nodot", "calls_max", "loop.blocked_max", "shop.discount", "a.b c", "a.<b>", "a.\n"}) {
    EXPECT_THROW(add_option(*server, {.name = std::string(wrong), .value = "1", .change = accept}), std::logic_error)
        << wrong;
  }
  EXPECT_THROW(add_option(*server, {.name = std::string(127, 'a') + ".b", .value = "1", .change = accept}),
               std::logic_error);
  EXPECT_THROW(add_option(*server, {.name = "a.b", .value = "1", .change = nullptr}), std::logic_error);
  for (std::size_t i = 1; i < own_options_max; ++i) {
    add_option(*server, {.name = "many." + std::to_string(i), .value = "1", .change = accept});
  }
  EXPECT_THROW(add_option(*server, {.name = "one.more", .value = "1", .change = accept}), std::logic_error);
}

TEST_F(ChangeOption, ThePageShowsAndChangesOptions) {
  const Tracer tracer;
  start({}, {.log = RecentLog(no_log()), .tracer = tracer});
  std::string page = ask("GET", "/options?format=json");
  EXPECT_THAT(page, HasSubstr(R"({"name":"calls_max","value":1000000,"default":1000000,"origin":"default",)"
                              R"("changeable":true})"));
  EXPECT_THAT(page, HasSubstr(R"({"name":"threads","value":3,"default":1,"origin":"the program","changeable":false})"));
  EXPECT_THAT(page, HasSubstr(R"({"name":"tracer.ratio","value":"0")"));
  EXPECT_THAT(ask("POST", "/options/change?name=calls_max&value=5000"),
              HasSubstr("\r\n\r\noption calls_max is 5000\n"));
  page = ask("GET", "/options?format=json");
  EXPECT_THAT(page, HasSubstr(R"({"name":"calls_max","value":5000,"default":1000000,"origin":"changed at 20)"));
  EXPECT_THAT(page, HasSubstr("Z by 127.0.0.1:"));
  EXPECT_EQ(lines.count("audit: option calls_max changed from \"1000000\" to \"5000\" by 127.0.0.1:"), 1u);
  // The form of the page.
  EXPECT_THAT(ask("GET", "/options", "Accept: text/html\r\n"),
              HasSubstr(R"(action="/options/change?name=calls_max"><input name="value" aria-label="new value" )"
                        R"(autocomplete="off" size="12" value="5000"> <input type="password" name="token" )"
                        R"(aria-label="token" placeholder="token" size="8" autocomplete="current-password"> )"
                        R"(<button>Change</button>)"));
  const std::string answer = ask("POST", "/options/change?name=ping_interval",
                                 "Accept: text/html\r\nOrigin: http://127.0.0.1\r\n"
                                 "Content-Type: application/x-www-form-urlencoded\r\n",
                                 "value=5%6Din");
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 303"));
  EXPECT_THAT(answer, HasSubstr("Location: /options\r\n"));
  EXPECT_EQ(value_of("ping_interval"), "5min");
  // Options of the log and of the tracer.
  for (const auto& [name, good, bad] : {std::tuple{"log.level", "debug", "loud"},
                                        {"tracer.ratio", "0.25", "1.5"},
                                        {"tracer.failed_calls", "false", "0"},
                                        {"tracer.slow_calls", "3ms", "3"}}) {
    const std::string path = "/options/change?name=" + std::string(name) + "&value=";
    EXPECT_THAT(ask("POST", path + bad), HasSubstr("HTTP/1.1 400")) << name;
    EXPECT_THAT(ask("POST", path + good), HasSubstr("HTTP/1.1 200")) << name;
    EXPECT_EQ(value_of(name), good);
  }
  EXPECT_EQ(tracer.options().ratio, 0.25);
  EXPECT_FALSE(tracer.options().failed_calls);
  EXPECT_EQ(tracer.options().slow_calls, 3ms);
  EXPECT_THAT(ask("POST", "/options/change?name=tracer.ratio&value=nan"), HasSubstr("HTTP/1.1 400"));
}

TEST_F(ChangeOption, ThePageSaysWhatIsMissingForAnOptionThatItKnows) {
  start();
  for (const char* const name : {"tracer.ratio", "tracer.failed_calls", "tracer.slow_calls"}) {
    const std::string answer = ask("POST", "/options/change?name=" + std::string(name) + "&value=1");
    EXPECT_THAT(answer, HasSubstr("HTTP/1.1 400"));
    EXPECT_THAT(answer, HasSubstr("option " + std::string(name) + " is not there")) << answer;
    EXPECT_THAT(answer, HasSubstr("PagesOptions::tracer")) << answer;
  }
  EXPECT_THAT(ask("POST", "/options/change?name=log.level&value=info"), HasSubstr("PagesOptions::log"));
  EXPECT_THAT(ask("POST", "/options/change?name=tracer.other&value=1"), HasSubstr("is unknown"));
  // The option of an application that has such a name refuses a value by itself.
  add_option(*server, {.name = "log.level", .value = "a", .change = [](std::string_view) -> Result<void> {
                         return fail(ErrorCode::invalid_argument, "not this one");
                       }});
  EXPECT_THAT(ask("POST", "/options/change?name=log.level&value=info"), HasSubstr("is refused: not this one"));
}

TEST_F(ChangeOption, ThePageAsTextSaysYesOrNo) {
  start();
  const std::string page = ask("GET", "/options?format=text");
  EXPECT_THAT(page, testing::ContainsRegex("calls_max +1,000,000 +1,000,000 +default +yes\n"));
  EXPECT_THAT(page, testing::ContainsRegex("threads +3 +1 +the program +no\n"));
  EXPECT_THAT(page, Not(HasSubstr("Change")));
}

TEST_F(ChangeOption, ThePageRefusesOtherSitesAndOtherMethods) {
  start();
  const std::string path = "/options/change?name=calls_max&value=1";
  EXPECT_THAT(ask("GET", path), HasSubstr("HTTP/1.1 405"));
  for (const char* const field :
       {"Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-site\r\n", "Origin: http://evil.example\r\n",
        "Origin: null\r\n", "X-Forwarded-For: 1.2.3.4\r\n"}) {
    EXPECT_THAT(ask("POST", path, field), HasSubstr("HTTP/1.1 403")) << field;
  }
  EXPECT_EQ(value_of("calls_max"), "1000000");
  EXPECT_EQ(lines.count("audit: POST /options/change of 127.0.0.1:"), 5u);
  EXPECT_THAT(ask("POST", "/options/change?name=calls_max"), HasSubstr("the request has no value"));
  const std::string hostile =
      ask("POST", "/options/change?name=%3Cscript%3E%0d%0aSet-Cookie:%20a%3d1&value=%1b%5B31m%ff");
  EXPECT_THAT(hostile, HasSubstr("HTTP/1.1 400"));
  EXPECT_THAT(hostile, HasSubstr("Content-Type: text/plain"));
  EXPECT_THAT(hostile, HasSubstr("option \"<script>\\x0d\\x0aSet-Cookie: a=1\" is unknown"));
  EXPECT_THAT(hostile, Not(HasSubstr("\x1b")));
}

TEST(AuditLimit, LinesOfASecondAreBounded) {
  observe::AuditLimit limit;
  const auto begin = std::chrono::steady_clock::now();
  unsigned lines = 0;
  for (int i = 0; i < 10'000; ++i) lines += limit.take() ? 1 : 0;
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GE(lines, observe::AuditLimit::lines_per_second_max);
  EXPECT_LE(lines, observe::AuditLimit::lines_per_second_max * static_cast<unsigned>(seconds + 2));
}

TEST_F(ChangeOption, AHostileValueOfTheApplicationIsEscaped) {
  own.push_back({.name = "shop.title", .value = "<script>alert(1)</script>\"'&", .change = [](std::string_view) {
                   return Result<void>();
                 }});
  start();
  const std::string page = ask("GET", "/options", "Accept: text/html\r\n");
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("value=\"&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;\""));
  EXPECT_OK(change_option(*server, "shop.title", "\"><img src=x>\x1b", "<b>\n\x1b\x80" + std::string(1000, 'y')));
  const std::string after = ask("GET", "/options", "Accept: text/html\r\n");
  EXPECT_THAT(after, Not(HasSubstr("<img")));
  EXPECT_THAT(after, Not(HasSubstr("<b>")));
  EXPECT_THAT(after, Not(HasSubstr("\x1b")));
  EXPECT_THAT(after, Not(HasSubstr(std::string(300, 'y'))));
}

TEST_F(ChangeOption, NobodyChangesOptionsWherePagesAreReadOnly) {
  start({}, {.changes = PageAccess::off});
  EXPECT_THAT(ask("POST", "/options/change?name=calls_max&value=1"), HasSubstr("HTTP/1.1 404"));
  const std::string page = ask("GET", "/options", "Accept: text/html\r\n");
  EXPECT_THAT(page, Not(HasSubstr("<form")));
  EXPECT_THAT(page, HasSubstr("calls_max"));
  EXPECT_EQ(value_of("calls_max"), "1000000");
}

}  // namespace hawser::change_option_test
