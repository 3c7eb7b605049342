#include <dlfcn.h>
#include <p11-kit/pkcs11.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "security/tls/pkcs11.h"
#include "security/tls/pkcs11/module.h"
#include "tests/tls/fixture.h"
#include "tests/tls/raw_tls.h"

// Private keys in tokens (PKCS #11), which SoftHSM keeps in a folder of this test.
namespace hawser {
namespace {

using namespace testing_tools;
using security::tls::TlsSession;

constexpr std::string_view pin = "4711-secret";

// The module reads its configuration once in a process, so that all tests share the tokens.
class Tokens {
 public:
  Tokens() {
    for (const char* const path : {"/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/pkcs11/libsofthsm2.so"}) {
      if (module_.empty() && std::filesystem::exists(path)) module_ = path;
    }
    if (!present()) return;
    std::filesystem::create_directory(folder_.path() / "tokens");
    const std::string file = (folder_.path() / "softhsm2.conf").string();
    std::ofstream(file) << "directories.tokendir = " << (folder_.path() / "tokens").string()
                        << "\nobjectstore.backend = file\nlog.level = ERROR\n";
    ::setenv("SOFTHSM2_CONF", file.c_str(), 1);
    std::ofstream(pin_file()) << pin << "\n";
    std::vector<std::filesystem::path> before;
    for (const char* const label : {"web", "gone"}) {
      made_ += output_of("softhsm2-util --init-token --free --so-pin 98765432 --label " + std::string(label) +
                         " --pin " + std::string(pin));
      for (const auto& one : std::filesystem::directory_iterator(folder_.path() / "tokens")) {
        if (std::ranges::find(before, one.path()) == before.end()) gone_ = before.emplace_back(one.path());
      }
    }
  }
  bool present() const { return !module_.empty() && !output_of("command -v softhsm2-util").empty(); }
  std::string pin_file() const { return (folder_.path() / "pin").string(); }
  std::string query() const { return "?module-path=" + module_ + "&pin-source=" + pin_file(); }
  const std::string& module() const { return module_; }
  // The folder of the token "gone".
  const std::filesystem::path& folder_of_gone() const { return gone_; }
  const std::string& made() const { return made_; }
  // Moves the key of a certificate from its file into a token.
  TlsCertificate import(TlsCertificate files, const std::string& label, const std::string& token = "web") {
    const std::string id = std::to_string(10 + imported_++);
    const std::string text = output_of("softhsm2-util --import " + files.key_file + " --token " + token + " --label " +
                                       label + " --id " + id + " --pin " + std::string(pin));
    EXPECT_HAS(text, "has been imported");
    std::filesystem::remove(files.key_file);
    files.key_file = "pkcs11:token=" + token + ";object=" + label + ";id=%" + id + query();
    return files;
  }

 private:
  TemporaryFolder folder_;
  std::string module_;
  std::filesystem::path gone_;
  std::string made_;
  int imported_ = 0;
};

class TlsTokenKeys : public TlsFixture {
 protected:
  static void SetUpTestSuite() { tokens = std::make_unique<Tokens>(); }
  static void TearDownTestSuite() { tokens.reset(); }
  void SetUp() override {
    if (!tokens->present()) GTEST_SKIP() << "softhsm2 is not installed";
    const Result<security::tls::Pkcs11Key> none =
        security::tls::open_pkcs11_key("pkcs11:object=none" + tokens->query());
    if (!none && none.error().text.find("this build") != std::string::npos) GTEST_SKIP() << none.error().text;
    ASSERT_HAS_TOKEN();
  }
  void ASSERT_HAS_TOKEN() {
    ASSERT_NE(tokens->made().find("has been initialized"), std::string::npos) << tokens->made();
  }
  std::string refusal_of(const std::string& certificate_file, const std::string& uri) {
    const Result<void> loaded = TlsServer({.certificates = {{certificate_file, uri}}}).reload();
    const std::string text = loaded ? std::string() : loaded.error().text;
    EXPECT_EQ(text.find("secret"), std::string::npos) << text;
    return text;
  }
  // The functions of the module, as another part of the process has them.
  static const CK_FUNCTION_LIST& functions() {
    const auto list = reinterpret_cast<CK_C_GetFunctionList>(
        dlsym(dlopen(tokens->module().c_str(), RTLD_NOW | RTLD_LOCAL), "C_GetFunctionList"));
    CK_FUNCTION_LIST* all = nullptr;
    list(&all);
    return *all;
  }
  bool logs(const std::string& text) {
    return soon([&] { return logged().find(text) != std::string::npos; });
  }

