#include "transport/ucx/ucx_transport.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <random>

#include "transport/conformance/transport_testing.h"
#include "transport/ucx/connection/ucx_connection.h"
#include "transport/ucx/connection/ucx_transport_worker.h"
#include "transport/ucx/core/ucx_listener.h"

namespace hawser::transport {
namespace {

UcxOptions over(const std::string& tls) {
  return {.tls = tls, .error_mode = UcxErrorMode::none, .wire_up = UcxWireUp::worker_address};
}

TransportCase two_loops(const UcxOptions& options) {
  return transport_cases("ucx", [options] { return make_ucx_transport(options); }, {})[2];
}

// Skips the test if UCX is not available or does not support `options`.
#define NEED_UCX(options) \
  if (const auto there = ucx_report(options); !there) GTEST_SKIP() << there.error().text

std::string refusal_of(const UcxOptions& options) {
  Loop loop({.log = no_log()});
  const Result<std::shared_ptr<TransportWorker>> end = make_ucx_transport(options)->attach(loop);
  return end ? "accepted" : end.error().text;
}

TEST(UcxTransport, OptionsOutOfBoundsAreTold) {
  NEED_UCX({});
  const auto refused = [](const UcxOptions& options, const std::string& field) {
    EXPECT_NE(refusal_of(options).find(field), std::string::npos) << field << ": " << refusal_of(options);
  };
  refused({.max_eager_rails = 17}, "max_eager_rails");
  refused({.max_rendezvous_rails = 17}, "max_rendezvous_rails");
  refused({.rendezvous_bytes_min = 100}, "rendezvous_bytes_min");
  refused({.registered_bytes_min = 100}, "registered_bytes_min");
  refused({.packed_bytes_max = 100}, "packed_bytes_max");
  refused({.packed_bytes_max = 1 << 20}, "packed_bytes_max");
  refused({.window_bytes = 1000}, "window_bytes");
  refused({.rendezvous_in_flight_max = 0}, "rendezvous_in_flight_max");
  refused({.poll_burst = 0}, "poll_burst");
  refused({.connections_max = 0}, "connections_max");
  refused({.half_open_max = 0}, "half_open_max");
  refused({.wire_up_timeout = Duration::zero()}, "wire_up_timeout");
  refused({.tls = "no_such_transport"}, "no_such_transport");
  refused({.tls = "tcp", .net_devices = "no_such_device"}, "no_such_device");
  EXPECT_EQ(refusal_of({.tls = "tcp", .max_eager_rails = 2, .max_rendezvous_rails = 2}), "accepted");
}

TEST(UcxTransport, TheReportTellsWhatThereIs) {
  NEED_UCX({});
  const Result<UcxReport> report = ucx_report({.tls = "tcp,self"});
  ASSERT_TRUE(report.has_value()) << report.error().describe();
  EXPECT_NE(report->library.find("UCX 1."), std::string::npos) << report->library;
  const auto has = [&](const std::string& name) {
    return std::any_of(report->transports.begin(), report->transports.end(),
                       [&](const UcxReport::Transport& one) { return one.name == name && !one.device.empty(); });
  };
  EXPECT_TRUE(has("tcp"));
  EXPECT_FALSE(has("posix"));
  EXPECT_NE(std::find(report->settings.begin(), report->settings.end(), "TLS=tcp,self"), report->settings.end());
  EXPECT_GT(report->address_bytes, 0U);
  ASSERT_FALSE(report->chosen.empty());
  for (const UcxReport::Transport& one : report->chosen) {
    EXPECT_TRUE((one.name == "tcp" || one.name == "self") && !one.device.empty() && !one.uses.empty()) << one.name;
  }
}

TEST(UcxTransport, SignalHandlersStayTheProgramsOwn) {
  NEED_UCX({});
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) {
    struct sigaction action{};
    ASSERT_EQ(::sigaction(number, nullptr, &action), 0);
    Dl_info where{};
    if (::dladdr(reinterpret_cast<void*>(action.sa_sigaction), &where) == 0 || where.dli_fname == nullptr) continue;
    EXPECT_EQ(std::string(where.dli_fname).find("libuc"), std::string::npos) << "signal " << number;
  }
}

TEST(UcxTransport, PeersThatWantAnotherModeAreTold) {
  NEED_UCX(over("tcp"));
  Loop loop({.log = no_log()});
  const auto default_mode = make_ucx_transport({.tls = "tcp", .error_mode = UcxErrorMode::none})->attach(loop);
  const auto peer = make_ucx_transport({.tls = "tcp", .error_mode = UcxErrorMode::peer})->attach(loop);
  ASSERT_TRUE(default_mode && peer);
  const auto pending = (*default_mode)->select((*peer)->offer(), {1 << 20, 1 << 20});
  ASSERT_FALSE(pending.has_value());
  EXPECT_NE(pending.error().text.find("error_mode"), std::string::npos) << pending.error().text;
}

TEST(UcxTransport, ConnectionsAreBounded) {
  const UcxOptions options{.tls = "tcp,self", .connections_max = 2};
  NEED_UCX(options);
  TransportPair pair(two_loops(options));
  ASSERT_TRUE(pair.attach().has_value());
  std::vector<std::unique_ptr<PendingConnection>> pendings;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(pair.select().has_value());
    pendings.push_back(std::move(pair.server_pending));
  }
  const Result<void> third = pair.select();
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().code, ErrorCode::overloaded);
  EXPECT_NE(third.error().text.find("connections_max"), std::string::npos) << third.error().text;
  pair.server.on([&] { pendings.clear(); });
}

