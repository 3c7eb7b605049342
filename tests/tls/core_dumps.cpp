#include <fcntl.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/descriptor.h"
#include "hawser/authorization.h"
#include "hawser/jwt.h"
#include "security/tls/certificate.h"
#include "security/tls/kernel.h"
#include "security/tls/path_keys.h"
#include "tests/process_memory.h"
#include "tests/tls/fixture.h"
#include "tests/tls/raw_tls.h"

// No secret of a server with TLS is in what a core dump would contain. The server is another process, which runs a test
// of this program, so that only the library has read the secrets there.
namespace hawser {
namespace {

using namespace testing_tools;
using std::filesystem::path;

constexpr const char* folder_name = "HAWSER_CORE_DUMPS_FOLDER";
constexpr const char* mode_name = "HAWSER_CORE_DUMPS_MODE";  // "excluded", or "common": without the exclusion.

void write_file(const path& file, std::string_view text) {
  const path unfinished = file.string() + ".unfinished";
  std::ofstream(unfinished, std::ios::binary) << text;
  std::filesystem::rename(unfinished, file);
}
std::string text_of_file(const path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
// Waits until the other process has written the file, however slow the machine is: the test's case has a limit. Returns
// false if `child` has ended before. The server's process ends with that of the test.
bool wait_for_file(const path& file, pid_t child = 0) {
  while (!std::filesystem::exists(file)) {
    siginfo_t info{};
    if (child != 0 &&
        (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == child)) {
      return std::filesystem::exists(file);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// ---- The server's process ----

// Reads a secret into its place, without a copy.
bool read_secret(const path& file, security::tls::Secret& secret) {
  const Descriptor opened(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  return read(opened.get(), secret.data(), security::tls::Secret::size) ==
         static_cast<ssize_t>(security::tls::Secret::size);
}

void serve(const path& folder) {
  TlsServerOptions with;
  for (const std::string name : {"ec", "rsa"}) {
    with.certificates.push_back({(folder / (name + ".pem")).string(), (folder / (name + ".key")).string()});
  }
  with.shared_keys = {{"storage", (folder / "shared.key").string()}};
  with.protection = TlsProtection::sealed_messages;
  const TlsServer security(with);
  ServerOptions options;
  options.security = security;
  options.handshake_timeout = patience;
  Server server(options);
  server.register_handler<echo>();
  const auto tokens =
      JwtVerifier::load({.keys_file = (folder / "jwks.json").string(), .issuer = "issuer", .audience = "here"});
  ASSERT_TRUE(tokens) << error_of(tokens);
  const auto proved = tokens->verify(text_of_file(folder / "token"));
  ASSERT_TRUE(proved) << error_of(proved);
  BearerTokens bearers;
  {
    const Result<security::tls::PemText> bearer = security::tls::read_file((folder / "bearer").string());
    ASSERT_TRUE(bearer);
    bearers.add(bearer->text(), *proved);
  }
  server.use(bearers);

  std::vector<std::unique_ptr<transport::PathCipher>> ciphers;
  {
    security::tls::Secret exported;
    ASSERT_TRUE(read_secret(folder / "exported", exported));
    const std::array<std::byte, 32> hash{};
    ciphers.push_back(security::tls::make_path_cipher(security::tls::PathAlgorithm::aes_256_gcm, true, exported, hash,
                                                      security::tls::Side::server, nullptr));
    ASSERT_NE(ciphers.back(), nullptr);
  }
  security::tls::WriteNotes notes;
  {
    const Result<security::tls::PemText> line = security::tls::read_file((folder / "key_log_line").string());
    ASSERT_TRUE(line);
    security::tls::note_line(notes, true, line->text());
    ASSERT_FALSE(notes.secret.empty());
  }
  ASSERT_TRUE(server.start());
  write_file(folder / "address", server.address());
  wait_for_file(folder / "stop");
  server.stop();
}

TEST(TlsCoreDumpsServer, DISABLED_Serves) {
  const char* const folder = std::getenv(folder_name);
  if (folder == nullptr) GTEST_SKIP() << "only another test runs this one";
  if (std::getenv(mode_name) == std::string_view("excluded")) {
    const Result<void> excluded = exclude_tls_memory_from_core_dumps();
    ASSERT_TRUE(excluded) << error_of(excluded);
    EXPECT_TRUE(exclude_tls_memory_from_core_dumps());
  }
  ASSERT_NO_FATAL_FAILURE(serve(folder));
  write_file(path(folder) / "stopped", "");
  wait_for_file(path(folder) / "end");
}

// ---- The test's process ----

std::string octets_text(const unsigned char* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

// HKDF-SHA256 of a key of 32 bytes.
std::string derived(std::string key, std::string salt, std::string label, std::size_t size) {
  EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* const context = EVP_KDF_CTX_new(kdf);
  std::string digest = "SHA256";
  std::vector<unsigned char> out(size);
  const std::array<OSSL_PARAM, 5> parameters = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, key.data(), key.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt.data(), salt.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, label.data(), label.size()), OSSL_PARAM_construct_end()};
  EXPECT_EQ(EVP_KDF_derive(context, out.data(), size, parameters.data()), 1);
  EVP_KDF_CTX_free(context);
  EVP_KDF_free(kdf);
  return octets_text(out.data(), size);
}

class TlsCoreDumps : public TlsFixture {
 protected:
  ~TlsCoreDumps() override {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

  // Up to 32 bytes of the middle of a secret, in the order of files and in that of OpenSSL's numbers.
  void add(const std::string& name, std::string bytes) {
    if (bytes.size() > 32) bytes = bytes.substr(bytes.size() / 2 - 16, 32);
    needles_.push_back({name, bytes});
    needles_.push_back({name, {bytes.rbegin(), bytes.rend()}});
  }
  void add_number(const std::string& name, const EVP_PKEY* key, const char* parameter) {
    BIGNUM* number = nullptr;
    ASSERT_EQ(EVP_PKEY_get_bn_param(key, parameter, &number), 1) << parameter;
    std::vector<unsigned char> bytes(static_cast<std::size_t>(BN_num_bytes(number)));
    BN_bn2bin(number, bytes.data());
    add(name, octets_text(bytes.data(), bytes.size()));
    BN_clear_free(number);
  }
  std::string random_bytes(std::size_t size) {
    std::ifstream in("/dev/urandom", std::ios::binary);
    std::string bytes(size, '\0');
    in.read(bytes.data(), static_cast<std::streamsize>(size));
    return bytes;
  }
  static std::string hexadecimal(std::string_view bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (const char one : bytes) {
      text += digits[static_cast<unsigned char>(one) >> 4];
      text += digits[static_cast<unsigned char>(one) & 15];
    }
    return text;
  }
  static std::string base64_url(std::string_view bytes) {
    std::string text;
    encode_base64(bytes, text);
    while (text.ends_with('=')) text.pop_back();
    for (char& one : text) one = one == '+' ? '-' : one == '/' ? '_' : one;
    return text;
  }

  void make_keys() {
    for (const bool rsa : {false, true}) {
      const std::string name = rsa ? "rsa" : "ec";
      const TlsCertificate made = authority.issue(name, {.rsa_bits = rsa ? 2048U : 0U});
      std::filesystem::copy_file(made.certificate_file, folder.path() / (name + ".pem"),
                                 std::filesystem::copy_options::overwrite_existing);
      const std::string pem = text_of_file(made.key_file);
      write_file(folder.path() / (name + ".key"), pem);
      const std::size_t body = pem.find('\n') + 1;
      needles_.push_back({"the text of the file " + name, pem.substr(body + 20, 40)});
      const Result<security::tls::PemText> text = security::tls::read_file(made.key_file);
      const Result<security::tls::KeyPtr> key = security::tls::parse_key(*text, made.key_file);
      ASSERT_TRUE(key) << error_of(key);
      if (!rsa) {
        add_number("the EC key", key->get(), OSSL_PKEY_PARAM_PRIV_KEY);
        continue;
      }
      add_number("the RSA key", key->get(), OSSL_PKEY_PARAM_RSA_D);
      for (const char* const one :
           {OSSL_PKEY_PARAM_RSA_FACTOR1, OSSL_PKEY_PARAM_RSA_FACTOR2, OSSL_PKEY_PARAM_RSA_EXPONENT1,
            OSSL_PKEY_PARAM_RSA_EXPONENT2, OSSL_PKEY_PARAM_RSA_COEFFICIENT1}) {
        add_number("the RSA numbers", key->get(), one);
      }
    }
    const std::string shared = random_bytes(32);
    write_file(folder.path() / "shared.key", hexadecimal(shared));
    add("the shared key", shared);
    add("the digits of the shared key", hexadecimal(shared));
  }
  void make_own_secrets() {
    const std::string exported = random_bytes(security::tls::Secret::size);
    write_file(folder.path() / "exported", exported);
    add("the exported secret", exported);
    const std::string hash(32, '\0');
    for (const std::string side : {"client", "server"}) {
      const std::string secret = derived(exported, hash, "hawser path 1 messages from the " + side, 32);
      add("the secret of a path", secret);
      add("the key of a path", derived(secret, hash, "hawser path 1 cipher", 44).substr(0, 32));
    }
    const std::string log_secret = random_bytes(32);
    write_file(folder.path() / "key_log_line",
               "SERVER_TRAFFIC_SECRET_0 " + hexadecimal(random_bytes(32)) + " " + hexadecimal(log_secret));
    add("the secret for the kernel", log_secret);
    const std::string jwk = random_bytes(48);
    const std::string spelled = base64_url(jwk);
    write_file(folder.path() / "jwks.json", R"({"keys":[{"kty":"oct","k":")" + spelled + "\"}]}");
    add("the key of tokens", jwk);
    add("the text of the key of tokens", spelled);
    const std::string claims =
        R"({"iss":"issuer","aud":"here","exp":)" + std::to_string(std::time(nullptr) + 3600) + "}";
    const std::string body = base64_url(R"({"alg":"HS256"})") + "." + base64_url(claims);
    std::array<unsigned char, 32> signature{};
    HMAC(EVP_sha256(), jwk.data(), static_cast<int>(jwk.size()), reinterpret_cast<const unsigned char*>(body.data()),
         body.size(), signature.data(), nullptr);
    write_file(folder.path() / "token", body + "." + base64_url(octets_text(signature.data(), signature.size())));
    const std::string bearer = hexadecimal(random_bytes(16));
    write_file(folder.path() / "bearer", bearer);
    add("the bearer token", bearer);
  }

  void start_process(const std::string& mode) {
    make_keys();
    make_own_secrets();
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(127);
      setenv(folder_name, folder.path().c_str(), 1);
      setenv(mode_name, mode.c_str(), 1);
      const rlimit any{RLIM_INFINITY, RLIM_INFINITY};
      setrlimit(RLIMIT_CORE, &any);
      // The kernel writes a core file there.
      if (chdir(folder.path().c_str()) != 0) _exit(126);
      execl("/proc/self/exe", "tls_test", "--gtest_filter=TlsCoreDumpsServer.DISABLED_Serves",
            "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
      _exit(127);
    }
    ASSERT_TRUE(wait_for_file(folder.path() / "address", process_));
    address_ = text_of_file(folder.path() / "address");
  }

  // Calls with a shared key over a sealed path, and with certificates; and holds a connection whose secrets are known.
  void make_traffic() {
    TlsClientOptions by_key;
    by_key.shared_key = {"storage", (folder.path() / "shared.key").string()};
    by_key.protection = TlsProtection::sealed_messages;
    call_process(by_key);
    for (int i = 0; i < 3; ++i) call_process(client_options());
    security::tls::ContextOptions with{.ca_file = authority.ca_file(), .peer_certificate_bytes_max = 32 * 1024};
    const std::shared_ptr<const security::tls::TlsContext> context = load(with);
    ASSERT_NE(context, nullptr);
    key_log_.clear();
    SSL_CTX_set_keylog_callback(context->get(),
                                [](const SSL*, const char* line) { key_log_ += std::string(line) + "\n"; });
    held_ = std::make_unique<RawTls>(RawSocket::connected_to(address_), std::make_unique<security::tls::TlsSession>(
                                                                            context, "localhost", "hawser", nullptr));
    ASSERT_TRUE(held_->handshake());
    add_traffic_secrets();
  }
  void call_process(const TlsClientOptions& tls) {
    std::string outcome = "ok";
    ClientOptions with{.connect_timeout = patience, .call_timeout = patience};
    with.security = TlsClient(tls);
    sync_wait([](std::string to, ClientOptions given, std::string& out) -> Task<void> {
      Client client(std::move(given));
      auto connected = co_await client.connect(to);
      REQUIRE_OK(connected);
      for (int i = 0; i < 100; ++i) {
        auto reply = co_await client.call<echo>("hi");
        if (!reply) out = reply.error().text;
      }
      client.close();
    }(address_, std::move(with), outcome));
    EXPECT_EQ(outcome, "ok");
  }
  void add_traffic_secrets() {
    std::istringstream lines(key_log_);
    int traffic = 0;
    for (std::string label, random, digits; lines >> label >> random >> digits;) {
      std::string secret;
      for (std::size_t at = 0; at < digits.size(); at += 2) {
        secret += static_cast<char>(std::stoi(digits.substr(at, 2), nullptr, 16));
      }
      add("the TLS secret " + label, secret);
      if (!label.ends_with("TRAFFIC_SECRET_0")) continue;
      ++traffic;
      KernelTlsKey key;
      const SSL_CIPHER* const cipher = SSL_get_current_cipher(held_->session().ssl());
      ASSERT_TRUE(security::tls::derive_key(key, static_cast<KernelCipher>(SSL_CIPHER_get_protocol_id(cipher)),
                                            Bytes(as_bytes(secret)), 0));
      add("a TLS key", octets_text(key.key.data(), key.cipher == KernelCipher::aes_128_gcm ? 16 : 32));
    }
    ASSERT_EQ(traffic, 2) << key_log_;
  }
  void stop_process() {
    held_.reset();
    write_file(folder.path() / "stop", "");
    ASSERT_TRUE(wait_for_file(folder.path() / "stopped", process_));
  }
  int end_process() {
    write_file(folder.path() / "end", "");
    int status = -1;
    waitpid(std::exchange(process_, 0), &status, 0);
    return status;
  }

  std::vector<Needle> needles_;
  pid_t process_ = 0;
  std::string address_;
  std::unique_ptr<RawTls> held_;
  static inline std::string key_log_;
};

using Names = std::set<std::string>;

TEST_F(TlsCoreDumps, NoSecretIsInThem) {
  start_process("excluded");
  ASSERT_NO_FATAL_FAILURE(make_traffic());
  const Searched live = search_process(process_, needles_);
  if (live.bytes == 0) GTEST_SKIP() << "this process may not read the memory of another one (ptrace)";
  EXPECT_TRUE(live.excluded);
  EXPECT_EQ(live.found, Names());
  ASSERT_NO_FATAL_FAILURE(stop_process());
  EXPECT_EQ(search_process(process_, needles_).found, Names());
  EXPECT_EQ(end_process(), 0);
}

// The search finds what OpenSSL has where its memory is not excluded. The library excludes its own secrets always.
TEST_F(TlsCoreDumps, TheSearchFindsSecretsOfOpensslThatAreNotExcluded) {
  start_process("common");
  ASSERT_NO_FATAL_FAILURE(make_traffic());
  const Searched live = search_process(process_, needles_);
  if (live.bytes == 0) GTEST_SKIP() << "this process may not read the memory of another one (ptrace)";
  for (const std::string name : {"the EC key", "the RSA key", "the RSA numbers", "the shared key", "the key of a path",
                                 "the TLS secret CLIENT_TRAFFIC_SECRET_0", "the TLS secret SERVER_TRAFFIC_SECRET_0",
                                 "the TLS secret EXPORTER_SECRET", "a TLS key"}) {
    EXPECT_TRUE(live.found.contains(name)) << name;
  }
  for (const std::string name : {"the text of the file ec", "the text of the file rsa", "the digits of the shared key",
                                 "the exported secret", "the secret of a path", "the secret for the kernel",
                                 "the key of tokens", "the text of the key of tokens", "the bearer token"}) {
    EXPECT_FALSE(live.found.contains(name)) << name;
  }
  ASSERT_NO_FATAL_FAILURE(stop_process());
  EXPECT_EQ(end_process(), 0);
}

TEST_F(TlsCoreDumps, NoSecretIsInTheFileThatTheKernelWrites) {
  const std::string pattern = text_of_file("/proc/sys/kernel/core_pattern");
  if (pattern.starts_with('|') || pattern.starts_with('/')) {
    GTEST_SKIP() << "core files go elsewhere (kernel.core_pattern): " << pattern;
  }
  start_process("excluded");
  ASSERT_NO_FATAL_FAILURE(make_traffic());
  ASSERT_EQ(kill(process_, SIGABRT), 0);
  int status = 0;
  ASSERT_GT(waitpid(std::exchange(process_, 0), &status, 0), 0);
  if (!WIFSIGNALED(status) || !WCOREDUMP(status)) GTEST_SKIP() << "the kernel writes no core file (ulimit -c)";
  std::string core;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    if (file.path().filename().string().starts_with("core")) core = text_of_file(file.path());
  }
  EXPECT_GT(core.size(), std::size_t{1} << 20);
  EXPECT_TRUE(core.contains("TlsCoreDumpsServer.DISABLED_Serves")) << "the file has the memory of the process";
  Names found;
  find_needles(core, needles_, found);
  EXPECT_EQ(found, Names());
}

TEST(TlsCoreDumpsCall, ComesBeforeOtherUsesOfOpenssl) {
  const pid_t process = fork();
  if (process == 0) {
    X509_free(X509_new());
    const Result<void> late = exclude_tls_memory_from_core_dumps();
    _exit(!late && late.error().text.contains("at the start of main()") ? 0 : 1);
  }
  int status = -1;
  waitpid(process, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hawser
