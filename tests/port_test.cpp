#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "exec/sim_poller.h"
#include "hawser/change_option.h"
#include "hawser/hawser.h"
#include "hawser/protocols.h"
#include "rpc/port/byte_session.h"
#include "rpc/port/call_states.h"
#include "rpc/port/port_protocol.h"
#include "tests/background_client.h"
#include "tests/hand_network.h"
#include "tests/raw_peer.h"
#include "tests/repeat_handler.h"
#include "transport/network_access.h"

// Other protocols on the port of a server, with a protocol of one line a call: "LINE method argument\n" is answered by
// "OK result\n" or "ERR code text\n".
namespace hawser {
namespace {

using namespace testing_tools;
using rpc::PortProtocol;

constexpr std::size_t line_bytes_max = 100'000;

class LineSession final : public rpc::ByteSession {
 public:
  LineSession(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first)
      : ByteSession(host, std::move(stream), first) {}

  void go_away() override {
    begin_ending();
    if (active_calls() == 0) finish();
  }
  std::byte* begin_reply(std::uint32_t call, const codec::EncodedSize& size, const detail::ReplyExtras&) override {
    calls().answered(wire::CallId::from_number(call));
    states_.remove(call);
    if (closed()) return nullptr;
    size_ = size.body;
    std::byte* const at = reserve(size.body + 4);
    std::memcpy(at, "OK ", 3);
    at[3 + size.body] = std::byte{'\n'};
    return at + 3;
  }
  void end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) override {
    EXPECT_TRUE(pieces.empty());
    if (owner != nullptr) owner->on_send_complete();
    commit(size_ + 4);
  }
  void reply_error(std::uint32_t call, const Error& error) override {
    calls().answered(wire::CallId::from_number(call));
    states_.remove(call);
    write("ERR " + std::string(to_string(error.code)) + " " + error.text + "\n");
  }
  std::shared_ptr<detail::StreamCore> open_stream(std::uint32_t) override { return nullptr; }
  std::string_view protocol() const noexcept override { return "line"; }

 private:
  struct State {};

  std::size_t take(Bytes bytes, Block& block) override {
    const std::string_view text = as_text(bytes);
    const std::size_t end = text.find('\n');
    receiving_ = end == std::string_view::npos;
    if (receiving_ && text.size() > line_bytes_max) protocol_error("a line without an end");
    if (receiving_) return 0;
    message_received();
    host().counters.calls.add(1);
    const std::string_view line = text.substr(5, end - 5);
    const std::size_t space = std::min(line.find(' '), line.size());
    const rpc::Dispatcher::Method* const method = host().dispatcher.find(line.substr(0, space));
    const std::uint32_t id = states_.add().id;
    if (method == nullptr) {
      reply_error(id, Error::of_call(ErrorCode::unknown_method, "no such method"));
    } else if (full(host().options.calls_per_connection_max)) {
      reply_error(id, full_error(host().options.calls_per_connection_max));
    } else {
      serve(*method, {.sink = *this,
                      .call = id,
                      .body = as_bytes(line.substr(std::min(space + 1, line.size()))),
                      .head_block = &block,
                      .account = bounded_account()});
    }
    return end + 1;
  }
  bool receiving() const noexcept override { return receiving_; }
  void on_no_calls() override { finish(); }

  rpc::CallStates<State> states_;
  std::size_t size_ = 0;
  bool receiving_ = false;
};

class LineProtocol final : public PortProtocol {
 public:
  explicit LineProtocol(std::string_view magic = "LINE ") : magic_(magic) {}
  std::string_view name() const noexcept override { return "line"; }
  Match match(Bytes first) const noexcept override {
    const std::string_view text = as_text(first);
    if (text.starts_with(magic_)) return Match::yes;
    return magic_.starts_with(text) ? Match::more : Match::no;
  }
  std::unique_ptr<rpc::PortSession> open(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream,
                                         Bytes first) const override {
    return std::make_unique<LineSession>(host, std::move(stream), first);
  }
  std::string refusal(const Error& why) const override { return "ERR " + why.text + "\n"; }