// All connections are busy and share one worker on each side.
TEST(UcxTransport, AHundredConnectionsOnOneWorker) {
  for (const char* const tls : {"tcp,self", "posix,cma,self"}) {
    NEED_UCX(over(tls));
    constexpr std::size_t count = 100;
    struct One {
      std::unique_ptr<Connection> connection;
      TransportSink sink;
    };
    TransportPair pair(two_loops(over(tls)));
    ASSERT_TRUE(pair.attach().has_value());
    std::vector<std::unique_ptr<One>> clients;
    std::vector<std::unique_ptr<One>> servers;
    for (std::size_t i = 0; i < count; ++i) {
      for (const auto step : {&TransportPair::select, &TransportPair::accept, &TransportPair::connect}) {
        const Result<void> done = (pair.*step)();
        ASSERT_TRUE(done.has_value()) << done.error().describe();
      }
      pair.open(false);
      for (TransportSide* side : {&pair.client, &pair.server}) {
        auto& all = side == &pair.client ? clients : servers;
        side->on([&] {
          all.push_back(std::make_unique<One>());
          One& one = *all.back();
          one.connection = std::move(side->connection);
          one.sink.connection = one.connection.get();
          one.connection->start(one.sink);
        });
      }
    }
    const std::string large = test_bytes(200'000, 3);
    for (int round = 0; round < 5; ++round) {
      pair.client.on([&] {
        for (std::size_t i = 0; i < count; ++i) {
          const std::string head = std::to_string(i);
          std::byte* const to = clients[i]->connection->reserve(head.size());
          ASSERT_NE(to, nullptr);
          std::memcpy(to, head.data(), head.size());
          const ConstBuffer piece{as_bytes(large).data(), i % 10 == 0 ? large.size() : 100};
          clients[i]->connection->commit(head.size(), std::span(&piece, 1), nullptr);
        }
      });
    }
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(pair.server.until([&] { return servers[i]->sink.count.load() == 5; })) << "connection " << i;
      pair.server.on([&] {
        for (const TransportSink::Received& got : servers[i]->sink.messages) {
          EXPECT_EQ(got.head, std::to_string(i));
          EXPECT_TRUE(got.payload == large.substr(0, i % 10 == 0 ? large.size() : 100));
        }
      });
    }
    pair.client.on([&] { clients.clear(); });
    pair.server.on([&] { servers.clear(); });
  }
}

