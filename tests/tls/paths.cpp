#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "base/random.h"
#include "hawser/transport/factory.h"
#include "rpc/server/inspector.h"
#include "security/tls/path_keys.h"
#include "tests/at_rest.h"
#include "tests/tls/fixture.h"
#include "tests/tls/raw_tls.h"
#include "tests/tls/road.h"
#include "tests/tls/wire_tap.h"
#include "transport/network_access.h"

// Paths beside the stream, which both sides agree on within TLS.
namespace hawser {
namespace {

using namespace testing_tools;

// ---- What travels on the network ----

// Shared memory that notes what its HELLOs contain.
struct Noted {
  void add(Bytes bytes) {
    const std::lock_guard lock(mutex);
    all.emplace_back(bytes.begin(), bytes.end());
  }
  std::mutex mutex;
  std::vector<Octets> all;
};

class NotedShm final : public transport::Transport {
 public:
  explicit NotedShm(std::shared_ptr<Noted> noted) : noted_(std::move(noted)) {
    std::shared_ptr<void> kept;
    inner_ = shm().factory().make(kept);
  }
  std::string_view name() const noexcept override { return "noted"; }
  Result<std::shared_ptr<transport::TransportWorker>> attach(Loop& loop) override {
    auto worker = inner_->attach(loop);
    if (!worker) return worker;
    return std::make_shared<Worker>(std::move(*worker), noted_);
  }