 private:
  const std::string_view magic_;
};

std::atomic<int> waiting{0};
std::atomic<int> cancelled{0};

Task<void> wait_until_cancelled(Context& context) {
  waiting.fetch_add(1);
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
  cancelled.fetch_add(1);
}
Task<void> wait_for_stop(Context& context) {
  waiting.fetch_add(1);
  static_cast<void>(co_await context.loop().sleep(1h, context.stopping()));
}

class Port : public ::testing::Test {
 protected:
  Port() {
    waiting = 0;
    cancelled = 0;
    options.loop.log = [this](LogLevel level, std::string_view, std::string_view text) {
      if (level != LogLevel::warning || !text.contains(" refused: ")) return;
      warnings.fetch_add(1);
      const std::lock_guard lock(mutex);
      warning = text;
    };
  }
  void start(bool line = true) {
    server = std::make_unique<Server>(options);
    server->register_handler<testing_tools::echo>();
    server->add_method({.id = 1, .name = "Service/Repeat", .handler = std::make_unique<Repeat>()});
    server->register_handler<wait_until_cancelled, wait_for_stop>();
    if (line) server->enable(ProtocolSpec(std::make_shared<LineProtocol>()));
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  RawSocket connected(std::string_view bytes) {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes(bytes));
    return socket;
  }
  std::string name_of_waiting = std::string(method_name<wait_until_cancelled>);

  ServerOptions options;
  std::atomic<int> warnings{0};
  std::mutex mutex;
  std::string warning;  // The last one. Protected by `mutex`.
  std::unique_ptr<Server> server;
};

TEST_F(Port, TwoProtocolsShareHandlersAndCounters) {
  start();
  BackgroundClient native(server->address());
  EXPECT_TRUE(native.sees_calls(5));
  RawSocket line = connected("LINE Service/Repeat hello\nLINE Service/Repeat you\nLINE nothing x\n");
  EXPECT_EQ(line.receive_text("you\n"), "OK hello\nOK you\n");
  EXPECT_EQ(line.receive_text("\n"), "ERR unknown_method no such method\n");
  EXPECT_TRUE(native.sees_calls(5));
  EXPECT_EQ(native.complaint(), "");
  EXPECT_EQ(server->counters().connections_open, 2U);
  line.close();
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 1; }));
  native.stop();
}

TEST_F(Port, FirstBytesMayComeOneByOne) {
  start();
  const std::string_view request = "LINE Service/Repeat hello\n";
  for (std::size_t cut = 1; cut < 8; ++cut) {
    RawSocket line = connected(request.substr(0, cut));
    std::this_thread::sleep_for(2ms);
    line.send(as_bytes(request.substr(cut)));
    EXPECT_EQ(line.receive_text("\n"), "OK hello\n");
  }
  // A hello too.
  const Octets hello = wire::encode_hello(usual_hello());
  for (std::size_t cut = 1; cut < hello.size(); cut += 3) {
    RawSocket native = RawSocket::connected_to(server->address());
    native.send(first(hello, cut));
    std::this_thread::sleep_for(1ms);
    native.send(Bytes(hello).subspan(cut));
    EXPECT_TRUE(native.receive_hello());
  }
}

TEST_F(Port, SlowFirstBytesEndAtTheHandshakeTimeout) {
  options.handshake_timeout = 50ms;
  start();
  for (const std::string_view bytes : {"", "L", "LINE", "H", "HW", "HWSR"}) {
    RawSocket socket = connected(bytes);
    EXPECT_EQ(socket.receive_all(), "") << bytes;
  }
  EXPECT_TRUE(soon([&] { return server->counters().handshakes_failed == 6; }));
}

// Load balancers and monitors find out in this way whether the port is open.
TEST_F(Port, ConnectionsThatEndBeforeTheirFirstByteAreNotFaults) {
  start();
  for (int i = 0; i < 50; ++i) {
    RawSocket probe = connected("");
    if (i % 2 == 0) probe.reset();
    probe.close();
  }
  EXPECT_EQ(connected("nonsense").receive_all(), "unknown protocol: this port speaks hawser, line\n");
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 0; }));
  EXPECT_EQ(server->counters().handshakes_failed, 1U);
  // A part of the first bytes is a fault.
  connected("LI").close();
  EXPECT_TRUE(soon([&] { return server->counters().handshakes_failed == 2; }));
}

