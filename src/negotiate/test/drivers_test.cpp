#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/log.h"
#include "negotiate/dial.h"
#include "negotiate/server_negotiation.h"
#include "negotiate/test/machines_testing.h"
#include "pipe/null_sink.h"
#include "transport/common/test/played_connection.h"
#include "transport/sim/sim_network.h"

// Client and server agree over a simulated network: dial() and ServerNegotiation, with transports whose steps the test
// decides.
namespace hawser::negotiate {
namespace {

using namespace std::chrono_literals;

enum class StepEnd : std::uint8_t { works, fails, never };

// A transport of one side, with the outcome of each of its steps.
struct PlayedTransport final : transport::Transport {
  explicit PlayedTransport(std::string_view of, std::string_view side) : own(of), by(side) {}
  std::string_view name() const noexcept override { return own; }
  Result<std::shared_ptr<transport::TransportWorker>> attach(Loop&) override { return std::make_shared<Worker>(*this); }

  struct Half final : transport::PendingConnection {
    explicit Half(PlayedTransport& from) : of(from) { ++of.halves; }
    ~Half() override { --of.halves; }
    std::vector<std::byte> parameters() const override {
      return octets(std::string(of.by) + "'s half of " + std::string(of.own));
    }
    void when_ready(Ready ready) override { end(of.make, std::move(ready)); }
    void connect(Bytes client, Ready ready) override {
      of.seen.emplace_back(as_text(client));
      end(of.connecting, std::move(ready));
    }
    std::unique_ptr<transport::Connection> open(std::unique_ptr<transport::Stream> stream) override {
      stream->set_sink(pipe::null_sink());
      of.streams.push_back(std::move(stream));
      return std::make_unique<transport::PlayedConnection>();
    }
    static void end(StepEnd how, Ready ready) {
      if (how == StepEnd::never) return;
      ready(how == StepEnd::works ? Result<void>() : Result<void>(no_half()));
    }
    PlayedTransport& of;
  };
  struct Worker final : transport::TransportWorker {
    explicit Worker(PlayedTransport& from) : of(from) {}
    std::vector<std::byte> offer() override { return octets("offer of " + std::string(of.own)); }
    Result<std::unique_ptr<transport::PendingConnection>> select(Bytes offer,
                                                                 const transport::MessageLimits&) override {
      of.seen.emplace_back(as_text(offer));
      return std::make_unique<Half>(of);
    }
    Result<std::unique_ptr<transport::PendingConnection>> accept(Bytes server,
                                                                 const transport::MessageLimits&) override {
      of.seen.emplace_back(as_text(server));
      return std::make_unique<Half>(of);
    }
    PlayedTransport& of;
  };

  const std::string_view own;
  const std::string_view by;
  StepEnd make = StepEnd::works;        // The step of when_ready().
  StepEnd connecting = StepEnd::works;  // The step of connect().
  int halves = 0;                       // Halves that exist.
  std::vector<std::string> seen;        // Texts from the peer for this transport.
  std::vector<std::unique_ptr<transport::Stream>> streams;
};

class Drivers : public testing::Test, transport::AcceptSink, Handshake::Done, ServerNegotiation::Outcome {
 protected:
  using Transports = std::vector<std::shared_ptr<PlayedTransport>>;

  // Connects, and returns the transport that carries the messages; empty for the stream.
  std::string agree() {
    std::string carrier;
    loop.run([](Drivers& test, std::string& result) -> Task<void> {
      Result<std::unique_ptr<transport::Listener>> listener = test.network.listen(test.loop, "server:1", test);
      EXPECT_TRUE(listener);
      if (!listener) co_return;
      test.client_transports.attach();
      const ClientOptions options;
      Result<Dialed> dialed =
          co_await dial(test.loop, test.network, "server:1", options, test.client_transports, {}, test.loop.after(60s));
      EXPECT_TRUE(dialed) << dialed.error().text;
      co_await test.loop.sleep(1s);
      EXPECT_NE(test.server_connection, nullptr);
      if (!dialed || test.server_connection == nullptr) co_return;
      result = dialed->transport;
      EXPECT_EQ(test.negotiation->machine().transport(), result);
      EXPECT_EQ(test.negotiation->on_path(), !result.empty());
      if (result.empty()) co_await test.send_over_stream(*dialed->connection);
      test.dialed = std::move(*dialed);
    }(*this, carrier));
    return carrier;
  }
  // A message of the client arrives at the server.
  Task<void> send_over_stream(transport::Connection& connection) {
    connection.start(client_sink);
    std::memcpy(connection.reserve(5), "hello", 5);
    connection.commit(5, {}, nullptr);
    connection.flush();
    co_await loop.sleep(1s);
    EXPECT_EQ(server_sink.heads, std::vector<std::string>{"hello"});
    connection.abort();
    server_connection->abort();
  }
  std::string reason(std::string_view transport) const {
    for (const TransportFallback& one : dialed.fallback_reasons) {
      if (one.transport == transport) return one.reason;
    }
    return "none";
  }
  static TransportList list(const Transports& transports) { return {transports.begin(), transports.end()}; }

  Loop loop{std::make_unique<exec::SimPoller>(), {.log = no_log()}};
  transport::SimNetwork network{1};
  const Transports client{std::make_shared<PlayedTransport>("a", "client"),
                          std::make_shared<PlayedTransport>("b", "client")};
  const Transports server{std::make_shared<PlayedTransport>("a", "server"),
                          std::make_shared<PlayedTransport>("b", "server")};
  AttachedTransports client_transports{loop, list(client), 1s};
  AttachedTransports server_transports{loop, list(server), 1s};
  std::unique_ptr<Handshake> handshake;
  std::unique_ptr<ServerNegotiation> negotiation;
  transport::PlayedSink client_sink;
  transport::PlayedSink server_sink;
  std::unique_ptr<transport::Connection> server_connection;
  Dialed dialed;