  static std::unique_ptr<Tokens> tokens;
};
std::unique_ptr<Tokens> TlsTokenKeys::tokens;

TEST_F(TlsTokenKeys, ServeEachKindOfKeyInEachVersion) {
  const std::vector<std::pair<std::string, security::tls::Request>> kinds = {
      {"ec", {}}, {"rsa", {.rsa_bits = 2048}}, {"ed25519", {.ed25519 = true}}};
  for (const auto& [name, request] : kinds) {
    const TlsCertificate of_server = tokens->import(authority.issue("server", request), "server-" + name);
    const TlsCertificate of_client = tokens->import(authority.issue("client", request), "client-" + name);
    for (const bool tls12 : {false, true}) {
      SCOPED_TRACE(name + (tls12 ? ", TLS 1.2" : ", TLS 1.3"));
      const auto server_context = load({.server = true,
                                        .certificates = {of_server},
                                        .ca_file = authority.ca_file(),
                                        .peer_certificate_required = true,
                                        .peer_certificate_bytes_max = 32 * 1024});
      const auto client_context =
          load({.certificates = {of_client}, .ca_file = authority.ca_file(), .peer_certificate_bytes_max = 32 * 1024});
      ASSERT_TRUE(server_context != nullptr && client_context != nullptr);
      const auto connects = [&] {
        TlsSession client(client_context, "localhost", "hawser", nullptr);
        TlsSession server_end(server_context, std::string("\x06hawser"));
        EXPECT_TRUE(shake_hands(client, server_end)) << client.error().text << server_end.error().text;
        EXPECT_EQ(SSL_version(client.ssl()), tls12 ? TLS1_2_VERSION : TLS1_3_VERSION);
      };
      if (tls12) SSL_CTX_set_max_proto_version(client_context->get(), TLS1_2_VERSION);
      connects();
      if (!tls12 || name != "rsa") continue;
      // A peer that knows no PSS.
      ASSERT_EQ(SSL_CTX_set1_sigalgs_list(client_context->get(), "RSA+SHA256:ECDSA+SHA256"), 1);
      ASSERT_EQ(SSL_CTX_set1_sigalgs_list(server_context->get(), "RSA+SHA256:ECDSA+SHA256"), 1);
      connects();
    }
  }
}

TEST_F(TlsTokenKeys, ServeManyConnectionsAtOnce) {
  tls_options.certificates = {tokens->import(authority.issue("server"), "many")};
  tls_options.handshake_threads = 4;
  start();
  std::vector<std::thread> clients;
  std::atomic<int> good{0};
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&, tls = TlsClientOptions(client_options())]() mutable {
      tls.resumption = false;
      for (int j = 0; j < 10; ++j) {
        ClientOptions with;
        with.security = TlsClient(tls);
        with.connect_timeout = patience;
        std::string outcome;
        sync_wait([](std::string to, ClientOptions given, std::string& out) -> Task<void> {
          Client client(std::move(given));
          auto connected = co_await client.connect(to);
          out = connected ? "ok" : connected.error().text;
        }(server->address(), std::move(with), outcome));
        EXPECT_EQ(outcome, "ok");
        good += outcome == "ok" ? 1 : 0;
      }
    });
  }
  for (std::thread& one : clients) one.join();
  EXPECT_EQ(good, 40);
  EXPECT_EQ(security->counters().signatures, 41U);
}

