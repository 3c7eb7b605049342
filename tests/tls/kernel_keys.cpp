#include <openssl/evp.h>

#include <string>
#include <vector>

#include "hawser/http_client.h"
#include "rpc/server/inspector.h"
#include "security/tls/kernel.h"
#include "tests/tls/fixture.h"
#include "tests/tls/raw_tls.h"

// Keys for the kernel, the numbers of records, and connections for which the kernel does not encrypt.
namespace hawser {
namespace {

using namespace testing_tools;
using security::tls::TlsSession;

Octets unhex(std::string_view digits) {
  Octets bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}
const unsigned char* raw(Bytes bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }
std::string hex(const unsigned char* data, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    constexpr std::string_view digits = "0123456789abcdef";
    text += {digits[data[i] >> 4], digits[data[i] & 15]};
  }
  return text;
}

// Decrypts a record. The nonce is the IV, combined with the number of the record by exclusive or (RFC 8446, 5.3). Empty
// if the tag is wrong.
std::string open_record(const KernelTlsKey& key, Bytes record) {
  const EVP_CIPHER* const cipher = key.cipher == KernelCipher::aes_128_gcm   ? EVP_aes_128_gcm()
                                   : key.cipher == KernelCipher::aes_256_gcm ? EVP_aes_256_gcm()
                                                                             : EVP_chacha20_poly1305();
  auto nonce = key.iv;
  for (std::size_t i = 0; i < 8; ++i) nonce[11 - i] ^= static_cast<unsigned char>(key.next_record >> (8 * i));
  const Bytes header = record.first(5);
  const Bytes body = record.subspan(5, record.size() - 5 - 16);
  std::string out(body.size(), '\0');
  Octets tag(record.end() - 16, record.end());
  int size = 0;
  EVP_CIPHER_CTX* const context = EVP_CIPHER_CTX_new();
  const bool good = EVP_DecryptInit_ex(context, cipher, nullptr, key.key.data(), nonce.data()) == 1 &&
                    EVP_DecryptUpdate(context, nullptr, &size, raw(header), static_cast<int>(header.size())) == 1 &&
                    EVP_DecryptUpdate(context, reinterpret_cast<unsigned char*>(out.data()), &size, raw(body),
                                      static_cast<int>(body.size())) == 1 &&
                    EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, 16, tag.data()) == 1 &&
                    EVP_DecryptFinal_ex(context, reinterpret_cast<unsigned char*>(out.data()) + size, &size) == 1;
  EVP_CIPHER_CTX_free(context);
  return good ? out : "";
}

// The secrets, keys and records of RFC 8448, section 3. The server's first record with its key is the ticket, so its
// data has the number 1.
TEST(KernelKeys, AreThoseOfRfc8448) {
  struct Case {
    std::string_view secret, key, iv;
    std::uint64_t number;
    std::string_view record;
  };
  const Case cases[] = {
      {"9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5", "17422dda596ed5d9acd890e3c63f5051",
       "5b78923dee08579033e523d9", 0,
       "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292"
       "a2977014bd1e3deae63aeebb21694915e4"},
      {"a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643", "9f02283b6c9c07efc26bb9f2ac92e356",
       "cf782b88dd83549aadf1e984", 1,
       "17030300432e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc602dcb501a59a8fcc49c4bf2e5f0"
       "a21c0047c2abf332540dd032e167c2955d"},
  };
  std::string expected;
  for (int i = 0; i < 50; ++i) expected += static_cast<char>(i);
  expected += '\x17';
  for (const Case& one : cases) {
    KernelTlsKey key;
    const Octets secret = unhex(one.secret);
    ASSERT_TRUE(security::tls::derive_key(key, KernelCipher::aes_128_gcm, secret, one.number));
    EXPECT_EQ(hex(key.key.data(), 16), one.key);
    EXPECT_EQ(hex(key.iv.data(), key.iv.size()), one.iv);
    EXPECT_EQ(open_record(key, unhex(one.record)), expected);
    ++key.next_record;
    EXPECT_EQ(open_record(key, unhex(one.record)), "") << "with another number";
  }
}

