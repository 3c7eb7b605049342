#include <malloc.h>
#include <openssl/kdf.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "security/tls/record_tracker.h"
#include "security/tls/stream.h"
#include "tests/tls/fixture.h"
#include "tests/tls/raw_tls.h"

// Peers that make a server hold memory: handshakes and records that are not complete.
namespace hawser {
namespace {

using namespace testing_tools;
using security::tls::RecordTracker;
using security::tls::TlsSession;
using security::tls::TlsStream;

// A record with a part of a message of a handshake.
Octets record(const Octets& body, std::uint8_t type = 22) {
  Octets all = {std::byte{type}, std::byte{3}, std::byte{3}, std::byte(body.size() >> 8), std::byte(body.size() & 255)};
  all.insert(all.end(), body.begin(), body.end());
  return all;
}

// The beginning of a ClientHello of that length.
Octets hello_header(std::size_t bytes) {
  return {std::byte{1}, std::byte(bytes >> 16), std::byte(bytes >> 8 & 255), std::byte(bytes & 255)};
}

TEST(TlsRecordTracker, KnowsWhetherARecordIsComplete) {
  for (const std::size_t step : {1, 2, 3, 7, 1000}) {
    RecordTracker tracker(0);
    Octets all = record(Octets(10), 23);
    const Octets next = record(Octets(300), 23);
    all.insert(all.end(), next.begin(), next.end());
    EXPECT_FALSE(tracker.incomplete());
    for (std::size_t at = 0; at < all.size(); at += step) {
      const std::size_t end = std::min(at + step, all.size());
      tracker.add(Bytes(all).subspan(at, end - at), true);
      EXPECT_EQ(tracker.incomplete(), end != 15 && end != all.size()) << end;
    }
    const Octets empty = record({}, 23);
    tracker.add(empty, true);
    EXPECT_FALSE(tracker.incomplete());
  }
}

TEST(TlsRecordTracker, FindsAClientHelloThatIsTooLong) {
  const auto excess = [](const std::vector<Octets>& records, bool tls13, std::size_t step) {
    RecordTracker tracker(1000);
    for (const Octets& one : records) {
      for (std::size_t at = 0; at < one.size(); at += step) {
        tracker.add(Bytes(one).subspan(at, std::min(step, one.size() - at)), tls13);
      }
    }
    return tracker.excess();
  };
  const Octets short_hello = [] {
    Octets made = hello_header(1000);
    made.resize(1004);
    return made;
  }();
  Octets both = short_hello;
  const Octets header = hello_header(1001);
  both.insert(both.end(), header.begin(), header.end());
  const Octets certificate = {std::byte{11}, std::byte{1}, std::byte{0}, std::byte{0}};
  for (const std::size_t step : {1, 5, 10'000}) {
    SCOPED_TRACE(step);
    EXPECT_EQ(excess({record(header)}, false, step), 1001U);
    EXPECT_EQ(excess({record(hello_header(1000))}, false, step), 0U);
    EXPECT_EQ(excess({record(hello_header(0xffffff))}, false, step), 0xffffffU);
    // In fragments, in one record with the message before, and behind other messages.
    EXPECT_EQ(excess({record({header[0]}), record({header[1]}), record({header[2]}), record({header[3]})}, false, step),
              1001U);
    EXPECT_EQ(excess({record(both)}, false, step), 1001U);
    EXPECT_EQ(excess({record(certificate)}, false, step), 0U);
    // After a HelloRetryRequest, a client of TLS 1.3 may send a ChangeCipherSpec first.
    EXPECT_EQ(excess({record(short_hello), record(Octets(1), 20), record(header)}, true, step), 1001U);
    // Otherwise encrypted messages follow it, which may look like anything.
    EXPECT_EQ(excess({record(short_hello), record(Octets(1), 20), record(header)}, false, step), 0U);
    EXPECT_EQ(excess({record(short_hello), record(Octets(1), 23), record(header)}, true, step), 0U);
  }
}

class TlsHeldMemory : public TlsFixture {
 protected:
  TlsHeldMemory() {
    tls_options.certificates = {authority.issue("server")};
    options.handshake_timeout = std::chrono::hours(1);  // Nothing else ends the connections.
    client_context_options.ca_file = authority.ca_file();
    client_context_options.peer_certificate_bytes_max = 32 * 1024;
  }
  std::unique_ptr<TlsSession> client_session() {
    if (client_context == nullptr) client_context = load(client_context_options);
    return std::make_unique<TlsSession>(client_context, "localhost", "hawser", nullptr);
  }
  RawTls connected() { return RawTls(RawSocket::connected_to(server->address()), client_session()); }

  security::tls::ContextOptions client_context_options;
  std::shared_ptr<const security::tls::TlsContext> client_context;
};

// Memory that OpenSSL takes: no more than is counted.
TEST_F(TlsHeldMemory, IsCountedInFull) {
  constexpr std::size_t count = 200;
  const auto server_context = load({.server = true,
                                    .certificates = tls_options.certificates,
                                    .peer_certificate_bytes_max = 32 * 1024,
                                    .client_hello_bytes_max = 16 * 1024});
  std::vector<std::unique_ptr<TlsSession>> sessions;
  const auto add = [&] {
    sessions.push_back(std::make_unique<TlsSession>(server_context, std::string("\x06hawser")));
    return sessions.back().get();
  };
  static_cast<void>(add()->handshake());
  sessions.reserve(count + 1);
  // Half of the longest ClientHello that is accepted.
  std::size_t before = mallinfo2().uordblks;
  for (std::size_t i = 0; i < count; ++i) {
    Octets half = hello_header(16 * 1024);
    half.resize(8 * 1024);
    TlsSession& one = *add();
    one.input().append(record(half));
    one.input().append(Bytes(record(Octets(8 * 1024))).first(6 * 1024));
    ASSERT_EQ(one.handshake(), TlsSession::Progress::more);
    EXPECT_EQ(one.input().capacity(), 0U);
  }
  const std::size_t of_handshake = (mallinfo2().uordblks - before) / count;
  EXPECT_LE(of_handshake + TlsStream::receive_bytes / 4, TlsStream::handshake_bytes + 16 * 1024);
  RecordProperty("bytes_of_handshake", static_cast<int>(of_handshake));
  sessions.clear();
  // Half of a record.
  std::vector<std::unique_ptr<TlsSession>> clients;
  for (std::size_t i = 0; i < count; ++i) {
    clients.push_back(client_session());
    ASSERT_TRUE(shake_hands(*clients.back(), *add()));
    EXPECT_EQ(sessions.back()->waiting_bytes(), 0U);
  }
  for (const std::size_t part : {std::size_t{5}, std::size_t{2000}}) {
    std::size_t counted = 0;
    before = mallinfo2().uordblks;
    for (std::size_t i = 0; i < count; ++i) {
      if (part == 5) write_text(*clients[i], text_of(3000));
      const Octets all(clients[i]->output().bytes().begin(), clients[i]->output().bytes().end());
      sessions[i]->input().append(Bytes(all).first(part));
      clients[i]->output().consume(part);
      EXPECT_EQ(received_by(*sessions[i]), "");
      counted += sessions[i]->waiting_bytes();
      if (part == 5) counted += clients[i]->output().capacity();
    }
    const std::size_t after = mallinfo2().uordblks;
    EXPECT_LE(after - std::min(before, after), counted) << part;
    EXPECT_GE(counted, count * 16 * 1024);
  }
  for (std::size_t i = 0; i < count; ++i) {
    move_bytes(*clients[i], *sessions[i]);
    EXPECT_EQ(received_by(*sessions[i]), text_of(3000));
    EXPECT_EQ(sessions[i]->waiting_bytes(), 0U);
  }
}

// The bytes that HKDF-Expand-Label makes of a secret of TLS 1.3 (RFC 8446, 7.1).
std::vector<unsigned char> expanded(const std::vector<unsigned char>& secret, std::string label, std::size_t bytes) {
  const std::unique_ptr<EVP_KDF, security::tls::Released<EVP_KDF_free>> kind(
      EVP_KDF_fetch(nullptr, "TLS13-KDF", nullptr));
  const std::unique_ptr<EVP_KDF_CTX, security::tls::Released<EVP_KDF_CTX_free>> context(EVP_KDF_CTX_new(kind.get()));
  int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
  std::string hash = "SHA256";
  std::string prefix = "tls13 ";
  std::vector<unsigned char> key = secret;
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_int("mode", &mode),
                               OSSL_PARAM_construct_utf8_string("digest", hash.data(), 0),
                               OSSL_PARAM_construct_octet_string("key", key.data(), key.size()),
                               OSSL_PARAM_construct_octet_string("prefix", prefix.data(), prefix.size()),
                               OSSL_PARAM_construct_octet_string("label", label.data(), label.size()),
                               OSSL_PARAM_construct_end()};
  std::vector<unsigned char> made(bytes);
  EXPECT_EQ(EVP_KDF_derive(context.get(), made.data(), bytes, params), 1);
  return made;
}

// A client of TLS 1.3 that can send what OpenSSL does not, after the handshake.
class ClientOfMessages {
 public:
  explicit ClientOfMessages(const security::tls::ContextOptions& options) : context_(load(options)) {
    SSL_CTX_set_ciphersuites(context_->get(), "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_keylog_callback(context_->get(), [](const SSL*, const char* line) {
      const std::string_view text = line;
      if (text.starts_with("CLIENT_TRAFFIC_SECRET_0 ")) secret = text.substr(text.rfind(' ') + 1);
    });
  }
  std::unique_ptr<TlsSession> session() const {
    return std::make_unique<TlsSession>(context_, "localhost", "hawser", nullptr);
  }
  // The first record after the handshake that was performed last. It has a part of a message.
  static Octets first_record(Octets message) {
    message.push_back(std::byte{22});
    std::vector<unsigned char> key;
    for (std::size_t at = 0; at + 1 < secret.size(); at += 2) {
      key.push_back(static_cast<unsigned char>(std::stoi(secret.substr(at, 2), nullptr, 16)));
    }
    const std::vector<unsigned char> of_record = expanded(key, "key", 16);
    const std::vector<unsigned char> nonce = expanded(key, "iv", 12);
    Octets all = record(Octets(message.size() + 16), 23);
    const std::unique_ptr<EVP_CIPHER_CTX, security::tls::Released<EVP_CIPHER_CTX_free>> cipher(EVP_CIPHER_CTX_new());
    auto* const out = reinterpret_cast<unsigned char*>(all.data());
    const auto* const in = reinterpret_cast<const unsigned char*>(message.data());
    const int size = static_cast<int>(message.size());
    int done = 0;
    EXPECT_EQ(EVP_EncryptInit_ex(cipher.get(), EVP_aes_128_gcm(), nullptr, of_record.data(), nonce.data()), 1);
    EXPECT_EQ(EVP_EncryptUpdate(cipher.get(), nullptr, &done, out, 5), 1);
    EXPECT_EQ(EVP_EncryptUpdate(cipher.get(), out + 5, &done, in, size), 1);
    EXPECT_EQ(EVP_EncryptFinal_ex(cipher.get(), out + 5 + done, &done), 1);
    EXPECT_EQ(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, 16, out + 5 + size), 1);
    return all;
  }