TEST_F(TlsTokenKeys, SayWhatIsWrongAndHowToFixIt) {
  const TlsCertificate good = tokens->import(authority.issue("good"), "good");
  const std::string file = good.certificate_file;
  const std::string path = "pkcs11:token=web;object=good";
  const std::string module = "?module-path=" + tokens->module();
  const std::string secret = "&pin-value=" + std::string(pin);
  EXPECT_EQ(refusal_of(file, good.key_file), "");
  EXPECT_EQ(refusal_of(file, path + module + secret), "");
  EXPECT_EQ(refusal_of(file, path + ";type=private" + tokens->query()), "");
  EXPECT_EQ(refusal_of(file, "pkcs11:object=g%6f%6Fd;manufacturer=SoftHSM%20project;token=web" + tokens->query()), "");
  // Modules.
  EXPECT_HAS(refusal_of(file, path + "?module-path=/absent/module.so" + secret),
             "the PKCS #11 module /absent/module.so cannot be loaded (");
  EXPECT_HAS(refusal_of(file, path + "?module-path=/absent/module.so" + secret),
             "install it, or correct module-path in the URI of the key");
  EXPECT_HAS(refusal_of(file, path + "?module-path=libz.so.1" + secret), "libz.so.1 has no C_GetFunctionList");
  // Tokens.
  EXPECT_HAS(refusal_of(file, "pkcs11:token=absent;object=good" + tokens->query()),
             "the key pkcs11:token=absent;object=good: the module " + tokens->module() + " has no such token. Present");
  EXPECT_HAS(refusal_of(file, "pkcs11:token=absent;object=good" + tokens->query()), "'web'");
  EXPECT_HAS(refusal_of(file, "pkcs11:object=good" + tokens->query()),
             "such tokens: add token, serial or slot-id to the URI of the key");
  // PINs.
  EXPECT_HAS(refusal_of(file, path + module + "&pin-value=secret-but-wrong"),
             "the token 'web' refuses the PIN: CKR_PIN_INCORRECT (0xa0): correct pin-value in the URI of the key");
  EXPECT_HAS(refusal_of(file, path + module), "the token 'web' demands a PIN: add pin-source=FILE to the URI");
  EXPECT_HAS(refusal_of(file, path + module + "&pin-source=/absent/pin"), "cannot read /absent/pin");
  // Keys.
  EXPECT_HAS(refusal_of(file, "pkcs11:token=web;object=absent" + tokens->query()),
             "the token 'web' has no such private key. The labels of its keys are: ");
  EXPECT_HAS(refusal_of(file, "pkcs11:token=web;object=absent" + tokens->query()), "'good'");
  const TlsCertificate twin = tokens->import(authority.issue("twin"), "good");
  EXPECT_HAS(refusal_of(file, path + tokens->query()), "more than one such private key: add object and id to the URI");
  EXPECT_EQ(refusal_of(twin.certificate_file, twin.key_file), "");
  const std::string other = refusal_of(twin.certificate_file, good.key_file);
  EXPECT_HAS(other, "the key pkcs11:token=web;object=good;id=");
  EXPECT_HAS(other, "the certificate in " + twin.certificate_file + " has no usable key");
  EXPECT_HAS(other, "sign with the private key of this certificate");
  // URIs.
  for (const auto& [uri, text] : std::vector<std::pair<std::string, std::string>>{
           {"pkcs11:token=web" + module + secret, "it does not say which key: add object=LABEL or id=%XX"},
           {"pkcs11:object=good;colour=red" + module + secret, "the attribute 'colour' is not supported"},
           {"pkcs11:object=good;type=cert" + module + secret, "the attribute 'type' is not supported"},
           {"pkcs11:object=go%zzd" + module + secret, "the value of 'object' is not percent-encoded correctly"},
           {"pkcs11:object=good%6" + module + secret, "the value of 'object' is not percent-encoded correctly"},
           {"pkcs11:object=good;slot-id=first" + module + secret, "slot-id must be a number"},
           {path + "?module-name=softhsm2" + secret, "module-name is not supported"},
           {path + module + secret + "&pin-source=/secret", "it has pin-value and pin-source"},
           {path + module + "&pin-source=%7ccommand", "pin-source must be a file"}}) {
    EXPECT_HAS(refusal_of(file, uri), text);
  }
}