 private:
  void accepted(std::unique_ptr<transport::Stream> stream) override {
    handshake = std::make_unique<Handshake>(loop, std::move(stream), loop.after(60s), static_cast<Done&>(*this));
  }
  void on_hello(Handshake& from, Result<wire::Hello> hello) override {
    ASSERT_TRUE(hello) << hello.error().text;
    if (negotiation != nullptr) return negotiation->on_answer(answer_of(std::move(*hello)));
    negotiation = std::make_unique<ServerNegotiation>(
        loop, server_transports, from, nullptr,
        ServerSide{.terms = server_terms(), .transports = server_transports.names()}, static_cast<Outcome&>(*this));
    negotiation->begin(first_of(std::move(*hello)));
  }
  void on_sent(Handshake&) override {
    if (negotiation != nullptr) negotiation->on_sent();
  }
  void on_agreed(ServerNegotiation&, std::unique_ptr<transport::Connection> connection,
                 std::shared_ptr<const Identity>) override {
    EXPECT_EQ(server_connection, nullptr) << "once";
    server_connection = std::move(connection);
    server_connection->start(server_sink);
  }
  void on_refused(ServerNegotiation&, const HelloMessage&) override { ADD_FAILURE(); }
  void on_thrown(ServerNegotiation&, const std::exception& thrown) override { ADD_FAILURE() << thrown.what(); }
};

TEST_F(Drivers, TheFirstTransportThatWorksCarriesTheMessages) {
  EXPECT_EQ(agree(), "a");
  EXPECT_EQ(server[0]->seen, (std::vector<std::string>{"offer of a", "client's half of a"}));
  EXPECT_EQ(client[0]->seen, std::vector<std::string>{"server's half of a"});
  EXPECT_EQ(as_text(dialed.parameters), "server's half of a");
  EXPECT_NE(dialed.worker, nullptr);
  EXPECT_TRUE(client[1]->seen.empty() && server[1]->seen.empty());
  EXPECT_EQ(reason("a"), "none");
}

TEST_F(Drivers, AfterAStepThatFailsTheNextTransportIsTried) {
  server[0]->make = StepEnd::fails;
  EXPECT_EQ(agree(), "b");
  EXPECT_EQ(server[0]->halves, 0);
  EXPECT_EQ(server[1]->seen, (std::vector<std::string>{"offer of b", "client's half of b"}));
  EXPECT_EQ(reason("a"), "not here");
}

TEST_F(Drivers, AfterAStepOfTheClientThatFailsTheNextTransportIsTried) {
  client[0]->make = StepEnd::fails;
  EXPECT_EQ(agree(), "b");
  EXPECT_EQ(client[0]->seen, std::vector<std::string>{"server's half of a"});
  EXPECT_EQ(client[0]->halves + server[0]->halves, 0);
  EXPECT_EQ(client[1]->seen, std::vector<std::string>{"server's half of b"});
  EXPECT_EQ(reason("a"), "not here");
}

TEST_F(Drivers, AfterAFailureToConnectTheNextTransportIsTried) {
  server[0]->connecting = StepEnd::fails;
  EXPECT_EQ(agree(), "b");
  EXPECT_EQ(client[0]->halves + server[0]->halves, 0);
  EXPECT_EQ(reason("a"), "not here");
}

TEST_F(Drivers, AStepThatDoesNotEndIsGivenUp) {
  server[0]->make = StepEnd::never;
  server[1]->connecting = StepEnd::never;
  const Time begin = loop.now();
  EXPECT_EQ(agree(), "");
  EXPECT_GE(loop.now() - begin, 2 * AttachedTransports::step_max);
  EXPECT_EQ(client[1]->halves + server[0]->halves + server[1]->halves, 0);
  for (const char* const name : {"a", "b"}) EXPECT_TRUE(reason(name).starts_with("the server took more than 1.5 s"));
}

TEST_F(Drivers, AStepOfTheClientThatDoesNotEndIsGivenUp) {
  for (const auto& one : client) one->make = StepEnd::never;
  EXPECT_EQ(agree(), "");
  EXPECT_EQ(client[0]->halves + client[1]->halves + server[0]->halves + server[1]->halves, 0);
  for (const char* const name : {"a", "b"}) EXPECT_TRUE(reason(name).starts_with("the client took more than 1.5 s"));
}

// Each send may accept a part of the message, so that the rest follows later.
TEST_F(Drivers, HellosMayLeaveInParts) {
  network.set_options({.short_send = 1, .short_receive = 1, .short_receive_bytes_max = 3});
  server[0]->connecting = StepEnd::fails;
  EXPECT_EQ(agree(), "b");
}

TEST_F(Drivers, WithoutATransportTheStreamCarriesTheMessages) {
  for (const auto& one : server) one->make = StepEnd::fails;
  network.set_options({.short_send = 1});
  EXPECT_EQ(agree(), "");
  EXPECT_EQ(reason("a") + ", " + reason("b"), "not here, not here");
}

TEST_F(Drivers, AWorkerIsFoundByTheNameOfItsTransport) {
  EXPECT_EQ(client_transports.find("a"), nullptr) << "nothing is attached yet";
  client_transports.attach();
  ASSERT_NE(client_transports.find("b"), nullptr);
  EXPECT_EQ(client_transports.find("b")->name, "b");
  EXPECT_EQ(client_transports.find("c"), nullptr);
}

}  // namespace
}  // namespace hawser::negotiate