TEST(KernelKeys, SecretsAreTakenFromLinesOfThisSide) {
  security::tls::WriteNotes notes;
  const std::string random(64, 'b');
  const std::string secret = "00ff" + std::string(60, 'a');
  security::tls::note_line(notes, true, "CLIENT_TRAFFIC_SECRET_0 " + random + " " + secret);
  security::tls::note_line(notes, true, "SERVER_HANDSHAKE_TRAFFIC_SECRET " + random + " " + secret);
  security::tls::note_line(notes, true, "EXPORTER_SECRET " + random + " " + secret);
  EXPECT_TRUE(notes.secret.empty());
  security::tls::note_line(notes, true, "SERVER_TRAFFIC_SECRET_0 " + random + " " + secret);
  ASSERT_EQ(notes.secret.size(), 32U);
  EXPECT_EQ(notes.secret[1], std::byte{0xff});
  notes.forget();
  EXPECT_EQ(notes.secret.capacity(), 0U);
  for (const std::string& wrong : {std::string("zz"), std::string("abc"), std::string(130, 'a'), std::string()}) {
    security::tls::note_line(notes, false, "CLIENT_TRAFFIC_SECRET_0 " + random + " " + wrong);
    EXPECT_TRUE(notes.secret.empty()) << wrong;
  }
}

class KernelNumbers : public TlsFixture {};