// Mistakes in a URI, from which a PIN must not get into a log.
TEST_F(TlsTokenKeys, ErrorsContainNoPin) {
  const std::string file = authority.issue("server").certificate_file;
  for (const auto& [uri, text] : std::vector<std::pair<std::string, std::string>>{
           {"pkcs11:token=web;object=server;pin-value=4711-secret", "pin-value is an attribute of the query"},
           {"pkcs11:token=web;object=server;PIN-Value=47;secret=11", "pin-value is an attribute of the query"},
           {"pkcs11:token=web;object=server&pin-value=secret&module-path=" + tokens->module(), "write '?' before"},
           {"PKCS11:token=web;object=nothing?pin-value=4711-secret&module-path=" + tokens->module(),
            "has no such private key"},
           {"pkcs11:object=server?pin-value=4711&secret=%", "a value of its query is not percent-encoded correctly"}}) {
    EXPECT_HAS(refusal_of(file, uri), text);
  }
}

// Destroyed after all that was made later, such as the modules.
std::optional<TlsServer> server_until_exit;

TEST_F(TlsTokenKeys, MayBelongToStaticObjects) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        server_until_exit.emplace(
            TlsServerOptions{.certificates = {tokens->import(authority.issue("server"), "until-exit")}});
        const bool loaded = server_until_exit->reload().has_value();
        tokens.reset();
        std::exit(loaded ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// A wrong PIN is tried once: tokens lock themselves after a few of them.
TEST_F(TlsTokenKeys, DoNotTryAWrongPinAgain) {
  tls_options.client_ca_file = authority.ca_file();
  start();
  const std::string wrong_file = folder.path().string() + "/pin";
  std::ofstream(wrong_file) << "wrong\n";
  TlsClientOptions with = client_options();
  with.certificate = tokens->import(authority.issue("client"), "tried");
  with.certificate.key_file =
      "pkcs11:token=web;object=tried?module-path=" + tokens->module() + "&pin-source=" + wrong_file;
  const TlsClient client(with);
  EXPECT_HAS(call(client), "CKR_PIN_INCORRECT (0xa0): correct the PIN in " + wrong_file);
  // The token has another PIN now, which is the one in the file. Whoever tried would succeed.
  const Result<security::tls::Pkcs11Module*> module = security::tls::Pkcs11Module::load(tokens->module());
  ASSERT_TRUE(module);
  const auto token = (*module)->find_token(*security::tls::parse_pkcs11_uri("pkcs11:token=web;object=tried"));
  ASSERT_TRUE(token);
  const auto set_pin = [&](std::string from, std::string to) {
    CK_SESSION_HANDLE session = 0;
    functions().C_OpenSession(token->slot, CKF_SERIAL_SESSION | CKF_RW_SESSION, nullptr, nullptr, &session);
    const auto bytes = [](std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); };
    const CK_RV error = functions().C_SetPIN(session, bytes(from), from.size(), bytes(to), to.size());
    functions().C_CloseSession(session);
    return error;
  };
  EXPECT_EQ(set_pin(std::string(pin), "wrong"), CKR_OK);
  EXPECT_HAS(call(client), "CKR_PIN_INCORRECT (0xa0)");
  EXPECT_EQ(call(TlsClient(with)), "ok");
  EXPECT_EQ(set_pin("wrong", std::string(pin)), CKR_OK);
  // A file that has changed is used.
  std::ofstream(wrong_file) << pin << "\n";
  EXPECT_EQ(call(client), "ok");
}