 private:
  struct Worker final : transport::TransportWorker {
    Worker(std::shared_ptr<transport::TransportWorker> of, std::shared_ptr<Noted> to)
        : inner(std::move(of)), noted(std::move(to)) {}
    std::vector<std::byte> offer() override {
      auto made = inner->offer();
      noted->add(made);
      return made;
    }
    Result<std::unique_ptr<transport::PendingConnection>> select(Bytes offer,
                                                                 const transport::MessageLimits& limits) override {
      auto made = inner->select(offer, limits);
      if (made) noted->add((*made)->parameters());
      return made;
    }
    Result<std::unique_ptr<transport::PendingConnection>> accept(Bytes server,
                                                                 const transport::MessageLimits& limits) override {
      return inner->accept(server, limits);
    }
    const std::shared_ptr<transport::TransportWorker> inner;
    const std::shared_ptr<Noted> noted;
  };
  std::shared_ptr<transport::Transport> inner_;
  const std::shared_ptr<Noted> noted_;
};

struct NotedOptions {
  std::shared_ptr<Noted> noted;
  friend bool operator==(const NotedOptions&, const NotedOptions&) = default;
};
std::shared_ptr<transport::Transport> make_noted(const NotedOptions& options) {
  return std::make_shared<NotedShm>(options.noted);
}

bool contains(const std::vector<Octets>& heard, Bytes part) {
  return std::any_of(heard.begin(), heard.end(),
                     [&](const Octets& one) { return std::ranges::search(one, part).size() != 0; });
}

class TlsPaths : public TlsFixture {
 protected:
  // Calls a server through a tap, over a path or over the stream, and returns what the network carried.
  std::vector<Octets> tapped(bool protects, bool path, std::string_view text) {
    const TransportSpec spec = transport::make_spec({.name = "noted"}, NotedOptions{noted}, &make_noted);
    options.transports.enabled = {spec};
    tls_options.policy = TlsPolicy::allowed;
    start();
    WireTap tap(server->address());
    ClientOptions with{.connect_timeout = patience, .call_timeout = patience};
    with.transports.enabled = {spec};
    with.transports.required = path ? "noted" : "stream";
    if (protects) with.security = TlsClient(client_options());
    sync_wait([](std::string to, std::string sent, ClientOptions given) -> Task<void> {
      Client client(std::move(given));
      auto connected = co_await client.connect(to);
      REQUIRE_OK(connected);
      auto reply = co_await client.call<echo>(std::string_view(sent));
      REQUIRE_OK(reply);
      EXPECT_EQ(*reply, sent);
      client.close();
    }(tap.address(), std::string(text), std::move(with)));
    server.reset();
    return tap.heard();
  }
  const std::shared_ptr<Noted> noted = std::make_shared<Noted>();
  const std::string secret = "the launch code is 31415926535897932384626";
};

// The controls: the tap hears what is sent in plain text, so that the other tests would find it.
TEST_F(TlsPaths, TheTapHearsPlainText) {
  EXPECT_TRUE(contains(tapped(false, false, secret), as_bytes(secret)));
  noted->all.clear();
  const std::vector<Octets> heard = tapped(false, true, secret);
  ASSERT_EQ(noted->all.size(), 2U);
  for (const Octets& one : noted->all) EXPECT_TRUE(contains(heard, one));
  EXPECT_TRUE(contains(heard, as_bytes("noted")));
  EXPECT_FALSE(contains(heard, as_bytes(secret)));  // It went through the memory.
}

TEST_F(TlsPaths, NothingOfAPathTravelsOutsideTls) {
  const std::vector<Octets> heard = tapped(true, true, secret);
  ASSERT_EQ(noted->all.size(), 2U);
  ASSERT_EQ(heard.size(), 2U);
  for (const Octets& one : heard) EXPECT_EQ(one.at(0), std::byte{0x16});
  for (const Octets& one : noted->all) {
    ASSERT_GE(one.size(), 16U);
    for (std::size_t at = 0; at + 8 <= one.size(); ++at) {
      const Bytes part = Bytes(one).subspan(at, 8);
      if (std::ranges::count(part, std::byte{0}) < 4) {
        EXPECT_FALSE(contains(heard, part)) << at;
      }
    }
  }
  EXPECT_FALSE(contains(heard, as_bytes("noted")));
  EXPECT_FALSE(contains(heard, as_bytes("HWSR")));
  EXPECT_FALSE(contains(heard, as_bytes(secret)));
  EXPECT_EQ(security->counters().paths_proved, 1U);
}

TEST_F(TlsPaths, NothingOfACallIsReadableOnTheEncryptedStream) {
  const std::vector<Octets> heard = tapped(true, false, secret);
  ASSERT_EQ(heard.size(), 2U);
  EXPECT_FALSE(contains(heard, as_bytes(secret)));
  EXPECT_FALSE(contains(heard, as_bytes("HWSR")));
  EXPECT_EQ(security->counters().paths_proved, 0U);
}

TEST_F(TlsPaths, BothSidesProveThem) {
  start();
  const TlsClient tls(client_options());
  EXPECT_EQ(call("hi", tls), "ok");
  EXPECT_EQ(used_transport, "shm");
  EXPECT_EQ(tls.counters().paths_proved, 1U);
  EXPECT_EQ(security->counters().paths_proved, 1U);
  EXPECT_EQ(security->counters().paths_refused, 0U);
}

// ---- Keys ----

struct KeyPair {
  explicit KeyPair(const security::tls::Authority& authority, const TlsCertificate& certificate,
                   int version_max = TLS1_3_VERSION, std::uint64_t client_flags = 0) {
    const security::tls::ContextOptions server_options{.server = true, .certificates = {certificate}};
    const security::tls::ContextOptions client_options{.ca_file = authority.ca_file(),
                                                       .peer_certificate_bytes_max = 32 * 1024};
    server = std::make_unique<security::tls::TlsSession>(load(server_options), std::string());
    client = std::make_unique<security::tls::TlsSession>(load(client_options), "localhost", "", nullptr);
    SSL_set_max_proto_version(client->ssl(), version_max);
    SSL_set_options(client->ssl(), client_flags);
    EXPECT_TRUE(shake_hands(*client, *server));
  }
  std::unique_ptr<security::tls::TlsSession> client;
  std::unique_ptr<security::tls::TlsSession> server;
};

std::string key_of(SSL* ssl, const transport::PathTerms& terms, security::tls::Side sender) {
  security::tls::Secret exported;
  security::tls::Secret key;
  EXPECT_TRUE(security::tls::export_path_secret(ssl, exported));
  EXPECT_TRUE(security::tls::derive_path_key(exported, security::tls::hash_of(terms), sender, key));
  return std::string(as_text(key.bytes()));
}

TEST_F(TlsPaths, KeysDependOnConnectionPathAndDirection) {
  const TlsCertificate certificate = authority.issue("server");
  const Octets one = octets("one");
  const Octets two = octets("two");
  const transport::PathTerms terms{.transport = "rdma", .offer = one, .selection = one, .answer = one};
  std::set<std::string> keys;
  std::size_t made = 0;
  for (const int version : {TLS1_3_VERSION, TLS1_2_VERSION}) {
    const KeyPair pair(authority, certificate, version);
    EXPECT_EQ(pair.client->no_export_reason(), "");
    std::vector<transport::PathTerms> variants(6, terms);
    variants[1].transport = "ucx";
    variants[2].offer = two;
    variants[3].selection = two;
    variants[4].answer = two;
    variants[5].protection = transport::PathProtection::none;
    for (const transport::PathTerms& variant : variants) {
      for (const security::tls::Side side : {security::tls::Side::client, security::tls::Side::server}) {
        const std::string key = key_of(pair.client->ssl(), variant, side);
        EXPECT_EQ(key, key_of(pair.server->ssl(), variant, side));
        keys.insert(key);
        ++made;
      }
    }
  }
  EXPECT_EQ(keys.size(), made);
  // A field cannot take bytes of its neighbour.
  const Octets onetwo = octets("onetwo");
  EXPECT_NE(security::tls::hash_of({.transport = "t", .offer = onetwo, .selection = {}, .answer = {}}),
            security::tls::hash_of({.transport = "t", .offer = one, .selection = two, .answer = {}}));
}

TEST_F(TlsPaths, Tls12NeedsTheExtendedMasterSecret) {
  const KeyPair pair(authority, authority.issue("server"), TLS1_2_VERSION, SSL_OP_NO_EXTENDED_MASTER_SECRET);
  EXPECT_NE(pair.server->no_export_reason().find("extended master secret"), std::string_view::npos);
  EXPECT_NE(pair.client->no_export_reason(), "");
}

// ---- A man in the middle ----

// He does one of these with the second path, that of the second or the third client, mostly with the first messages,
// which are the proofs.
enum class Attack : std::uint8_t {
  none,
  change_client,   // A bit of the client's proof.
  change_server,   // A bit of the server's.
  drop_client,     // The proof, and passes on what follows.
  drop_server,     //
  silence_client,  // Everything that the client sends.
  silence_server,  //
  reflect_client,  // The client gets its own proof back.
  reflect_server,  //
  replay_client,   // The proof of the first client on its path.
  replay_server,   //
  forge,           // All messages of the first client, before those of the second path.
  twice,           // The proof, twice. The second one is not a frame.
  cross,           // Each of two clients gets the server's end of the other one's path.
};
constexpr std::size_t attacks = 14;
constexpr const char* attack_names[attacks] = {"none",           "change_client",  "change_server",  "drop_client",
                                               "drop_server",    "silence_client", "silence_server", "reflect_client",
                                               "reflect_server", "replay_client",  "replay_server",  "forge",
                                               "twice",          "cross"};

std::map<std::string, int> received_texts;
std::string receive_text(std::string text) {
  ++received_texts[text];
  return text;
}

struct Interception {
  Interception(std::uint64_t seed, Attack what) : random(seed), attack(what) {}