 private:
  static inline std::string secret;
  const std::shared_ptr<const security::tls::TlsContext> context_;
};

// Messages of TLS after the handshake: a whole record with a part of one, and messages that need no answer.
TEST_F(TlsHeldMemory, IsCountedForMessagesOfTls) {
  constexpr std::size_t count = 100;
  const auto server_context = load({.server = true,
                                    .certificates = tls_options.certificates,
                                    .peer_certificate_bytes_max = 32 * 1024,
                                    .client_hello_bytes_max = 16 * 1024});
  const ClientOfMessages peer(client_context_options);
  const Octets key_update = {std::byte{24}, std::byte{0}, std::byte{0}, std::byte{1}, std::byte{0}};
  for (std::size_t part = 1; part <= key_update.size(); ++part) {
    std::vector<std::unique_ptr<TlsSession>> sessions;
    std::vector<Octets> records;
    for (std::size_t i = 0; i <= count; ++i) {
      const auto client = peer.session();
      sessions.push_back(std::make_unique<TlsSession>(server_context, std::string("\x06hawser")));
      ASSERT_TRUE(shake_hands(*client, *sessions.back()));
      records.push_back(
          ClientOfMessages::first_record({key_update.begin(), key_update.begin() + std::ptrdiff_t(part)}));
    }
    std::size_t counted = 0;
    std::size_t before = 0;
    for (std::size_t i = 0; i <= count; ++i) {
      if (i == 1) before = mallinfo2().uordblks;
      sessions[i]->input().append(records[i]);
      EXPECT_EQ(received_by(*sessions[i]), "");
      EXPECT_EQ(sessions[i]->error().text, "");
      if (i != 0) counted += sessions[i]->waiting_bytes();
    }
    const std::size_t after = mallinfo2().uordblks;
    EXPECT_LE(after - std::min(before, after), counted + count * 1024) << part;
    EXPECT_EQ(counted != 0, part == 4) << part;
  }
}