TEST_F(TlsTokenKeys, MayBeRemovedWhileTheServerRuns) {
  tls_options.certificates = {tokens->import(authority.issue("server"), "removed", "gone")};
  const std::filesystem::path& at = tokens->folder_of_gone();
  ASSERT_FALSE(at.empty());
  start();
  EXPECT_EQ(call(client_options()), "ok");
  const std::filesystem::path away = folder.path() / "away";
  std::filesystem::rename(at, away);
  EXPECT_HAS(call(client_options()), "alert");
  EXPECT_TRUE(logs("the key pkcs11:token=gone;object=removed;id=")) << logged();
  EXPECT_GE(security->counters().signatures_failed, 1U);
  EXPECT_EQ(logged().find("secret"), std::string::npos);
  std::filesystem::rename(away, at);
  // SoftHSM finds tokens only when it is initialised.
  EXPECT_EQ(functions().C_Finalize(nullptr), CKR_OK);
  EXPECT_EQ(call(client_options()), "ok");
}

// As when a token was removed and inserted again.
TEST_F(TlsTokenKeys, FindTheTokenAgain) {
  tls_options.certificates = {tokens->import(authority.issue("server"), "again")};
  start();
  EXPECT_EQ(call(client_options()), "ok");
  CK_ULONG count = 16;
  std::array<CK_SLOT_ID, 16> slots{};
  ASSERT_EQ(functions().C_GetSlotList(CK_TRUE, slots.data(), &count), CKR_OK);
  for (const CK_SLOT_ID slot : std::span(slots).first(count)) functions().C_CloseAllSessions(slot);
  EXPECT_EQ(call(client_options()), "ok");
  EXPECT_EQ(security->counters().signatures_failed, 0U);
}

// Replaces functions of the module, and restores them.
class Replaced {
 public:
  explicit Replaced(const CK_FUNCTION_LIST& list) : list_(const_cast<CK_FUNCTION_LIST&>(list)), before_(list) {
    original = &before_;
  }
  Replaced(const Replaced&) = delete;
  ~Replaced() { list_ = before_; }
  CK_FUNCTION_LIST& list() { return list_; }
  static inline const CK_FUNCTION_LIST* original = nullptr;

 private:
  CK_FUNCTION_LIST& list_;
  const CK_FUNCTION_LIST before_;
};

// The last connection with a key may end on its loop. A token may take long.
TEST_F(TlsTokenKeys, CloseNoSessionOnALoop) {
  const std::string uri = tokens->import(authority.issue("server"), "closed").key_file;
  auto key = security::tls::open_pkcs11_key(uri);
  ASSERT_TRUE(key) << error_of(key);
  static std::atomic<int> closed{0};
  static std::atomic<int> on_loops{0};
  closed = on_loops = 0;
  Replaced replaced(functions());
  replaced.list().C_CloseSession = [](CK_SESSION_HANDLE session) {
    ++(Loop::current() != nullptr ? on_loops : closed);
    return Replaced::original->C_CloseSession(session);
  };
  sync_wait([](security::tls::Pkcs11Key& used) -> Task<void> {
    used.sign = nullptr;
    co_return;
  }(*key));
  EXPECT_EQ(closed + on_loops, 0);
  EXPECT_TRUE(security::tls::open_pkcs11_key(uri));
  EXPECT_EQ(on_loops, 0);
  EXPECT_EQ(closed, 2) << "the noted one, and the one of the second key";
}