TEST_F(Port, BytesOfNoProtocolGetOneLine) {
  start();
  EXPECT_EQ(connected("\x16\x03\x01\x02").receive_all(), "unknown protocol: this port speaks hawser, line\n");
  EXPECT_EQ(connected("LANE x y\n").receive_all(), "unknown protocol: this port speaks hawser, line\n");
  EXPECT_EQ(connected("PRPC and much more than the server reads before it decides, in one segment\n").receive_all(),
            "unknown protocol: this port speaks hawser, line\n");
  const std::string http =
      "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 48\r\n\r\n"
      "unknown protocol: this port speaks hawser, line\n";
  EXPECT_EQ(connected("GET / HTTP/1.1\r\nHost: example.com\r\nUser-Agent: test\r\n\r\n").receive_all(), http);
  EXPECT_EQ(connected("POST /x HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + std::string(100'000, 'x')).receive_all(),
            http);
  EXPECT_TRUE(soon([&] { return server->counters().handshakes_failed == 5; }));
}

TEST_F(Port, AProtocolThatIsNotEnabledIsUnknown) {
  start(false);
  EXPECT_EQ(connected("LINE Service/Repeat hello\n").receive_all(), "unknown protocol: this port speaks hawser\n");
}

TEST_F(Port, LogLinesAboutUnknownBytesAreLimited) {
  start();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) connected("nonsense").receive_all();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin);
  EXPECT_GE(warnings.load(), 1);
  EXPECT_LE(warnings.load(), 2 + seconds.count());
  EXPECT_EQ(server->counters().handshakes_failed, 50U);
}

// Load balancers and clients are often set so.
TEST_F(Port, LogLinesNameTlsAndTheProxyProtocol) {
  using Sent = std::pair<std::string, std::string_view>;
  for (const auto& [bytes, reason] :
       {Sent{"\x16\x03\x01\x02", "it begins with TLS"},
        Sent{"PROXY TCP4 10.1.1.1 10.2.2.2 5000 80\r\n", "PROXY protocol"},
        Sent{std::string("\r\n\r\n\0\r\nQUIT\n", 12), "PROXY protocol"}, Sent{"nonsense", "begin with HWSR"}}) {
    start();
    EXPECT_EQ(connected(bytes).receive_all(), "unknown protocol: this port speaks hawser, line\n");
    server.reset();  // One line a second of each server.
    const std::lock_guard lock(mutex);
    EXPECT_NE(warning.find(reason), std::string::npos) << warning;
  }
}

TEST_F(Port, PeersThatDoNotCloseAfterTheLineKeepNoPlace) {
  options.handshakes_max = 2;
  start();
  std::vector<RawSocket> rude;
  for (int i = 0; i < 5; ++i) {
    rude.push_back(connected("nonsense"));
    EXPECT_EQ(rude.back().receive_text("\n"), "unknown protocol: this port speaks hawser, line\n");
  }
  EXPECT_EQ(connected("LINE Service/Repeat hello\n").receive_text("\n"), "OK hello\n");
  EXPECT_EQ(server->counters().connections_refused, 0U);
}

TEST_F(Port, ConnectionsMaxCountsEveryProtocol) {
  options.connections_max = 1;
  start();
  RawSocket first = connected("LINE Service/Repeat hello\n");
  EXPECT_EQ(first.receive_text("\n"), "OK hello\n");
  EXPECT_EQ(connected("LINE Service/Repeat hello\n").receive_all(),
            "ERR the server has connections_max (1) connections already\n");
  first.close();
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 0; }));
  EXPECT_EQ(connected("LINE Service/Repeat hello\n").receive_text("\n"), "OK hello\n");
  EXPECT_EQ(server->counters().connections_refused, 1U);
}