// A client may add certificates that nobody needs to its own, and the server would keep them.
TEST_F(TlsHeldMemory, CertificatesAreBoundedInNumber) {
  const TlsCertificate own = authority.issue("client");
  const auto server_context = load({.server = true,
                                    .certificates = tls_options.certificates,
                                    .ca_file = authority.ca_file(),
                                    .peer_certificate_required = true,
                                    .peer_certificate_bytes_max = 32 * 1024});
  client_context_options.certificates = {own};
  for (const int others : {9, 10}) {
    const auto context = load(client_context_options);
    for (int i = 0; i < others; ++i) ASSERT_EQ(SSL_CTX_add1_chain_cert(context->get(), authority.certificate()), 1);
    TlsSession client(context, "localhost", "hawser", nullptr);
    TlsSession server_end(server_context, std::string("\x06hawser"));
    EXPECT_EQ(shake_hands(client, server_end), others == 9) << server_end.error().text;
    if (others == 10) {
      EXPECT_HAS(server_end.error().text, "the client sent 11 certificates, more than 10");
    }
  }
}

TEST_F(TlsHeldMemory, AnAnnouncedHelloIsRefusedBeforeItsMemoryIsTaken) {
  start();
  for (const bool fragments : {false, true}) {
    RawSocket socket = RawSocket::connected_to(server->address());
    const Octets header = hello_header(130'000);
    if (fragments) {
      for (const std::byte one : header) socket.send(record({one}));
    } else {
      socket.send(record(header));
    }
    while (socket.receive(1)) {
    }
  }
  EXPECT_TRUE(soon([&] { return server->counters().handshakes_failed == 2; }));
  EXPECT_HAS(logged(),
             "a first message (ClientHello) of 130000 bytes, more than client_hello_bytes_max allows (16384 bytes)");
  EXPECT_EQ(call(client_options()), "ok");
}

// After a HelloRetryRequest the limit holds for the second message, too.
TEST_F(TlsHeldMemory, TheSecondHelloIsBoundedToo) {
  client_context = load(client_context_options);
  ASSERT_EQ(SSL_CTX_set1_groups_list(client_context->get(), "P-256:X25519"), 1);
  const auto server_context = load({.server = true,
                                    .certificates = tls_options.certificates,
                                    .peer_certificate_bytes_max = 32 * 1024,
                                    .client_hello_bytes_max = 16 * 1024});
  ASSERT_EQ(SSL_CTX_set1_groups_list(server_context->get(), "X25519"), 1);
  const auto client = client_session();
  TlsSession server_end(server_context, std::string("\x06hawser"));
  ASSERT_EQ(client->handshake(), TlsSession::Progress::more);
  move_bytes(*client, server_end);
  ASSERT_EQ(server_end.handshake(), TlsSession::Progress::more);
  server_end.input().append(record({std::byte{1}}, 20));
  server_end.input().append(record(hello_header(16 * 1024 + 1)));
  EXPECT_EQ(server_end.handshake(), TlsSession::Progress::failed);
  EXPECT_HAS(server_end.error().text, "ClientHello) of 16385 bytes");
}

class CountedHolder final : security::tls::MemoryHolder {
 public:
  CountedHolder(const std::shared_ptr<security::tls::HeldMemory>& memory, const std::string& peer) {
    join(memory, peer);
  }
  using MemoryHolder::hold;
  bool ended = false;

 private:
  void give_up() override { ended = true; }
};

TEST(TlsHeldMemoryOrder, APlaceIsKeptByAsMuchProgressAsIsHeld) {
  for (const std::size_t progress : {1, 99, 100}) {
    const auto memory = std::make_shared<security::tls::HeldMemory>(250, std::make_shared<security::tls::HeldTotals>());
    CountedHolder slow(memory, "peer");
    CountedHolder quiet(memory, "peer");
    CountedHolder third(memory, "peer");
    slow.hold(100, 0);
    quiet.hold(100, 0);
    slow.hold(100, progress);
    third.hold(100, 0);
    EXPECT_EQ(slow.ended, progress < 100) << progress;
    EXPECT_EQ(quiet.ended, progress == 100) << progress;
    EXPECT_FALSE(third.ended);
    EXPECT_EQ(memory->used(), 200U);
  }
  // Progress adds up.
  const auto memory = std::make_shared<security::tls::HeldMemory>(250, std::make_shared<security::tls::HeldTotals>());
  CountedHolder steady(memory, "peer");
  CountedHolder quiet(memory, "peer");
  CountedHolder third(memory, "peer");
  steady.hold(100, 0);
  quiet.hold(100, 0);
  for (int i = 0; i < 10; ++i) steady.hold(100, 10);
  third.hold(100, 0);
  EXPECT_TRUE(quiet.ended);
  EXPECT_FALSE(steady.ended);
}

TEST(TlsHeldMemoryOrder, ThePeerThatHoldsTheMostGivesUpFirst) {
  const auto totals = std::make_shared<security::tls::HeldTotals>();
  const auto memory = std::make_shared<security::tls::HeldMemory>(1000, totals);
  CountedHolder honest(memory, "honest");
  honest.hold(200, 0);
  std::vector<std::unique_ptr<CountedHolder>> others;
  for (int i = 0; i < 100; ++i) {
    others.push_back(std::make_unique<CountedHolder>(memory, "greedy"));
    others.back()->hold(50, 0);
    for (const auto& one : others) {
      if (!one->ended) one->hold(50, 50);
    }
    EXPECT_LE(memory->used(), 1000U);
  }
  EXPECT_FALSE(honest.ended);
  EXPECT_EQ(std::ranges::count_if(others, [](const auto& one) { return one->ended; }), 84);
  EXPECT_EQ(totals->ended, 84U);
  others.clear();
  EXPECT_EQ(memory->used(), 200U);
  // It may hold all of the memory that nobody else needs.
  honest.hold(1000, 0);
  EXPECT_FALSE(honest.ended);
  honest.hold(1001, 0);
  EXPECT_TRUE(honest.ended);
  EXPECT_EQ(totals->bytes, 0U);
}

// Another host, which holds more and always makes a little progress, ends no connection of a slow client.
TEST_F(TlsHeldMemory, OfAnotherHostIsNotAtTheCostOfASlowClient) {
  tls_options.held_bytes_max = std::size_t{1} << 20;
  start();
  const auto connected_from = [&](const char* source) {
    RawSocket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, source, &address.sin_addr), 1);
    auto* const where = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket.fd(), where, sizeof address), 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port())));
    EXPECT_EQ(::connect(socket.fd(), where, sizeof address), 0);
    return RawTls(std::move(socket), client_session());
  };
  const auto send_part = [](RawTls& peer, std::size_t bytes) {
    peer.socket().send(peer.session().output().bytes().first(bytes));
    peer.session().output().consume(bytes);
  };
  RawTls slow = connected_from("127.0.0.1");
  ASSERT_TRUE(slow.handshake());
  const Octets hello = wire::encode_hello(usual_hello());
  write_text(slow.session(), as_text(hello));
  send_part(slow, 20);
  ASSERT_TRUE(soon([&] { return security->counters().held_bytes != 0; }));
  std::vector<RawTls> others;
  for (int i = 0; i < 100; ++i) {
    others.push_back(connected_from("127.0.0.2"));
    ASSERT_TRUE(others.back().handshake());
    write_text(others.back().session(), "HWSR");
    write_text(others.back().session(), text_of(2000));
    send_part(others.back(), 500);
  }
  EXPECT_TRUE(soon([&] { return security->counters().held_ended >= 30; })) << security->counters().held_ended;
  slow.flush();
  EXPECT_TRUE(slow.receive(wire::hello_prefix_bytes)) << logged();
  others.clear();
}