// A token may take seconds. The threads for handshakes wait for it.
TEST_F(TlsTokenKeys, AreNotOpenedByALoopThatStartsAServer) {
  static std::atomic<int> on_loops{0};
  static std::atomic<int> elsewhere{0};
  on_loops = elsewhere = 0;
  tls_options.certificates = {tokens->import(authority.issue("server"), "started")};
  Replaced replaced(functions());
  replaced.list().C_OpenSession = [](CK_SLOT_ID slot, CK_FLAGS flags, void* application, CK_NOTIFY notify,
                                     CK_SESSION_HANDLE* session) {
    ++(Loop::current() != nullptr ? on_loops : elsewhere);
    return Replaced::original->C_OpenSession(slot, flags, application, notify, session);
  };
  replaced.list().C_Login = [](CK_SESSION_HANDLE session, CK_USER_TYPE user, unsigned char* text, CK_ULONG size) {
    ++(Loop::current() != nullptr ? on_loops : elsewhere);
    return Replaced::original->C_Login(session, user, text, size);
  };
  Loop loop(options.loop);
  const TlsServer served_security(tls_options);
  options.security = served_security;
  Server served(loop, options);
  served.register_handler<echo>();
  loop.run([](Server& with, TlsClientOptions tls) -> Task<void> {
    const Result<void> started = with.start();
    EXPECT_TRUE(started) << error_of(started);
    EXPECT_EQ(on_loops + elsewhere, 0);
    ClientOptions to{.connect_timeout = patience, .call_timeout = patience};
    to.security = TlsClient(tls);
    Client client(to);
    const std::string address = with.address();
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    auto reply = co_await client.call<echo>("hi");
    REQUIRE_OK(reply);
    EXPECT_EQ(*reply, "hi");
    client.close();
    co_await with.shut_down(1s);
  }(served, client_options()));
  EXPECT_EQ(on_loops, 0);
  EXPECT_GE(elsewhere, 1);
}

// The token asks for the PIN again for each signature of such a key.
TEST_F(TlsTokenKeys, ThatDemandThePinEachTimeSayWhyItWasRefused) {
  const std::string uri = tokens->import(authority.issue("server"), "always").key_file;
  Replaced replaced(functions());
  replaced.list().C_GetAttributeValue = [](CK_SESSION_HANDLE session, CK_OBJECT_HANDLE key, CK_ATTRIBUTE* wanted,
                                           CK_ULONG count) {
    if (count == 1 && wanted->type == CKA_ALWAYS_AUTHENTICATE) {
      *static_cast<CK_BBOOL*>(wanted->pValue) = CK_TRUE;
      return CK_RV{CKR_OK};
    }
    return Replaced::original->C_GetAttributeValue(session, key, wanted, count);
  };
  static CK_RV answer = CKR_OK;
  static int logins = 0;
  replaced.list().C_Login = [](CK_SESSION_HANDLE session, CK_USER_TYPE user, unsigned char* text, CK_ULONG size) {
    if (user != CKU_CONTEXT_SPECIFIC) return Replaced::original->C_Login(session, user, text, size);
    ++logins;
    return answer;
  };
  const std::vector<std::byte> digest(32);
  const TlsSigningRequest request{TlsSigningRequest::Algorithm::ecdsa, TlsSigningRequest::Hash::sha256, digest, {}};
  // The token may have been removed meanwhile, so that it is tried again.
  for (const auto& [error, text, tries] : {std::tuple{CKR_OK, "", 1},
                                           {CKR_FUNCTION_FAILED, "CKR_FUNCTION_FAILED", 2},
                                           {CKR_PIN_INCORRECT, "CKR_PIN_INCORRECT", 1}}) {
    const auto key = security::tls::open_pkcs11_key(uri);
    ASSERT_TRUE(key) << error_of(key);
    answer = error;
    logins = 0;
    const auto made = key->sign(request);
    EXPECT_EQ(logins, tries);
    ASSERT_EQ(made.has_value(), error == CKR_OK);
    if (made) continue;
    EXPECT_HAS(made.error().text, text);
    EXPECT_HAS(made.error().text, "for each signature");
    EXPECT_EQ(made.error().text.find("LOCKED"), std::string::npos) << made.error().text;
  }
}

}  // namespace
}  // namespace hawser