// UCX keeps the resources of a connection until its worker is destroyed, so workers are replaced from time to time.
TEST(UcxTransport, ClosedEndpointsAreBounded) {
  NEED_UCX(over("tcp"));
  TransportPair pair(two_loops(over("tcp")));
  ASSERT_TRUE(pair.attach().has_value());
  std::size_t most = 0;
  const std::size_t before = descriptors();
  for (std::size_t i = 0; i < 4 * UcxTransportWorker::spent_max; ++i) {
    for (const auto step : {&TransportPair::select, &TransportPair::accept, &TransportPair::connect}) {
      const Result<void> done = (pair.*step)();
      ASSERT_TRUE(done.has_value()) << done.error().describe();
    }
    pair.open();
    pair.client.on([&] { pair.client.send("head", test_bytes(200'000, 1)); });
    ASSERT_TRUE(pair.server.until_received(i + 1));
    for (TransportSide* side : {&pair.client, &pair.server}) {
      side->on([&] {
        side->connection.reset();
        side->sink.messages.clear();
        side->sink.closed.clear();
      });
    }
    most = std::max(most, descriptors());
    if (i % UcxTransportWorker::spent_max == 0) pair.client.loop->rest(3 * UcxTransportWorker::retired_rest);
  }
  // Each endpoint has two lanes of two sockets, on both sides. The worker in use and the retired one keep endpoints.
  EXPECT_LE(most, before + 2 * 4 * 2 * UcxTransportWorker::spent_max + 200);
}

// ---- Calls of UCX from within its callbacks ----

// Replacements of UCX functions that record whether they are called from within UCX's progress.
struct Watched {
  static inline const UcpLibrary* real = nullptr;
  static inline int depth = 0;
  static inline int calls = 0;

  static void expect_outside() {
    ++calls;
    EXPECT_EQ(depth, 0) << "called from within UCX";
  }
  static unsigned progress(ucp_worker_h worker) {
    expect_outside();
    ++depth;
    const unsigned count = real->worker_progress(worker);
    --depth;
    return count;
  }
  static ucs_status_ptr_t send(ucp_ep_h ep, unsigned id, const void* header, std::size_t header_bytes, const void* data,
                               std::size_t size, const ucp_request_param_t* params) {
    expect_outside();
    return real->am_send_nbx(ep, id, header, header_bytes, data, size, params);
  }
  static ucs_status_ptr_t fetch(ucp_worker_h worker, void* rendezvous, void* memory, std::size_t size,
                                const ucp_request_param_t* params) {
    expect_outside();
    return real->am_recv_data_nbx(worker, rendezvous, memory, size, params);
  }
  static ucs_status_ptr_t close(ucp_ep_h ep, const ucp_request_param_t* params) {
    expect_outside();
    return real->ep_close_nbx(ep, params);
  }
};

// A transport that calls UCX through the functions of Watched.
class WatchedTransport final : public Transport {
 public:
  explicit WatchedTransport(const UcpLibrary& ucp) : ucp_(ucp) {}
  std::string_view name() const noexcept override { return "ucx"; }
  Result<std::shared_ptr<TransportWorker>> attach(Loop& loop) override {
    Result<std::shared_ptr<UcxContext>> context = UcxContext::make(ucp_, over("tcp"), true);
    if (!context) return fail(context.error());
    return UcxTransportWorker::make(std::move(*context), loop);
  }

 private:
  const UcpLibrary& ucp_;
};

// A payload that is discarded while it is fetched must not count as read ahead any more. Otherwise reading ahead ends
// after 512 KiB of such payloads.
TEST(UcxTransport, DiscardedPayloadsAreNotReadAhead) {
  const UcxOptions options = over("tcp");
  NEED_UCX(options);
  constexpr std::size_t count = 10;
  TransportPair pair(two_loops(options));
  ASSERT_TRUE(pair.establish());
  std::vector<std::byte> place(3'000'000);
  const auto connection = [&]() -> UcxConnection& { return static_cast<UcxConnection&>(*pair.server.connection); };
  std::size_t in_time = 0;
  // Discards as soon as the payload is being fetched. Does nothing if the payload has arrived before.
  std::function<void(std::size_t)> discard = [&](std::size_t message) {
    if (pair.server.sink.count.load() != message) return;
    if (connection().ahead_bytes() == 0) {
      pair.server.loop->loop().post([&discard, message] { discard(message); });
      return;
    }
    ++in_time;
    connection().revoke_receive_buffer(place.data());
  };
  pair.server.sink.record = false;
  pair.server.sink.where = [&](Bytes, std::size_t) {
    pair.server.loop->loop().post([&discard, message = pair.server.sink.count.load()] { discard(message); });
    return ReceiveBuffer{ReceiveBuffer::Kind::given, MutableBytes(place)};
  };
  pair.server.publish();
  const std::string payload = test_bytes(place.size(), 1);
  std::array<TransportCompletion, count> owners;
  for (std::size_t i = 0; i < count; ++i) {
    pair.client.on([&] { ASSERT_TRUE(pair.client.send("head", payload, &owners[i])); });
    ASSERT_TRUE(pair.server.until_received(i + 1));
  }
  EXPECT_TRUE(pair.client.until([&] {
    return std::all_of(owners.begin(), owners.end(), [](const auto& one) { return one.notified.load() == 1; });
  }));
  pair.server.on([&] {
    EXPECT_NE(in_time, 0U) << "nothing was discarded while it was fetched";
    EXPECT_EQ(connection().ahead_bytes(), 0U);
  });
}

TEST(UcxTransport, NothingIsAskedOfUcxFromWithinIt) {
  NEED_UCX(over("tcp"));
  Watched::real = *UcpLibrary::load();
  static UcpLibrary watched;  // Abandoned workers may outlive the test.
  watched = *Watched::real;
  watched.worker_progress = &Watched::progress;
  watched.am_send_nbx = &Watched::send;
  watched.am_recv_data_nbx = &Watched::fetch;
  watched.ep_close_nbx = &Watched::close;
  TransportPair pair(transport_cases("ucx", [] { return std::make_shared<WatchedTransport>(watched); }, {})[0]);
  ASSERT_TRUE(pair.establish());
  // The sink does everything that it is allowed to do from within on_message().
  const std::string large = test_bytes(200'000, 1);
  pair.server.sink.on_each = [&](const Message& message) {
    pair.server.send("answer", std::string_view(large).substr(0, message.payload.size()));
    pair.server.connection->flush();
    if (pair.server.sink.count.load() == 19) pair.server.connection->abort();
  };
  pair.client.sink.on_each = [&](const Message&) {
    pair.client.connection->pause();
    pair.client.connection->resume();
  };
  for (int i = 0; i < 20; ++i) {
    pair.client.on(
        [&] { pair.client.send("question", std::string_view(large).substr(0, i % 2 == 0 ? 100 : 190'000)); });
  }
  EXPECT_TRUE(pair.client.until_closed());
  EXPECT_EQ(pair.server.sink.count.load(), 20U);
  EXPECT_GT(Watched::calls, 100);
}

// Without a flush, messages on their way may be dropped. The messages that arrive must be whole and in order, and the
// end must be reported.
TEST(UcxTransport, WithoutAFlushTheEndIsToldAndNothingIsTorn) {
  for (const UcxErrorMode mode : {UcxErrorMode::none, UcxErrorMode::peer}) {
    const UcxOptions options{
        .tls = "tcp", .error_mode = mode, .close_with_flush = false, .wire_up = UcxWireUp::worker_address};
    NEED_UCX(options);
    TransportPair pair(two_loops(options));
    ASSERT_TRUE(pair.establish());
    TransportCompletion owner;
    constexpr std::size_t count = 50;
    const std::string payload = test_bytes(300'000, 7);
    pair.client.on([&] {
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_TRUE(
            pair.client.send(std::to_string(i), std::string_view(payload).substr(i % 3 == 0 ? 0 : 299'000), &owner));
      }
      pair.client.connection->flush();
      pair.client.connection.reset();
    });
    EXPECT_EQ(owner.notified.load(), static_cast<int>(count));
    EXPECT_TRUE(pair.server.until_closed());
    pair.server.on([&] {
      EXPECT_LE(pair.server.sink.messages.size(), count);
      for (std::size_t i = 0; i < pair.server.sink.messages.size(); ++i) {
        EXPECT_EQ(pair.server.sink.messages[i].head, std::to_string(i));
        EXPECT_TRUE(pair.server.sink.messages[i].payload == payload.substr(i % 3 == 0 ? 0 : 299'000));
      }
    });
  }
}

// The number of clients that have not named a connection is bounded: if they stayed, nobody could connect any more.
TEST(UcxTransport, CallersWhoDoNotSayWhomTheyWantAreLetGo) {
  const UcxOptions options{.tls = "tcp",
                           .error_mode = UcxErrorMode::peer,
                           .wire_up = UcxWireUp::listener,
                           .listener_address = "127.0.0.1:0",
                           .wire_up_timeout = std::chrono::milliseconds(100)};
  NEED_UCX(options);
  Loop loop({.log = no_log()});
  const auto context = UcxContext::make(options, true);
  ASSERT_TRUE(context.has_value());
  const std::shared_ptr<UcxWorker> server = *UcxWorker::make(*context, loop);
  const std::shared_ptr<UcxWorker> client = *UcxWorker::make(*context, loop);
  ASSERT_TRUE(server->listen(options.listener_address).has_value());
  const auto at = UcxSocketAddress::parse(server->listener()->address());
  ASSERT_TRUE(at.has_value());
  ucp_ep_params_t to{};
  to.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
  to.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  to.sockaddr = {.addr = reinterpret_cast<const sockaddr*>(at->bytes.data()),
                 .addrlen = static_cast<socklen_t>(at->bytes.size())};
  auto silent = client->core().connect(to, 0);
  ASSERT_TRUE(silent.has_value());
  const auto becomes = [&](std::size_t strangers) {
    for (int i = 0; i < 30'000; ++i) {
      server->poll();
      client->poll();
      if (server->listener()->strangers() == strangers) return true;  // Before the loop's timer changes it.
      loop.run(loop.sleep(std::chrono::milliseconds(1), {}));
    }
    return false;
  };
  EXPECT_TRUE(becomes(1));
  EXPECT_TRUE(becomes(0)) << "after wire_up_timeout";
  client->close(std::move(*silent), UcxClose::cut);
}

// UCX would use its destroyed listener when such a client sends the rest of its request.
TEST(UcxTransport, ClientsWithoutACompleteRequestEndWithTheListener) {
  const UcxOptions options{.tls = "tcp",
                           .error_mode = UcxErrorMode::peer,
                           .wire_up = UcxWireUp::listener,
                           .listener_address = "127.0.0.1:0"};
  NEED_UCX(options);
  Loop loop({.log = no_log()});
  const auto context = UcxContext::make(options, true);
  ASSERT_TRUE(context.has_value());
  const std::shared_ptr<UcxWorker> server = *UcxWorker::make(*context, loop);
  ASSERT_TRUE(server->listen(options.listener_address).has_value());
  const auto at = UcxSocketAddress::parse(server->listener()->address());
  ASSERT_TRUE(at.has_value());
  std::array<int, 20> clients{};
  for (std::size_t i = 0; i < clients.size(); ++i) {
    clients[i] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::connect(clients[i], reinterpret_cast<const sockaddr*>(at->bytes.data()),
                        static_cast<socklen_t>(at->bytes.size())),
              0);
    const char part = 0;  // Half of the clients have sent the beginning of a request.
    if (i % 2 == 0) {
      EXPECT_EQ(::send(clients[i], &part, 1, MSG_NOSIGNAL), 1);
    }
  }
  server->stop_listening();
  for (const int client : clients) {
    pollfd end{.fd = client, .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&end, 1, 30'000), 1) << "the connection stays open";
    ::send(client, "0123456789", 10, MSG_NOSIGNAL);
    ::close(client);
  }
}

// ---- Hostile peers ----

struct Silent final : StreamSink {
  MutableBytes receive_space() override { return space; }
  void received(std::size_t) override {}
  void sendable(std::size_t) override {}
  void ended(const Error&) override {}
  std::array<std::byte, 16> space{};
};

// A worker that sends arbitrary active messages to a server's connection.
class Hostile final : public UcxTarget {
 public:
  explicit Hostile(Loop& loop) : loop_(loop) {}

  void connect(TransportSink& sink) {
    const UcxOptions options = over("tcp,self");
    auto end = make_ucx_transport(options)->attach(loop_);
    ASSERT_TRUE(end.has_value()) << end.error().describe();
    transport_worker_ = *end;
    auto pending = finish_half(loop_, transport_worker_->select(transport_worker_->offer(), {1 << 20, 1 << 20}));
    ASSERT_TRUE(pending.has_value());
    const Result<UcxParameters> server = UcxParameters::load((*pending)->parameters());
    ASSERT_TRUE(server.has_value());
    token_of_server_ = server->peer.token;
    auto context = UcxContext::make(options, true);
    ASSERT_TRUE(context.has_value());
    worker_ = *UcxWorker::make(*context, loop_);
    token_ = *worker_->enter(*this);
    const UcxParameters ours{.peer = {.token = token_, .window_bytes = 1 << 20, .rendezvous_bytes_min = 1 << 15},
                             .address = {worker_->address().begin(), worker_->address().end()}};
    ASSERT_TRUE(finish_connect(loop_, **pending, ours.store()).has_value());
    ucp_ep_params_t to{};
    to.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    to.address = reinterpret_cast<const ucp_address_t*>(server->address.data());
    endpoint_ = std::move(*worker_->core().connect(to, token_));
    auto streams = LoopStream::make_pair();
    streams.first->start(loop_, silent_);
    streams.first->pause();
    stream_ = std::move(streams.second);
    stream_->start(loop_, silent_);
    connection = (*pending)->open(std::move(streams.first));
    sink.connection = connection.get();
    connection->start(sink);
  }
  void send(UcxHeader header, std::string_view data, std::uint32_t flags = UCP_AM_SEND_FLAG_EAGER) {
    header.token = token_of_server_;
    UcxOperation& operation = *worker_->core().acquire_operation(*this, UcxOperation::Kind::send);
    operation.block = Block::allocate(std::max<std::size_t>(data.size(), 1));
    std::memcpy(operation.block->data(), data.data(), data.size());
    header.store(operation.header.data());
    const ucs_status_t status =
        worker_->core().send(*endpoint_, operation, operation.block->data(), data.size(), flags);
    if (status == UCS_OK) worker_->core().recycle(operation);
    EXPECT_GE(status, 0);
  }
  void finish() {
    connection.reset();
    worker_->leave(token_);
    worker_->close(std::move(endpoint_), UcxClose::flush_peer_gone);
    worker_.reset();
    transport_worker_.reset();
    stream_.reset();
  }

  std::unique_ptr<Connection> connection;

 private:
  void arrived(const ActiveMessage& arrival) override {
    if (arrival.block != nullptr) arrival.block->release();
  }
  void ended(UcxOperation& operation) override { worker_->core().recycle(operation); }
  void process() override {}
  void connected(std::unique_ptr<UcxEndpoint>) override {}

  Loop& loop_;
  Silent silent_;
  std::shared_ptr<TransportWorker> transport_worker_;
  std::shared_ptr<UcxWorker> worker_;
  std::unique_ptr<UcxEndpoint> endpoint_;
  std::unique_ptr<Stream> stream_;
  std::uint64_t token_ = 0;
  std::uint64_t token_of_server_ = 0;
};

std::string entry(std::uint32_t head_bytes, std::uint32_t payload_bytes, std::string_view rest) {
  std::string text(8, '\0');
  store_le(reinterpret_cast<std::byte*>(text.data()), head_bytes);
  store_le(reinterpret_cast<std::byte*>(text.data()) + 4, payload_bytes);
  return text.append(rest);
}

TEST(UcxTransport, PeersThatBreakTheRulesAreCutOff) {
  NEED_UCX(over("tcp,self"));
  using Kind = UcxHeader::Kind;
  const std::string good = entry(4, 4, "headbody");
  const std::vector<std::pair<std::string, std::function<void(Hostile&)>>> protocol_violations = {
      {"lengths", [&](Hostile& peer) { peer.send({}, entry(1000, 4, "headbody")); }},
      {"lengths", [&](Hostile& peer) { peer.send({}, entry(4, 0x7fffffff, "headbody")); }},
      {"lengths", [&](Hostile& peer) { peer.send({}, good + "1234567"); }},
      {"lengths", [&](Hostile& peer) { peer.send({}, entry(4, UcxEntry::apart, "headbody")); }},
      {"message_bytes_max", [&](Hostile& peer) { peer.send({}, entry(4, UcxEntry::apart | 0x7ffffff, "headbody")); }},
      {"the expected index", [&](Hostile& peer) { peer.send({.index = 1U << 20}, good); }},
      {"the expected index",
       [&](Hostile& peer) {
         peer.send({.index = 5}, good);
         peer.send({.index = 5}, good);
       }},
      {"consumed more", [&](Hostile& peer) { peer.send({.taken = 1U << 30}, good); }},
      {"end message with data", [&](Hostile& peer) { peer.send({.index = 0, .kind = Kind::fin}, good); }},
      {"by rendezvous", [&](Hostile& peer) { peer.send({}, test_bytes(50'000, 1), UCP_AM_SEND_FLAG_RNDV); }},
      {"not sent by rendezvous", [&](Hostile& peer) { peer.send({.kind = Kind::payload}, good); }},
      {"50000 bytes was announced with 60000 bytes",
       [&](Hostile& peer) {
         peer.send({}, entry(4, UcxEntry::apart | 60'000, "head"));
         peer.send({.kind = Kind::payload}, test_bytes(50'000, 1), UCP_AM_SEND_FLAG_RNDV);
       }},
  };
  for (const auto& [text, protocol_violation] : protocol_violations) {
    Loop loop({.log = no_log()});
    Hostile peer(loop);
    TransportSink sink;
    peer.connect(sink);
    if (HasFatalFailure()) return;
    protocol_violation(peer);
    for (int i = 0; i < 300'000 && sink.closed.empty(); ++i)
      loop.run([](Loop& on) -> Task<void> { co_await on.sleep(std::chrono::microseconds(100)); }(loop));
    ASSERT_EQ(sink.closed.size(), 1U) << text;
    EXPECT_EQ(sink.closed[0].code, ErrorCode::protocol_error);
    EXPECT_NE(sink.closed[0].text.find(text), std::string::npos) << sink.closed[0].text;
    loop.run([](Hostile& one) -> Task<void> {
      one.finish();
      co_return;
    }(peer));
  }
}

TEST(UcxWire, AnyBytesAreReadSafely) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    // The copy has the exact size, so that the sanitizer detects a read past its end.
    std::vector<std::byte> bytes(random() % 64);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 20 == 0 ? random() : random() % 16);
    const std::vector<std::byte> exact(bytes);
    if (const auto header = UcxHeader::load(exact)) {
      EXPECT_EQ(exact.size(), UcxHeader::bytes);
    }
    for (std::size_t at = 0; at < exact.size();) {
      const std::optional<UcxEntry> one = UcxEntry::load(exact, at);
      if (!one) break;
      EXPECT_LE(one->head.data() + one->head.size(), exact.data() + exact.size());
      EXPECT_LE(one->payload.data() + one->payload.size(), exact.data() + exact.size());
      EXPECT_GT(one->next, at);
      at = one->next;
    }
  }
}

}  // namespace
}  // namespace hawser::transport