// Peers that hold a part of a record each: the oldest ones end, and others are served.
TEST_F(TlsHeldMemory, IsBoundedForIncompleteRecords) {
  constexpr std::size_t limit = std::size_t{1} << 20;
  tls_options.held_bytes_max = limit;
  start();
  std::vector<RawTls> peers;
  constexpr std::size_t count = 150;
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    peers.push_back(connected());
    ASSERT_TRUE(peers.back().handshake());
    write_text(peers.back().session(), text_of(2000));
    peers.back().socket().send(peers.back().session().output().bytes().first(1000));
    most = std::max(most, security->counters().held_bytes);
    if (i % 30 == 29) {
      EXPECT_EQ(call(client_options()), "ok");
    }
  }
  EXPECT_TRUE(soon([&] { return security->counters().held_ended >= count - limit / (17 * 1024); }))
      << security->counters().held_ended;
  EXPECT_LE(most, limit);
  EXPECT_LE(security->counters().held_bytes, limit);
  EXPECT_TRUE(soon([&] { return logged().find("TlsServerOptions::held_bytes_max") != std::string::npos; })) << logged();
  // The newest connection was not ended.
  peers.back().socket().send(peers.back().session().output().bytes().subspan(1000));
  EXPECT_EQ(call(client_options()), "ok");
  peers.clear();
  EXPECT_TRUE(soon([&] { return security->counters().held_bytes == 0; })) << security->counters().held_bytes;
}