TEST_F(Port, CallsMaxCountsEveryProtocol) {
  options.calls_per_connection_max = 2;
  start();
  const std::string wait = "LINE " + name_of_waiting + " \n";
  RawSocket line = connected(wait + wait + wait);
  EXPECT_EQ(line.receive_text("\n"),
            "ERR overloaded the connection has 2 calls in flight already (calls_per_connection_max)\n");
  EXPECT_EQ(server->counters().calls_in_flight, 2U);
  line.close();
  EXPECT_TRUE(soon([&] { return cancelled == 2 && server->counters().calls_in_flight == 0; }));
}

TEST_F(Port, AGracefulStopWaitsForCallsOfOtherProtocols) {
  start();
  RawSocket idle = connected("LINE Service/Repeat hello\n");
  EXPECT_EQ(idle.receive_text("\n"), "OK hello\n");
  RawSocket busy = connected("LINE " + std::string(method_name<wait_for_stop>) + " \n");
  EXPECT_TRUE(soon([&] { return waiting == 1; }));
  std::thread stopper([&] { server->stop(patience); });
  EXPECT_EQ(busy.receive_all(), "OK \n");
  EXPECT_EQ(idle.receive_all(), "");
  busy.close();
  idle.close();
  stopper.join();
  EXPECT_EQ(server->counters().connections_open, 0U);
}

TEST_F(Port, TheEndOfTheGraceEndsCallsOfOtherProtocols) {
  start();
  RawSocket busy = connected("LINE " + name_of_waiting + " \n");
  EXPECT_TRUE(soon([&] { return waiting == 1; }));
  server->stop(1ms);
  EXPECT_EQ(cancelled, 1);
  EXPECT_EQ(server->counters().connections_open, 0U);
}

