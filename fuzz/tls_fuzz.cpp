#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/jwt.h"
#include "security/tls/authority.h"
#include "security/tls/json.h"
#include "security/tls/pkcs11.h"
#include "security/tls/session.h"

// TLS records and signed tokens. Input: u8 mode | bytes. Mode, bits 0 and 1: 0: the bytes are what a client sends to a
// server from its first byte on; bits 2 to 7 are the largest number of bytes that arrive at a time, minus one. 1: a
// client and a server have performed the handshake, and a man in the middle changes the client's records: each step is
// u8 kind | u8 record | u8 place | u8 value. 2: a token. 3: JSON, and the URI of a key in a token of PKCS #11 behind
// "pkcs11:". Keys of TLS are new in each process, so an input does not reach the same code each time.
namespace hawser {
namespace {

using security::tls::TlsSession;

void expect(bool condition, std::source_location where = std::source_location::current()) {
  if (condition) return;
  std::fprintf(stderr, "line %u: not as expected\n", static_cast<unsigned>(where.line()));
  std::abort();
}

class Ends {
 public:
  Ends() : authority_(folder_.path().string(), "fuzz") {
    server_ = load({.server = true,
                    .certificates = {authority_.issue("server")},
                    .peer_certificate_bytes_max = 32 * 1024,
                    .client_hello_bytes_max = 16 * 1024});
    client_ = load({.ca_file = authority_.ca_file(), .peer_certificate_bytes_max = 32 * 1024});
    const std::string keys = (folder_.path() / "keys.json").string();
    std::ofstream(keys) << R"({"keys":[{"kty":"oct","k":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"}]})";
    Result<JwtVerifier> tokens = JwtVerifier::load({.keys_file = keys, .issuer = "i", .audience = "a"});
    expect(tokens.has_value());
    tokens_.emplace(std::move(*tokens));
  }
  std::unique_ptr<TlsSession> server() const {
    return std::make_unique<TlsSession>(server_, std::string("\x06hawser"));
  }
  std::unique_ptr<TlsSession> client() const {
    return std::make_unique<TlsSession>(client_, "localhost", "hawser", nullptr);
  }
  const JwtVerifier& tokens() const { return *tokens_; }

 private:
  static std::shared_ptr<const security::tls::TlsContext> load(const security::tls::ContextOptions& options) {
    auto loaded = security::tls::TlsContext::load(options);
    expect(loaded.has_value());
    return *loaded;
  }
  const TemporaryFolder folder_;
  security::tls::Authority authority_;
  std::shared_ptr<const security::tls::TlsContext> server_;
  std::shared_ptr<const security::tls::TlsContext> client_;
  std::optional<JwtVerifier> tokens_;
};

const Ends& ends() {
  static const Ends made;
  return made;
}

// Returns what the session has received, and whether it has failed.
std::pair<std::string, bool> receive_all(TlsSession& session) {
  std::string all;
  std::array<std::byte, 4096> space;
  for (;;) {
    std::size_t size = 0;
    const TlsSession::Read read = session.read(space, size);
    if (read != TlsSession::Read::data) return {all, read == TlsSession::Read::failed};
    all += as_text(Bytes(space).first(size));
  }
}

void move_bytes(TlsSession& from, TlsSession& to) {
  to.input().append(from.output().bytes());
  from.output().clear();
}

void first_bytes(Bytes bytes, std::size_t step) {
  const auto server = ends().server();
  TlsSession::Progress progress = TlsSession::Progress::more;
  while (!bytes.empty() && progress == TlsSession::Progress::more) {
    const Bytes part = bytes.first(std::min(step, bytes.size()));
    server->input().append(part);
    bytes = bytes.subspan(part.size());
    progress = server->handshake();
    server->output().clear();
  }
  expect(progress != TlsSession::Progress::done);
  if (progress == TlsSession::Progress::failed) expect(!server->error().text.empty());
}

void changed_records(Bytes steps) {
  constexpr std::size_t records_max = 8;
  constexpr std::size_t step_bytes = 4;
  const auto server = ends().server();
  const auto client = ends().client();
  static_cast<void>(client->handshake());
  move_bytes(*client, *server);
  static_cast<void>(server->handshake());
  move_bytes(*server, *client);
  expect(client->handshake() == TlsSession::Progress::done);
  move_bytes(*client, *server);
  expect(server->handshake() == TlsSession::Progress::done);
  std::string sent;
  std::vector<std::vector<std::byte>> records;
  for (std::size_t i = 0; i < records_max; ++i) {
    const std::string text = "record " + std::to_string(i) + std::string(i * i * 20, 'x');
    const ConstBuffer piece{as_bytes(text).data(), text.size()};
    expect(client->write(std::span(&piece, 1), text.size()) == text.size());
    const Bytes bytes = client->output().bytes();
    records.emplace_back(bytes.begin(), bytes.end());
    client->output().clear();
    sent += text;
  }
  bool changed = false;
  for (; steps.size() >= step_bytes && records.size() < 4 * records_max; steps = steps.subspan(step_bytes)) {
    const auto number = [&](std::size_t at) { return std::to_integer<std::size_t>(steps[at]); };
    if (records.empty()) break;
    const auto one = records.begin() + static_cast<std::ptrdiff_t>(number(1) % records.size());
    changed = true;
    switch (number(0) % 6) {
      case 0:
        if (!one->empty()) (*one)[number(2) % one->size()] ^= steps[3];
        break;
      case 1: records.erase(one); break;
      case 2: records.push_back(*one); break;
      case 3: std::swap(*one, records[number(2) % records.size()]); break;
      case 4: one->resize(number(2) % (one->size() + 1)); break;
      default: one->insert(one->end(), number(2), steps[3]); break;
    }
  }
  std::string got;
  for (const auto& record : records) {
    server->input().append(record);
    const auto [text, failed] = receive_all(*server);
    got += text;
    server->output().clear();
    if (failed) break;
  }
  // Nothing but the beginning of what was sent arrives, whatever the steps are.
  expect(sent.starts_with(got));
  if (!changed) expect(got == sent);
}

}  // namespace
}  // namespace hawser

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  using namespace hawser;
  const Bytes bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] & 3) {
    case 0: first_bytes(bytes, (data[0] >> 2) + 1U); break;
    case 1: changed_records(bytes); break;
    case 2: expect(!ends().tokens().verify(as_text(bytes)) || bytes.size() > 40); break;
    default:
      static_cast<void>(security::tls::parse_json(as_text(bytes), 512));
      static_cast<void>(security::tls::pin_file_of_pkcs11("pkcs11:" + std::string(as_text(bytes))));
      break;
  }
  return 0;
}