  void carry(Roads& roads, Road& road, std::size_t end, Octets message) {
    if (road.index == 0) recorded[end].push_back(message);
    const bool first_message = road.sent[end] == 0;
    const bool attacked = road.index == 1 && attack != Attack::none;
    const bool crossed = attack == Attack::cross && (road.index == 1 || road.index == 2);
    if (crossed) {
      // The other road may not exist yet. Then it will be the next one.
      const std::size_t other = 3 - road.index;
      if (other < roads.all.size()) return Roads::deliver(*roads.all[other], 1 - end, message);
      return held.push_back({end, std::move(message)});
    }
    if (!attacked) return Roads::deliver(road, 1 - end, message);
    const std::size_t victim = of_server() ? 1 : 0;
    if (attack == Attack::silence_client || attack == Attack::silence_server) {
      if (end != victim) Roads::deliver(road, 1 - end, message);
      return;
    }
    if (!first_message || end != victim) return Roads::deliver(road, 1 - end, message);
    switch (attack) {
      case Attack::change_client:
      case Attack::change_server: {
        const std::uint64_t bit = random.below((message.size() - 8) * 8);
        message[8 + bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
        return Roads::deliver(road, 1 - end, message);
      }
      case Attack::reflect_client:
      case Attack::reflect_server: return Roads::deliver(road, end, message);
      case Attack::replay_client:
      case Attack::replay_server: return Roads::deliver(road, 1 - end, recorded[end].at(0));
      case Attack::forge:
        for (const Octets& one : recorded[end]) Roads::deliver(road, 1 - end, one);
        return Roads::deliver(road, 1 - end, message);
      case Attack::twice: Roads::deliver(road, 1 - end, message); return Roads::deliver(road, 1 - end, message);
      default: return;
    }
  }
  void release(Roads& roads) {
    for (auto& [end, message] : std::exchange(held, {})) Roads::deliver(*roads.all.at(2), 1 - end, message);
  }
  bool of_server() const {
    return attack == Attack::change_server || attack == Attack::drop_server || attack == Attack::silence_server ||
           attack == Attack::reflect_server || attack == Attack::replay_server;
  }

  Random random;
  const Attack attack;
  std::array<std::vector<Octets>, 2> recorded;
  std::vector<std::pair<std::size_t, Octets>> held;
};

class TlsManInTheMiddle : public TlsFixture {
 protected:
  void run(std::uint64_t seed) {
    const auto attack = static_cast<Attack>(seed % attacks);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + attack_names[seed % attacks]);
    received_texts.clear();
    logged_lines.clear();
    auto roads = std::make_shared<Roads>();
    Interception mallory(seed, attack);
    roads->carry = [&](Road& road, std::size_t end, const Octets& message) {
      mallory.carry(*roads, road, end, message);
      if (roads->all.size() > 2) mallory.release(*roads);
    };
    LoopOptions loop_options;
    loop_options.log = [this](LogLevel, std::string_view, std::string_view text) {
      logged_lines += std::string(text) + "\n";
    };
    Loop loop(std::make_unique<exec::SimPoller>(), loop_options);
    const auto network = std::make_shared<RoadNetwork>(seed, roads);
    const TlsServer server_tls({.certificates = {certificate}, .reload_interval = forever, .handshake_threads = 0});
    TlsClientOptions client_tls_options = client_options();
    client_tls_options.server_name = "localhost";
    client_tls_options.reload_interval = forever;
    client_tls_options.handshake_threads = 0;
    client_tls_options.resumption = seed % 2 == 0;
    const TlsClient client_tls(client_tls_options);
    ServerOptions server_options;
    server_options.listen = "server:0";
    server_options.transports.order = {"road"};
    server_options.security = server_tls;
    Server served(loop, transport::over(network, server_options));
    served.register_handler<receive_text>();
    ClientOptions with;
    with.transports.order = {"road"};
    with.transports.retry_min = std::chrono::hours(1);
    with.connect_timeout = std::chrono::minutes(1);  // The server's time for the proof is over first.
    with.security = client_tls;
    const auto body = [&]() -> Task<void> {
      REQUIRE_OK(served.start());
      Client honest(loop, transport::over(network, with));
      {
        auto connected = co_await honest.connect(served.address());
        REQUIRE_OK(connected);
        auto reply = co_await honest.call<receive_text>("from the first client");
        REQUIRE_OK(reply);
        EXPECT_EQ(honest.transport(), "road");
      }
      Client second(loop, transport::over(network, with));
      Client third(loop, transport::over(network, with));
      auto connected = co_await when_all(second.connect(served.address()), third.connect(served.address()));
      REQUIRE_OK(std::get<0>(connected));
      REQUIRE_OK(std::get<1>(connected));
      for (Client* const client : {&second, &third}) {
        const std::string text = client == &second ? "from the second client" : "from the third client";
        auto reply = co_await client->call<receive_text>(text);
        REQUIRE_OK(reply);
        EXPECT_EQ(*reply, text);
      }
      const bool harmless = attack == Attack::none;
      std::size_t refused = 0;
      for (Client* const client : {&second, &third}) {
        const bool on_stream = client->transport() == "tls";
        EXPECT_EQ(client->transport(), on_stream ? "tls" : "road");
        EXPECT_EQ(client->fallback_reasons().size(), on_stream ? 1U : 0U);
        refused += on_stream ? 1 : 0;
      }
      EXPECT_EQ(refused, harmless ? 0U : attack == Attack::cross ? 2U : 1U);
      auto asking = rpc::Inspector::connections(served, loop, {}, 100);
      for (const rpc::ConnectionReport& one : (co_await std::move(asking)).rows) {
        EXPECT_EQ(one.protection, one.transport == "road" ? "authenticated" : "encrypted") << one.transport;
      }
      const TlsCounters at_server = server_tls.counters();
      const TlsCounters at_client = client_tls.counters();
      if (harmless) {
        EXPECT_EQ(at_server.paths_proved, 3U);
        EXPECT_EQ(at_client.paths_proved, 3U);
      }
      // The client ends its attempt itself when a silent server does not answer a ping.
      if (!harmless && attack != Attack::twice && attack != Attack::silence_server) {
        EXPECT_GE(at_server.paths_refused + at_client.paths_refused, 1U);
        EXPECT_HAS(logged_lines, "did not prove that it agreed on this path");
      }
      honest.close();
      second.close();
      third.close();
      co_await served.shut_down(1s);
      co_await reach_rest(loop, served);
    };
    loop.run(body());
    // Each text was received once: nothing was lost, and nothing was forged or replayed.
    EXPECT_EQ(received_texts.size(), 3U);
    for (const auto& [text, times] : received_texts) EXPECT_EQ(times, 1) << text;
  }
  const TlsCertificate certificate = authority.issue("server");
  std::string logged_lines;
};

// A client that requires the path does not fall back.
TEST_F(TlsManInTheMiddle, MakesARequiredPathFailWithTheReason) {
  const auto roads = std::make_shared<Roads>();
  roads->carry = [&](Road& road, std::size_t end, Octets message) {
    if (end == 1 && road.sent[end] == 0) message.back() ^= std::byte{1};
    Roads::deliver(road, 1 - end, message);
  };
  LoopOptions quiet;
  quiet.log = no_log();
  Loop loop(std::make_unique<exec::SimPoller>(), quiet);
  const auto network = std::make_shared<RoadNetwork>(1, roads);
  const TlsServer server_tls({.certificates = {certificate}, .reload_interval = forever, .handshake_threads = 0});
  TlsClientOptions client_tls = client_options();
  client_tls.server_name = "localhost";
  client_tls.handshake_threads = 0;
  ServerOptions server_options;
  server_options.listen = "server:0";
  server_options.transports.order = {"road"};
  server_options.security = server_tls;
  Server served(loop, transport::over(network, server_options));
  ClientOptions with;
  with.transports.order = {"road"};
  with.transports.required = "road";
  with.security = TlsClient(client_tls);
  const auto body = [&]() -> Task<void> {
    REQUIRE_OK(served.start());
    Client client(loop, transport::over(network, with));
    auto connected = co_await client.connect(served.address());
    EXPECT_ERROR(connected, unavailable, "TransportOptions::required is road, which cannot be used");
    EXPECT_ERROR(connected, unavailable, "did not prove that it agreed on this path within TLS");
    client.close();
    co_await served.shut_down(1s);
  };
  loop.run(body());
}

TEST_F(TlsManInTheMiddle, GetsNothingDelivered) {
  for (std::uint64_t seed = 0; seed < attacks * 8 && !HasFailure(); ++seed) run(seed);
}

}  // namespace
}  // namespace hawser