TEST_F(Port, ALongLineIsKeptInLargerBlocksUpToTheLimit) {
  start();
  const std::string text = text_of(90'000);
  RawSocket line = connected("LINE Service/Repeat " + text + "\n");
  EXPECT_EQ(line.receive_text("\n"), "OK " + text + "\n");
  line.send(as_bytes(std::string(300'000, 'x')));
  EXPECT_EQ(line.receive_all(), "");
  EXPECT_EQ(server->counters().protocol_errors, 1U);
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes == 0; }));
}

TEST_F(Port, APeerThatDoesNotReadIsNotReadAndEnds) {
  options.send_backlog_bytes_max = 100'000;
  start();
  BackgroundClient native(server->address());
  const std::string request = "LINE Service/Repeat " + text_of(50'000) + "\n";
  RawSocket greedy = RawSocket::connected_to(server->address());
  // The kernel's buffers take some; the rest waits until the server has closed the connection.
  bool cut = false;
  std::thread sender([&] {
    for (int i = 0; i < 2000 && !cut; ++i) cut = !greedy.send(as_bytes(request));
  });
  EXPECT_TRUE(native.sees_calls(5));
  EXPECT_EQ(native.complaint(), "");
  // The native client has ended before: on a busy machine, it might answer no ping within short intervals.
  native.stop();
  EXPECT_OK(change_option(*server, &ServerOptions::ping_interval, 50ms));
  const bool ended = soon([&] { return server->counters().connections_open == 0; });
  EXPECT_TRUE(ended);
  if (!ended) ::shutdown(greedy.fd(), SHUT_RDWR);
  sender.join();
  EXPECT_TRUE(cut);
}

TEST_F(Port, APeerThatSendsTooSlowlyEnds) {
  options.receive_window = 50ms;
  start();
  RawSocket slow = connected("LINE Service/Repeat ");
  EXPECT_EQ(slow.receive_all(), "");
  EXPECT_EQ(server->counters().slow_peers, 1U);
  // A connection between two messages may be silent.
  RawSocket silent = connected("LINE Service/Repeat hello\n");
  EXPECT_EQ(silent.receive_text("\n"), "OK hello\n");
  std::this_thread::sleep_for(200ms);
  silent.send(as_bytes("LINE Service/Repeat again\n"));
  EXPECT_EQ(silent.receive_text("\n"), "OK again\n");
}

TEST_F(Port, ManyRequestsOfOneConnectionLeaveTurnsToOthers) {
  start();
  std::string requests;
  for (int i = 0; i < 20'000; ++i) requests += "LINE Service/Repeat 12345\n";
  RawSocket eager = RawSocket::connected_to(server->address());
  std::thread sender([&] { eager.send(as_bytes(requests)); });
  const auto replies = eager.receive(20'000 * 9);
  sender.join();
  ASSERT_TRUE(replies);
  EXPECT_EQ(as_text(*replies).substr(0, 18), "OK 12345\nOK 12345\n");
}

TEST_F(Port, EnableReplacesAndRefusesAfterTheStart) {
  server = std::make_unique<Server>(options);
  server->enable(ProtocolSpec(std::make_shared<LineProtocol>("OLD ")));
  server->enable(ProtocolSpec(std::make_shared<LineProtocol>()));
  ASSERT_TRUE(server->start());
  EXPECT_EQ(connected("OLD x\n").receive_all(), "unknown protocol: this port speaks hawser, line\n");
  EXPECT_THROW(server->enable(ProtocolSpec(std::make_shared<LineProtocol>())), std::logic_error);
}

TEST(CallStates, GiveIdsWithGenerations) {
  rpc::CallStates<std::string> states;
  const auto one = states.add();
  one.state = "one";
  const auto two = states.add();
  two.state = "two";
  EXPECT_NE(one.id, two.id);
  EXPECT_EQ(*states.find(one.id), "one");
  states.remove(one.id);
  EXPECT_EQ(states.find(one.id), nullptr);
  const auto three = states.add();
  EXPECT_EQ(three.state, "");
  EXPECT_NE(three.id, one.id);
  EXPECT_EQ(states.find(one.id), nullptr);
  EXPECT_EQ(states.size(), 2U);
}

Task<void> nap(Context& context) { static_cast<void>(co_await context.loop().sleep(10ms, context.token())); }

// The server does not read while too much waits for the peer. So the peer must take that, to go on with its request.
TEST(PortInVirtualTime, APeerThatTakesNothingMayNotKeepARequestThatItHasBegun) {
  constexpr std::size_t backlog_bytes_max = 100'000;
  pipe::StreamScript script;
  script.take.assign(1000, 0);
  Loop loop{std::make_unique<exec::SimPoller>(), LoopOptions{.log = no_log()}};
  const auto run = [&loop](Duration duration) {
    loop.run([](Loop& on, Duration time) -> Task<void> { co_await on.sleep(time); }(loop, duration));
  };
  const auto network = std::make_shared<HandNetwork>();
  ServerOptions options{.listen = "by hand", .send_backlog_bytes_max = backlog_bytes_max, .ping_interval = forever};
  options.receive_window = 1s;
  options.transports.required = "stream";
  Server server(loop, over(network, options));
  server.add_method({.id = 1, .name = "Service/Repeat", .handler = std::make_unique<Repeat>()});
  server.register_handler<nap>();
  server.enable(ProtocolSpec(std::make_shared<LineProtocol>()));
  ASSERT_TRUE(server.start());
  network->accepting->accepted(std::make_unique<pipe::ScriptedStream>(script));
  // The first two replies fill the backlog up to its mark, and that of nap() exceeds it.
  const std::string half = "LINE Service/Repeat " + std::string(backlog_bytes_max / 2 - 4, 'x') + "\n";
  const std::string requests = half + half + "LINE " + std::string(method_name<nap>) + "\nLINE Service/Rep";
  const std::string rest = script.deliver(requests);
  run(1ms);  // The first bytes have shown the protocol, and its session begins.
  EXPECT_EQ(script.deliver(rest), "");
  EXPECT_FALSE(script.paused);
  run(100ms);
  EXPECT_TRUE(script.paused);
  EXPECT_EQ(server.counters().connections_open, 1U);
  run(3s);
  EXPECT_EQ(server.counters().slow_peers, 1U);
  EXPECT_EQ(server.counters().connections_open, 0U);
}

}  // namespace
}  // namespace hawser