TEST_F(TlsHeldMemory, IsBoundedForHandshakesInFragments) {
  constexpr std::size_t limit = std::size_t{1} << 20;
  tls_options.held_bytes_max = limit;
  start();
  std::vector<RawSocket> peers;
  constexpr std::size_t count = 100;
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    peers.push_back(RawSocket::connected_to(server->address()));
    for (const std::byte one : hello_header(16 * 1024)) peers.back().send(record({one}));
    most = std::max(most, security->counters().held_bytes);
    if (i % 20 == 19) {
      EXPECT_TRUE(soon([&] { return call(client_options()) == "ok"; }));
    }
  }
  EXPECT_TRUE(soon([&] { return security->counters().held_ended >= count - limit / TlsStream::handshake_bytes; }))
      << security->counters().held_ended;
  EXPECT_LE(most, limit);
  EXPECT_EQ(call(client_options()), "ok");
}

// Peers that send requests and take no replies, so that the server does not read them any more.
TEST_F(TlsHeldMemory, IsBoundedForPausedConnections) {
  constexpr std::size_t limit = std::size_t{1} << 20;
  tls_options.held_bytes_max = limit;
  options.send_backlog_bytes_max = 64 * 1024;
  start();
  std::string many;
  for (int i = 0; i < 2000; ++i) many += "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
  std::vector<RawTls> peers;
  std::uint64_t most = 0;
  const auto send = [&](RawTls& peer) {
    if (peer.session().output().empty()) write_text(peer.session(), many);
    const std::size_t some = peer.socket().send_some(peer.session().output().bytes());
    if (some != 0) peer.session().output().consume(some);
    return some != 0;
  };
  for (int i = 0; i < 20; ++i) {
    peers.push_back(connected());
    const int bytes = 8 * 1024;  // A short way to the pause.
    ASSERT_EQ(setsockopt(peers.back().socket().fd(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
    ASSERT_TRUE(peers.back().handshake());
  }
  // Until connections have ended, although their sinks were paused.
  EXPECT_TRUE(soon([&] {
    for (RawTls& peer : peers) send(peer);
    most = std::max(most, security->counters().held_bytes);
    return security->counters().held_ended >= 5;
  })) << security->counters().held_ended
      << " " << most;
  EXPECT_LE(most, limit);
  EXPECT_TRUE(soon([&] { return server->counters().connections_open <= 15; })) << server->counters().connections_open;
  EXPECT_EQ(call(client_options()), "ok");
}

TEST_F(TlsHeldMemory, OptionsAreChecked) {
  const auto refusal = [&](std::size_t held, std::size_t hello) {
    TlsServerOptions with = tls_options;
    with.held_bytes_max = held;
    with.client_hello_bytes_max = hello;
    const Result<void> loaded = TlsServer(with).reload();
    return loaded ? std::string() : loaded.error().text;
  };
  EXPECT_EQ(refusal(1 << 20, 1024), "");
  EXPECT_HAS(refusal((1 << 20) - 1, 1024),
             "TlsServerOptions::held_bytes_max (1048575 bytes) is less than 1048576 bytes: raise it");
  EXPECT_HAS(refusal(1 << 20, 1 << 20),
             "held_bytes_max (1048576 bytes) is less than one handshake may hold, which is 81920 bytes + "
             "client_hello_bytes_max (1048576 bytes): raise it");
  EXPECT_HAS(refusal(1 << 20, SIZE_MAX), "is less than one handshake may hold");
  tls_options.client_ca_file = authority.ca_file();
  tls_options.peer_certificate_bytes_max = 950'000;
  EXPECT_EQ(refusal(1 << 20, 16 * 1024), "");
  EXPECT_HAS(refusal(1 << 20, 17 * 1024), "+ peer_certificate_bytes_max (950000 bytes): raise it");
  EXPECT_HAS(refusal(1 << 20, 1023),
             "TlsServerOptions::client_hello_bytes_max (1023 bytes) is less than 1024 bytes: raise it");
}

}  // namespace
}  // namespace hawser
