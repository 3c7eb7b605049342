#include <atomic>
#include <functional>
#include <thread>

#include "base/try.h"
#include "hawser/transport/transport.h"
#include "negotiate/attached_transports.h"
#include "negotiate/dial.h"
#include "tests/hostile/server_fixture.h"
#include "transport/common/framed_connection.h"
#include "transport/network.h"
#include "transport/network_access.h"
#include "transport/tcp/tcp_network.h"

// Peers that break the rules while a transport beside the byte stream is negotiated.
namespace hawser::hostile {

namespace {

// A transport whose pending connections exchange one word. Its messages use the byte stream itself, which is sufficient
// to see that the session was opened.
class WordTransport final : public transport::Transport,
                            public transport::TransportWorker,
                            public std::enable_shared_from_this<WordTransport> {
 public:
  std::string_view name() const noexcept override { return "word"; }
  // Simulates the removal of a device.
  void take_away() noexcept { gone_ = true; }
  bool usable() const noexcept override { return !gone_; }
  Result<std::shared_ptr<transport::TransportWorker>> attach(Loop& loop) override {
    if (gone_) return fail(ErrorCode::unavailable, "there is no word");
    loop_ = &loop;
    return shared_from_this();
  }
  std::vector<std::byte> offer() override { return octets("offer"); }
  Result<std::unique_ptr<transport::PendingConnection>> select(Bytes offer, const transport::MessageLimits&) override {
    if (as_text(offer) != "offer") return fail(ErrorCode::protocol_error, "that is not an offer");
    return std::make_unique<WordPendingConnection>(*loop_);
  }
  Result<std::unique_ptr<transport::PendingConnection>> accept(Bytes server, const transport::MessageLimits&) override {
    TRY(check_word(server));
    return std::make_unique<WordPendingConnection>(*loop_);
  }

 private:
  static Result<void> check_word(Bytes peer) {
    if (as_text(peer) != "word") return fail(ErrorCode::protocol_error, "that is not the word");
    return {};
  }
  class WordPendingConnection final : public transport::PendingConnection {
   public:
    explicit WordPendingConnection(Loop& loop) : loop_(loop) {}
    std::vector<std::byte> parameters() const override { return octets("word"); }
    void connect(Bytes client, Ready ready) override { ready(check_word(client)); }
    std::unique_ptr<transport::Connection> open(std::unique_ptr<transport::Stream> stream) override {
      return std::make_unique<transport::FramedConnection>(loop_, std::move(stream), transport::FramedOptions{});
    }

   private:
    Loop& loop_;
  };

  Loop* loop_ = nullptr;
  bool gone_ = false;
};

class WordNetwork final : public transport::Network {
 public:
  Result<std::unique_ptr<transport::Listener>> listen(Loop& loop, std::string_view address,
                                                      transport::AcceptSink& sink) override {
    return streams_.listen(loop, address, sink);
  }
  Task<Result<std::unique_ptr<transport::Stream>>> connect(Loop& loop, std::string address, Duration timeout) override {
    return streams_.connect(loop, std::move(address), timeout);
  }
  std::vector<std::shared_ptr<transport::Transport>> transports(const TransportOptions&) override {
    return {std::make_shared<WordTransport>()};
  }

 private:
  transport::TcpNetwork streams_;
};

TransportOptions with_word() { return {.order = {"word"}}; }

wire::Hello offering() {
  wire::Hello hello = usual_hello();
  hello.offers = {{"word", octets("offer")}};
  return hello;
}
wire::Hello answering(std::string_view word) {
  wire::Hello hello = usual_hello();
  hello.answer = octets(word);
  return hello;
}

}  // namespace

class HostileTransportClient : public ::testing::Test {
 protected:
  void start(ServerOptions options = {}) {
    options.transports = with_word();
    options.loop.log = no_log();
    server_ = std::make_unique<Server>(transport::over(std::make_shared<WordNetwork>(), options));
    server_->register_handler<testing_tools::echo>();
    const Result<void> started = server_->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  Server& server() { return *server_; }
  // Returns a socket that has offered the transport and has received the selection.
  RawSocket selected_for() {
    RawSocket peer = RawSocket::connected_to(server_->address());
    peer.send(wire::encode_hello(offering()));
    const Result<wire::Hello> hello = peer.receive_hello();
    EXPECT_TRUE(hello) << error_of(hello);
    if (hello) {
      EXPECT_TRUE(hello->selection && hello->selection->name == "word");
      EXPECT_FALSE(hello->ready);
    }
    return peer;
  }
  static void expect_calls_work(RawSocket& peer) {
    peer.send(echo_request(call_id(0)));
    const std::optional<RawFrame> reply = peer.receive_frame(FrameKind::response);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->header.call, call_id(0));
  }
  bool sees(std::function<bool(const ServerCounters&)> condition) {
    for (const auto end = std::chrono::steady_clock::now() + patience; !condition(server_->counters());) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }

 private:
  std::unique_ptr<Server> server_;
};

TEST_F(HostileTransportClient, AnHonestOneGoesOverTheTransport) {
  start();
  RawSocket peer = selected_for();
  peer.send(wire::encode_hello(answering("word")));
  const Result<wire::Hello> ready = peer.receive_hello();
  ASSERT_TRUE(ready) << error_of(ready);
  EXPECT_TRUE(ready->ready);
  expect_calls_work(peer);
  EXPECT_EQ(server().counters().transports_declined, 0U);
}

TEST_F(HostileTransportClient, AWrongAnswerLeavesTheStream) {
  start();
  const auto falls_back = [&](const wire::Hello& answer, std::string_view reason) {
    RawSocket peer = selected_for();
    peer.send(wire::encode_hello(answer));
    const Result<wire::Hello> hello = peer.receive_hello();
    ASSERT_TRUE(hello) << error_of(hello);
    EXPECT_FALSE(hello->ready);
    EXPECT_FALSE(hello->selection);
    ASSERT_EQ(hello->declined.size(), 1U);
    EXPECT_EQ(hello->declined[0].name, "word");
    EXPECT_EQ(as_text(hello->declined[0].bytes), reason);
    expect_calls_work(peer);
  };
  falls_back(answering("another"), "that is not the word");
  falls_back(usual_hello(), "the client did not answer the selection of this transport");
  wire::Hello unable = usual_hello();
  unable.unanswered = "no such thing here";
  falls_back(unable, "no such thing here");
  EXPECT_EQ(server().counters().transports_declined, 3U);
}

TEST_F(HostileTransportClient, AWrongOfferIsDeclinedAtOnce) {
  start();
  wire::Hello hello = offering();
  hello.offers[0].bytes = octets("nonsense");
  hello.offers.push_back({"unheard-of", {}});
  RawSocket peer = RawSocket::connected_to(server().address());
  peer.send(wire::encode_hello(hello));
  const Result<wire::Hello> answer = peer.receive_hello();
  ASSERT_TRUE(answer) << error_of(answer);
  EXPECT_FALSE(answer->selection);
  EXPECT_EQ(answer->declined.size(), 2U);
  expect_calls_work(peer);
}

TEST_F(HostileTransportClient, GarbageAfterTheSelectionEndsTheConnection) {
  start();
  RawSocket peer = selected_for();
  peer.send(octets("this is not a hello at all"));
  EXPECT_TRUE(peer.closed_by_peer());
  EXPECT_TRUE(sees([](const ServerCounters& counters) { return counters.handshakes_failed == 1; }));
  RawSocket gone = selected_for();
  gone.reset();
  EXPECT_TRUE(sees([](const ServerCounters& counters) { return counters.handshakes_failed == 2; }));
}

// Pending answers are limited in number: the oldest one gives way.
TEST_F(HostileTransportClient, SilenceAfterTheSelectionIsBounded) {
  start({.handshakes_max = 3, .handshake_timeout = forever});
  std::vector<RawSocket> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(selected_for());
  RawSocket peer = selected_for();
  EXPECT_TRUE(silent[0].closed_by_peer());
  EXPECT_TRUE(sees([](const ServerCounters& counters) { return counters.connections_refused == 1; }));
  peer.send(wire::encode_hello(answering("word")));
  EXPECT_TRUE(peer.receive_hello());
  expect_calls_work(peer);
}

// They are limited in time, too.
TEST_F(HostileTransportClient, SilenceAfterTheSelectionEnds) {
  start({.handshake_timeout = 3s});
  RawSocket silent = selected_for();
  EXPECT_TRUE(silent.closed_by_peer());
  EXPECT_TRUE(sees([](const ServerCounters& counters) { return counters.handshakes_failed == 1; }));
}

// The server may take long to answer. Meanwhile the offered transport may have gone, as another attempt has found out.
TEST(HostileTransportServer, ASelectionOfWhatHasGoneMeanwhileIsAnswered) {
  RawListener listener;
  std::atomic<bool> offered{false};
  std::atomic<bool> gone{false};
  std::thread thread([&] {
    RawSocket peer = listener.accept();
    EXPECT_TRUE(peer.receive_hello());
    offered = true;
    while (!gone) std::this_thread::sleep_for(1ms);
    wire::Hello selecting = usual_hello();
    selecting.calls_max = 16;
    selecting.selection = {"word", octets("word")};
    peer.send(wire::encode_hello(selecting));
    const Result<wire::Hello> answer = peer.receive_hello();
    ASSERT_TRUE(answer) << error_of(answer);
    EXPECT_TRUE(answer->answer || answer->unanswered);
  });
  {
    Loop loop({.log = no_log()});
    const auto word = std::make_shared<WordTransport>();
    WordNetwork network;
    negotiate::AttachedTransports transports(loop, {word}, Duration::zero());
    loop.run([&](Loop& on) -> Task<void> {
      transports.attach();
      Scope scope;
      auto dialing = [&]() -> Task<void> {
        const std::string address = listener.address();
        const ClientOptions options;
        auto dialed = co_await negotiate::dial(on, network, address, options, transports, {}, on.after(patience));
        EXPECT_FALSE(dialed);
      };
      scope.spawn(dialing());
      auto asked = co_await eventually(on, [&] { return offered.load(); });
      REQUIRE(asked);
      word->take_away();
      transports.attach();
      EXPECT_EQ(transports.all()[0].worker, nullptr);
      gone = true;
      co_await scope.join();
    }(loop));
  }
  thread.join();
}

// A server that breaks the rules: connecting ends with an error that gives the reason.
TEST(HostileTransportServer, WhatWasNotOfferedOrAgreedOnIsRefused) {
  const auto refused = [&](std::vector<wire::Hello> script, ErrorCode code, std::string_view text) {
    RawListener listener;
    std::thread thread([&] {
      RawSocket peer = listener.accept();
      for (const wire::Hello& hello : script) {
        if (!peer.receive_hello()) return;
        peer.send(wire::encode_hello(hello));
      }
      peer.closed_by_peer();
    });
    {
      LoopOptions quiet;
      quiet.log = no_log();
      Loop loop(quiet);
      loop.run([](Loop& on, std::string address, ErrorCode expected, std::string_view why) -> Task<void> {
        ClientOptions options;
        options.transports = with_word();
        Client client(on, transport::over(std::make_shared<WordNetwork>(), options));
        auto connected = co_await client.connect(address);
        EXPECT_TRUE(is_error(connected, expected, why));
        EXPECT_FALSE(client.connected());
      }(loop, listener.address(), code, text));
    }
    thread.join();
  };
  wire::Hello hello{.message_bytes_max = 1U << 20, .calls_max = 16, .stream_window_bytes = 1000};
  wire::Hello selecting = hello;
  selecting.selection = {"rdma", octets("word")};
  refused({selecting}, ErrorCode::protocol_error, "not offered");
  selecting.selection = {"word", octets("wrong")};
  refused({selecting, selecting}, ErrorCode::protocol_error, "proposes it again");
  wire::Hello ready = hello;
  ready.ready = true;
  refused({ready}, ErrorCode::protocol_error, "not agreed on");
  refused({selecting, ready}, ErrorCode::protocol_error, "not agreed on");
}

}  // namespace hawser::hostile