// Whatever a handshake sends with its last key, such as tickets, counts. The notes decrypt the record that follows.
TEST_F(KernelNumbers, TheNotesOpenTheNextRecordOfEitherSide) {
  const std::pair<KernelCipher, const char*> ciphers[] = {
      {KernelCipher::aes_128_gcm, "TLS_AES_128_GCM_SHA256"},
      {KernelCipher::aes_256_gcm, "TLS_AES_256_GCM_SHA384"},
      {KernelCipher::chacha20_poly1305, "TLS_CHACHA20_POLY1305_SHA256"}};
  security::tls::ContextOptions of_server{.server = true,
                                          .certificates = {authority.issue("server")},
                                          .ca_file = authority.ca_file(),
                                          .peer_certificate_required = false,
                                          .peer_certificate_bytes_max = 32 * 1024,
                                          .kernel = TlsKernel::automatic};
  security::tls::ContextOptions of_client{.certificates = {authority.issue("client")},
                                          .ca_file = authority.ca_file(),
                                          .peer_certificate_bytes_max = 32 * 1024,
                                          .kernel = TlsKernel::automatic};
  for (const auto& [cipher, name] : ciphers) {
    const auto server_context = load(of_server);
    for (const std::size_t tickets : {0, 2, 5}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(tickets));
      ASSERT_EQ(SSL_CTX_set_ciphersuites(server_context->get(), name), 1);
      ASSERT_EQ(SSL_CTX_set_num_tickets(server_context->get(), tickets), 1);
      const auto client_context = load(of_client);
      for (const bool resumed : {false, true}) {
        TlsSession client(client_context, "localhost", "", resumed ? client_context->take("localhost") : nullptr);
        TlsSession other(server_context, "");
        ASSERT_TRUE(shake_hands(client, other));
        EXPECT_EQ(received_by(client), "");
        EXPECT_EQ(client.resumed(), resumed && tickets != 0);
        for (TlsSession* const side : {&client, &other}) {
          security::tls::WriteNotes& notes = side->notes();
          EXPECT_FALSE(notes.key_changed);
          EXPECT_FALSE(notes.key_demanded);
          ASSERT_FALSE(notes.secret.empty());
          const std::uint64_t number = notes.records;
          write_text(*side, "next");
          EXPECT_EQ(notes.records, number + 1);
          KernelTlsKey key;
          ASSERT_TRUE(security::tls::derive_key(key, cipher, notes.secret, number));
          EXPECT_EQ(open_record(key, side->output().bytes()), "next\x17");
          move_bytes(*side, side == &client ? other : client);
        }
        EXPECT_EQ(received_by(client) + received_by(other), "nextnext");
        // Demands for new keys, and the answers, are noted.
        ASSERT_EQ(SSL_key_update(client.ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
        write_text(client, "x");
        move_bytes(client, other);
        EXPECT_EQ(received_by(other), "x");
        EXPECT_TRUE(other.notes().key_demanded);
        EXPECT_FALSE(other.notes().key_changed);
        write_text(other, "y");
        EXPECT_TRUE(other.notes().key_changed);
      }
    }
  }
}

// Over the byte stream, both for this library's protocol and for another one.
TEST_F(KernelNumbers, ThePageOfConnectionsSaysWhoEncrypts) {
  const std::string problem = security::tls::examine_kernel().problem;
  const std::string expected = problem.empty() ? "the kernel encrypts (" : problem;
  Loop loop;
  tls_options.kernel = TlsKernel::automatic;
  tls_options.certificates = {authority.issue("server")};
  options.security = TlsServer(tls_options);
  Server served(loop, options);
  served.register_handler<echo>();
  served.enable(http().route("GET", "/hello", hello));
  loop.run([&]() -> Task<void> {
    REQUIRE(served.start());
    ClientOptions with;
    with.security = TlsClient(client_options());
    with.transports.required = "stream";
    Client client(loop, with);
    auto connected = co_await client.connect(served.address());
    REQUIRE(connected);
    HttpClientOptions over_http;
    over_http.security = TlsClient(client_options());
    HttpClient http_client(loop, over_http);
    const auto answer = co_await http_client.get("https://" + served.address() + "/hello");
    EXPECT_TRUE(answer) << error_of(answer);
    const rpc::Inspector::Connections found = co_await rpc::Inspector::connections(served, loop, {}, 100);
    EXPECT_EQ(found.rows.size(), 2U);
    for (const rpc::ConnectionReport& one : found.rows) EXPECT_HAS(one.details, expected);
    client.close();
    co_await served.shut_down(1s);
  }());
}

class KernelFallback : public TlsFixture {
 protected:
  void SetUp() override {
    problem = security::tls::examine_kernel().problem;
    if (problem.empty()) GTEST_SKIP() << "this kernel encrypts";
  }
  std::string problem;
};

TEST_F(KernelFallback, OpensslEncryptsAndTheReasonIsVisible) {
  tls_options.kernel = TlsKernel::automatic;
  start();
  TlsClientOptions with = client_options();
  with.kernel = TlsKernel::automatic;
  const TlsClient tls(with);
  ClientOptions stream;
  stream.transports.required = "stream";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call(text_of(300'000), tls, stream), "ok");
  EXPECT_EQ(security->counters().kernel_begun, 0U);
  EXPECT_EQ(security->counters().kernel_refused, 3U);
  EXPECT_EQ(tls.counters().kernel_refused, 3U);
  const std::string log_text = logged();
  const std::size_t at = log_text.find(problem);
  EXPECT_NE(at, std::string::npos) << log_text;
  EXPECT_EQ(log_text.find(problem, at + 1), std::string::npos) << "one line is enough: " << log_text;
  EXPECT_EQ(inspect_tls_kernel().ciphers.size(), 0U);
  EXPECT_NE(inspect_tls_kernel().problem, "");
}

TEST_F(KernelFallback, RequiredEndsTheConnectionWithTheReason) {
  start();
  TlsClientOptions with = client_options();
  with.kernel = TlsKernel::required;
  const std::string refused = call(with);
  EXPECT_HAS(refused, "TlsKernel::required");
  EXPECT_HAS(refused, problem);
  server.reset();
  tls_options.kernel = TlsKernel::required;
  start();
  EXPECT_NE(call(client_options()), "ok");
  EXPECT_EQ(security->counters().kernel_refused, 1U);
}

TEST_F(KernelFallback, ItIsOffByDefault) {
  start();
  EXPECT_EQ(call(client_options()), "ok");
  EXPECT_EQ(security->counters().kernel_refused, 0U);
}

}  // namespace
}  // namespace hawser
