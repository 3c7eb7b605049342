#include <gtest/gtest.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rsa.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/temporary_folder.h"
#include "hawser/authorization.h"
#include "hawser/jwt.h"
#include "json/json_cases_testing.h"
#include "security/tls/json.h"
#include "security/tls/openssl.h"
#include "tests/testing.h"

// Signed tokens: those of others, those that are wrong in every way, and the rules that see their claims.
namespace hawser {
namespace token_test {

std::string claims_of(Context& context) {
  std::string text = context.identity().text();
  for (const auto& [name, value] : context.identity().claims) text += " " + name + "=" + value;
  return text;
}
std::string delete_all(Context& context) {
  return std::string(context.metadata().find("authorization").value_or("deleted"));
}

}  // namespace token_test

namespace {

using namespace testing_tools;
using security::tls::KeyPtr;
using token_test::claims_of;
using token_test::delete_all;

std::string url_base64(std::string_view bytes) {
  std::string out;
  encode_base64(bytes, out);
  while (out.ends_with('=')) out.pop_back();
  for (char& c : out) c = c == '+' ? '-' : c == '/' ? '_' : c;
  return out;
}

std::string big_number_of(EVP_PKEY* key, const char* name, int bytes) {
  BIGNUM* number = nullptr;
  EXPECT_EQ(EVP_PKEY_get_bn_param(key, name, &number), 1);
  std::string out(static_cast<std::size_t>(bytes != 0 ? bytes : BN_num_bytes(number)), '\0');
  BN_bn2binpad(number, reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(out.size()));
  BN_free(number);
  return url_base64(out);
}

class TlsTokens : public ::testing::Test {
 protected:
  static constexpr std::int64_t noon = 1'800'000'000;

  static void SetUpTestSuite() {
    rsa = KeyPtr(EVP_RSA_gen(2048));
    ec = KeyPtr(EVP_EC_gen("P-256"));
  }
  static void TearDownTestSuite() {
    rsa.reset();
    ec.reset();
  }

  static std::string rsa_json() {
    return R"({"kty":"RSA","kid":"r","use":"sig","n":")" + big_number_of(rsa.get(), OSSL_PKEY_PARAM_RSA_N, 0) +
           R"(","e":")" + big_number_of(rsa.get(), OSSL_PKEY_PARAM_RSA_E, 0) + "\"}";
  }
  static std::string ec_json() {
    return R"({"kty":"EC","crv":"P-256","kid":"e","x":")" + big_number_of(ec.get(), OSSL_PKEY_PARAM_EC_PUB_X, 32) +
           R"(","y":")" + big_number_of(ec.get(), OSSL_PKEY_PARAM_EC_PUB_Y, 32) + "\"}";
  }
  std::string hmac_json() const { return R"({"kty":"oct","kid":"h","alg":"HS256","k":")" + url_base64(secret) + "\"}"; }

  void write_keys(const std::string& keys) { std::ofstream(options.keys_file, std::ios::binary) << keys; }
  Result<JwtVerifier> loaded(const std::string& keys) {
    write_keys("{\"keys\":[" + keys + "]}");
    return JwtVerifier::load(options);
  }
  JwtVerifier all_keys() { return *loaded(rsa_json() + "," + ec_json() + "," + hmac_json()); }

  static std::string good_claims() {
    return R"({"iss":"https://login.example","aud":["other","storage"],"sub":"alice","exp":1800000100,)"
           R"("nbf":1799999990.5,"groups":["a","admins"],"level":7,"realm":{"x":[1, 2]},"nothing":null})";
  }
  std::string hmac_of(std::string_view text, std::string_view key) const {
    std::array<unsigned char, 32> out;
    unsigned size = 0;
    HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
         text.size(), out.data(), &size);
    return {reinterpret_cast<const char*>(out.data()), size};
  }
  static std::string digest_signature(EVP_PKEY* key, std::string_view text) {
    EVP_MD_CTX* const context = EVP_MD_CTX_new();
    std::array<unsigned char, 512> out;
    std::size_t size = out.size();
    EXPECT_EQ(EVP_DigestSignInit(context, nullptr, EVP_sha256(), nullptr, key), 1);
    EXPECT_EQ(
        EVP_DigestSign(context, out.data(), &size, reinterpret_cast<const unsigned char*>(text.data()), text.size()),
        1);
    EVP_MD_CTX_free(context);
    return {reinterpret_cast<const char*>(out.data()), size};
  }
  static std::string ecdsa_signature(std::string_view text) {
    const std::string der = digest_signature(ec.get(), text);
    const unsigned char* at = reinterpret_cast<const unsigned char*>(der.data());
    ECDSA_SIG* const pair = d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(der.size()));
    std::string out(64, '\0');
    BN_bn2binpad(ECDSA_SIG_get0_r(pair), reinterpret_cast<unsigned char*>(out.data()), 32);
    BN_bn2binpad(ECDSA_SIG_get0_s(pair), reinterpret_cast<unsigned char*>(out.data()) + 32, 32);
    ECDSA_SIG_free(pair);
    return out;
  }
  std::string hs256(const std::string& claims, const std::string& header = R"({"alg":"HS256","kid":"h"})") const {
    const std::string text = url_base64(header) + "." + url_base64(claims);
    return text + "." + url_base64(hmac_of(text, secret));
  }
  static std::string rs256(const std::string& claims, const std::string& header = R"({"alg":"RS256","kid":"r"})") {
    const std::string text = url_base64(header) + "." + url_base64(claims);
    return text + "." + url_base64(digest_signature(rsa.get(), text));
  }
  static std::string es256(const std::string& claims, const std::string& header = R"({"alg":"ES256"})") {
    const std::string text = url_base64(header) + "." + url_base64(claims);
    return text + "." + url_base64(ecdsa_signature(text));
  }
  static std::string why(const JwtVerifier& verifier, const std::string& token) {
    const Result<Identity> identity = verifier.verify(token);
    if (identity) return "accepted " + identity->text();
    EXPECT_EQ(identity.error().code, ErrorCode::unauthenticated);
    return identity.error().text;
  }

  static inline KeyPtr rsa;
  static inline KeyPtr ec;
  TemporaryFolder folder;
  std::string secret = "0123456789abcdef0123456789ABCDEF";
  JwtOptions options{.keys_file = folder.path().string() + "/jwks.json",
                     .issuer = "https://login.example",
                     .audience = "storage",
                     .clock_skew = std::chrono::seconds(10),
                     .clock = [this] { return now; }};
  std::int64_t now = noon;
};

#define EXPECT_WHY(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(TlsTokens, OfEveryAlgorithmProveAnIdentity) {
  const JwtVerifier verifier = all_keys();
  for (const std::string& token : {hs256(good_claims()), rs256(good_claims()), es256(good_claims())}) {
    const Result<Identity> identity = verifier.verify(token);
    ASSERT_TRUE(identity) << error_of(identity);
    EXPECT_EQ(identity->kind, Identity::Kind::token);
    EXPECT_EQ(identity->subject, "alice");
    EXPECT_EQ(identity->issuer, "https://login.example");
    EXPECT_TRUE(identity->has_claim("groups", "admins"));
    EXPECT_TRUE(identity->has_claim("aud", "storage"));
    EXPECT_TRUE(identity->has_claim("level", "7"));
    EXPECT_TRUE(identity->has_claim("realm", R"({"x":[1, 2]})"));
    EXPECT_EQ(identity->claims.size(), 10U);
  }
}

// Whoever issues tokens for people must not be able to name a service of the cluster.
TEST_F(TlsTokens, OfTheTrustDomainOnlyHaveASpiffeId) {
  const auto id_of = [this](const JwtVerifier& verifier, const std::string& subject) {
    const Result<Identity> identity = verifier.verify(
        hs256(R"({"iss":"https://login.example","aud":"storage","exp":1800000100,"sub":")" + subject + "\"}"));
    EXPECT_TRUE(identity) << error_of(identity);
    return identity ? identity->spiffe_id : "refused";
  };
  EXPECT_EQ(id_of(all_keys(), "spiffe://example.org/backup"), "");
  options.trust_domain = "example.org";
  const JwtVerifier verifier = all_keys();
  EXPECT_EQ(id_of(verifier, "spiffe://example.org/backup"), "spiffe://example.org/backup");
  for (const char* const other :
       {"spiffe://example.com/backup", "spiffe://example.org.evil/backup", "spiffe://EXAMPLE.org/backup",
        "SPIFFE://example.org/backup", "spiffe://example.org/a/../backup", "spiffe://example.org/backup/",
        "spiffe://example.org//backup", "spiffe://example.org/backup\\u0000", "spiffe://example.org:80/backup",
        "spiffe://a@example.org/backup", "spiffe://example.org/backup?x", "spiffe://example.org/%62ackup", "backup"}) {
    EXPECT_EQ(id_of(verifier, other), "") << other;
  }
  for (const char* const wrong : {"spiffe://example.org", "example.org/backup", "Example.org", "a b"}) {
    options.trust_domain = wrong;
    const Result<JwtVerifier> refused = loaded(hmac_json());
    EXPECT_ERROR(refused, invalid_argument, "trust_domain");
  }
}

// The examples of RFC 7515, A.1 and A.3. They are signed correctly, and have no audience.
TEST_F(TlsTokens, OfTheStandardAreSignedCorrectly) {
  options.issuer = "joe";
  const JwtVerifier verifier = *loaded(
      R"({"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"},)"
      R"({"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",)"
      R"("y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"})");
  const std::string claims =
      "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
  const std::string by_hmac =
      "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." + claims + ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
  const std::string by_ec = "eyJhbGciOiJFUzI1NiJ9." + claims +
                            ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
  EXPECT_WHY(why(verifier, by_hmac), "audience");
  EXPECT_WHY(why(verifier, by_ec), "audience");
  std::string forged = by_ec;
  forged[forged.size() - 20] = forged[forged.size() - 20] == 'A' ? 'B' : 'A';
  EXPECT_WHY(why(verifier, forged), "signature is wrong");
}

TEST_F(TlsTokens, WithAnotherAlgorithmAreRefused) {
  const JwtVerifier verifier = all_keys();
  const std::string body = "." + url_base64(good_claims()) + ".";
  for (const char* name : {"none", "None", "NONE", "", "HS384", "RS512", "PS256", "ES384", "EdDSA", "hs256"}) {
    const std::string header = url_base64("{\"alg\":\"" + std::string(name) + "\"}");
    EXPECT_WHY(why(verifier, header + body), "its algorithm is none of") << name;
    EXPECT_WHY(why(verifier, header + body + url_base64(hmac_of(header + body, secret))), "its algorithm is none of");
  }
  EXPECT_WHY(why(verifier, url_base64("{}") + body), "its algorithm is none of");
  EXPECT_WHY(why(verifier, url_base64(R"({"alg":["HS256"]})") + body), "its algorithm is none of");
  // No signature.
  EXPECT_WHY(why(verifier, url_base64(R"({"alg":"HS256"})") + body), "signature is wrong");
  EXPECT_WHY(why(verifier, url_base64(R"({"alg":"RS256"})") + body), "signature is wrong");
  EXPECT_WHY(why(verifier, url_base64(R"({"alg":"ES256"})") + body), "signature is wrong");
  // r = s = 0.
  EXPECT_WHY(why(verifier, url_base64(R"({"alg":"ES256"})") + body + url_base64(std::string(64, '\0'))),
             "signature is wrong");
  // The DER form, which is not that of tokens.
  const std::string text = url_base64(R"({"alg":"ES256"})") + "." + url_base64(good_claims());
  EXPECT_WHY(why(verifier, text + "." + url_base64(digest_signature(ec.get(), text))), "signature is wrong");

  // A public key is not a secret: neither its text nor its modulus signs for HS256.
  const JwtVerifier public_only = *loaded(rsa_json());
  for (const char* header : {R"({"alg":"HS256","kid":"r"})", R"({"alg":"HS256"})"}) {
    const std::string signed_text = url_base64(header) + "." + url_base64(good_claims());
    for (const std::string& key : {rsa_json(), big_number_of(rsa.get(), OSSL_PKEY_PARAM_RSA_N, 0), std::string()}) {
      EXPECT_WHY(why(public_only, signed_text + "." + url_base64(hmac_of(signed_text, key))), "no such key");
    }
  }
  // A key of another kind, by its name, and a key of the token's own.
  EXPECT_WHY(why(verifier, hs256(good_claims(), R"({"alg":"HS256","kid":"r"})")), "no such key");
  EXPECT_WHY(why(verifier, hs256(good_claims(), R"({"alg":"HS256","kid":7})")), "is not a text");
  secret = "another secret of more than 32 bytes";
  EXPECT_WHY(why(verifier, hs256(good_claims(), "{\"alg\":\"HS256\",\"jwk\":" + hmac_json() + "}")),
             "signature is wrong");
}

TEST_F(TlsTokens, ThatAreNotForThisTimeOrServerAreRefused) {
  const JwtVerifier verifier = all_keys();
  const auto with = [&](const std::string& claims) { return why(verifier, hs256("{" + claims + "}")); };
  const std::string from = R"("iss":"https://login.example",)";
  const std::string to = R"("aud":"storage",)";
  const std::string until = R"("exp":1800000100)";
  EXPECT_EQ(with(from + to + until), "accepted token without a subject");
  EXPECT_WHY(with(to + until), "issuer");
  EXPECT_WHY(with(R"("iss":"https://login.example.org",)" + to + until), "issuer");
  EXPECT_WHY(with(R"("iss":["https://login.example"],)" + to + until), "issuer");
  EXPECT_WHY(with(from + until), "audience");
  EXPECT_WHY(with(from + R"("aud":"storag",)" + until), "audience");
  EXPECT_WHY(with(from + R"("aud":[],)" + until), "audience");
  EXPECT_WHY(with(from + R"("aud":[["storage"]],)" + until), "audience");
  EXPECT_WHY(with(from + R"("aud":{"storage":"storage"},)" + until), "audience");
  EXPECT_WHY(with(from + R"("aud":"storage")"), "no end");
  for (const char* end : {"null", "\"1800000100\"", "[1800000100]", "true"}) {
    EXPECT_WHY(with(from + to + "\"exp\":" + end), "no end") << end;
  }
  EXPECT_WHY(with(from + to + "\"exp\":1e999"), "not a JSON object");
  EXPECT_WHY(with(from + to + "\"exp\":-1"), "expired");
  EXPECT_WHY(with(from + to + R"("nbf":"1",)" + until), "is not a number");
  EXPECT_WHY(with(from + to + R"("sub":7,)" + until), "is not a text");
  EXPECT_WHY(with(from + from + to + until), "not a JSON object");
  // The bounds of time, with the tolerance of 10 s.
  const std::string limited = hs256("{" + from + to + R"("nbf":1799999000,)" + until + "}");
  now = 1'800'000'109;
  EXPECT_EQ(why(verifier, limited), "accepted token without a subject");
  now = 1'800'000'110;
  EXPECT_WHY(why(verifier, limited), "expired");
  now = 1'799'998'990;
  EXPECT_EQ(why(verifier, limited), "accepted token without a subject");
  now = 1'799'998'989;
  EXPECT_WHY(why(verifier, limited), "not valid yet");
}

TEST_F(TlsTokens, OfWrongFormAreRefused) {
  const JwtVerifier verifier = all_keys();
  const std::string good = hs256(good_claims());
  EXPECT_WHY(why(verifier, ""), "three parts");
  EXPECT_WHY(why(verifier, "a.b"), "three parts");
  EXPECT_WHY(why(verifier, good + "."), "three parts");
  EXPECT_WHY(why(verifier, good + "="), "not Base64");
  EXPECT_WHY(why(verifier, good + "A"), "signature is wrong");
  EXPECT_WHY(why(verifier, good + "AA"), "not Base64");
  EXPECT_WHY(why(verifier, "+" + good), "not Base64");
  EXPECT_WHY(why(verifier, "." + good.substr(good.find('.') + 1)), "header");
  EXPECT_WHY(why(verifier, hs256(good_claims(), R"({"alg":"HS256","crit":["b64"],"b64":false})")), "crit");
  EXPECT_WHY(why(verifier, hs256(good_claims(), R"({"alg":"HS256","alg":"HS256"})")), "header");
  std::string many = "{\"alg\":\"HS256\"";
  for (int i = 0; i < 20; ++i) many += ",\"x" + std::to_string(i) + "\":0";
  EXPECT_WHY(why(verifier, hs256(good_claims(), many + "}")), "32 values");
  EXPECT_WHY(why(verifier, hs256("{\"a\":" + std::string(20, '[') + std::string(20, ']') + "}")), "not a JSON object");
  EXPECT_WHY(why(verifier, hs256("[]")), "not a JSON object");
  options.token_bytes_max = good.size();
  EXPECT_EQ(why(*JwtVerifier::load(options), good), "accepted token alice");
  options.token_bytes_max = good.size() - 1;
  EXPECT_WHY(why(*JwtVerifier::load(options), good), "token_bytes_max (" + std::to_string(good.size() - 1) + ")");
}

// No change of one character, no missing end and no swapped part is accepted.
TEST_F(TlsTokens, ThatAreChangedAreRefused) {
  const JwtVerifier verifier = all_keys();
  std::mt19937 random(42);
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
  for (const std::string& good : {hs256(good_claims()), rs256(good_claims()), es256(good_claims())}) {
    for (std::size_t at = 0; at < good.size(); at += 1 + random() % 5) {
      std::string other = good;
      do {
        other[at] = alphabet[random() % alphabet.size()];
      } while (other[at] == good[at]);
      EXPECT_FALSE(verifier.verify(other)) << at;
      EXPECT_FALSE(verifier.verify(good.substr(0, at))) << at;
    }
  }
  const std::string alice = hs256(good_claims());
  const std::string other = hs256(R"({"sub":"root"})");
  const std::size_t end = alice.rfind('.');
  EXPECT_WHY(why(verifier, other.substr(0, other.rfind('.')) + alice.substr(end)), "signature is wrong");
}

TEST_F(TlsTokens, KeysAreReadStrictly) {
  const auto problem = [&](const std::string& keys) {
    const Result<JwtVerifier> made = loaded(keys);
    return made ? "ok" : made.error().text;
  };
  EXPECT_WHY(problem(""), "no key for HS256");
  EXPECT_WHY(problem("7"), "key 0 of");
  EXPECT_WHY(problem(R"({"kty":"oct","k":"c2hvcnQ"})"), "32 bytes");
  EXPECT_WHY(problem(R"({"kty":"oct","k":"?"})"), "not Base64");
  EXPECT_WHY(problem(R"({"kty":"RSA","n":"AQAB","e":"AQAB"})"), "2048");
  EXPECT_WHY(problem(R"({"kty":"EC","crv":"P-256","x":")" + url_base64(std::string(32, 'x')) + R"(","y":")" +
                     url_base64(std::string(32, 'y')) + "\"}"),
             "not a point");
  EXPECT_WHY(problem(ec_json() + "," + ec_json()), "same \"kid\"");
  // Keys for other purposes do not verify.
  EXPECT_WHY(problem(R"({"kty":"oct","use":"enc","k":")" + url_base64(secret) + "\"}"), "no key for");
  EXPECT_WHY(problem(R"({"kty":"oct","alg":"HS512","k":")" + url_base64(secret) + "\"}"), "no key for");
  EXPECT_WHY(problem(R"({"kty":"EC","crv":"P-384","x":"","y":""})"), "no key for");
  std::string many = ec_json();
  for (int i = 0; i < 64; ++i) many += ",{}";
  EXPECT_WHY(problem(many), "65 keys");
  write_keys("{");
  EXPECT_WHY(error_of(JwtVerifier::load(options)), "is not a JWK set");
  std::filesystem::remove(options.keys_file);
  EXPECT_WHY(error_of(JwtVerifier::load(options)), "No such file");
  options.audience.clear();
  EXPECT_WHY(error_of(JwtVerifier::load(options)), "audience must be set");
}

TEST_F(TlsTokens, KeysAreReplaced) {
  JwtVerifier verifier = all_keys();
  const JwtVerifier copy = verifier;
  const std::string old = hs256(good_claims());
  secret = "the next secret, which is as long!";
  write_keys("{\"keys\":[" + hmac_json() + "]}");
  EXPECT_EQ(why(copy, old), "accepted token alice");
  ASSERT_TRUE(verifier.reload());
  EXPECT_WHY(why(copy, old), "signature is wrong");
  EXPECT_EQ(why(copy, hs256(good_claims())), "accepted token alice");
  write_keys("{}");
  EXPECT_FALSE(verifier.reload());
  EXPECT_EQ(why(copy, hs256(good_claims())), "accepted token alice");
  // Two keys, and a token that names none.
  const std::string second = R"({"kty":"oct","kid":"2","k":")" + url_base64(std::string(32, 's')) + "\"}";
  EXPECT_WHY(why(*loaded(hmac_json() + "," + second), hs256(good_claims(), R"({"alg":"HS256"})")), "names no key");
}

TEST_F(TlsTokens, RulesSeeTheirClaims) {
  const JwtVerifier verifier = all_keys();
  Loop loop;
  Server server(loop, {.listen = "127.0.0.1:0"});
  server.use(verifier);
  server.use(Authorization()
                 .allow(method_name<claims_of>, authenticated())
                 .allow(method_name<delete_all>, claim("groups", "admins")));
  server.register_handler<claims_of, delete_all>();
  ASSERT_TRUE(server.start());
  const auto with = [](const std::string& token) {
    return CallOptions{.metadata = {{"authorization", "Bearer " + token}}};
  };
  const std::string bob =
      R"({"iss":"https://login.example","aud":"storage","sub":"bob","exp":1800000100,"groups":"users"})";
  loop.run([](Loop& here, std::string address, CallOptions for_alice, CallOptions for_bob,
              CallOptions for_forger) -> Task<void> {
    Client client(here, {.transports = {.required = "stream"}});
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    auto nobody = co_await client.call<claims_of>();
    EXPECT_ERROR(nobody, unauthenticated, "send a token");
    auto read = co_await client.call<claims_of>(for_bob);
    EXPECT_EQ(read, "token bob iss=https://login.example aud=storage sub=bob exp=1800000100 groups=users");
    auto refused = co_await client.call<delete_all>(for_bob);
    EXPECT_ERROR(refused, permission_denied, "token bob");
    auto deleted = co_await client.call<delete_all>(for_alice);
    EXPECT_EQ(deleted, "deleted");
    auto forged = co_await client.call<delete_all>(for_forger);
    EXPECT_ERROR(forged, unauthenticated, "its signature is wrong");
  }(loop, server.address(), with(rs256(good_claims())), with(es256(bob)),
                                      with(hs256(good_claims()).substr(0, hs256(good_claims()).rfind('.')) + "." +
                                           url_base64(std::string(32, 'x')))));
}

TEST_F(TlsTokens, JsonIsReadStrictly) {
  for (const std::string& text : json::testing::invalid_jsons()) {
    EXPECT_FALSE(security::tls::parse_json(text, 100)) << text;
    EXPECT_FALSE(security::tls::parse_json("{\"iss\":" + text + "}", 100)) << text;
  }
  for (const auto& [written, text] : json::testing::valid_texts) {
    const auto read = security::tls::parse_json(written, 1);
    ASSERT_TRUE(read) << written;
    EXPECT_EQ(read->kind, security::tls::Json::Kind::text);
    EXPECT_EQ(std::string_view(read->text), text) << written;
  }
  for (const auto& [written, value] : json::testing::valid_numbers) {
    const auto read = security::tls::parse_json(written, 1);
    ASSERT_TRUE(read) << written;
    EXPECT_EQ(read->number(), value) << written;
  }
  const auto nested = security::tls::parse_json(R"({"a":[1,{"b":[2]}],"c":"x","d":{}})", 100);
  ASSERT_TRUE(nested);
  EXPECT_EQ(std::string_view(nested->find("a")->text), R"([1,{"b":[2]}])");
  EXPECT_EQ(nested->find("a")->items[1].find("b")->items[0].number(), 2);
  EXPECT_EQ(nested->text_of("c"), "x");
  EXPECT_EQ(std::string_view(nested->find("d")->text), "{}");
  EXPECT_EQ(security::tls::parse_json(R"("\u00e9\u20ac\ud83d\ude00\n")", 1)->text,
            "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\n");
  EXPECT_EQ(security::tls::parse_json(" [ -0.5e+1 , true , null ] ", 4)->items[0].number(), -5.0);
  EXPECT_FALSE(security::tls::parse_json("[1,2,3]", 3));
  EXPECT_TRUE(security::tls::parse_json(std::string(16, '[') + std::string(16, ']'), 100));
  EXPECT_FALSE(security::tls::parse_json(std::string(17, '[') + std::string(17, ']'), 100));
  EXPECT_FALSE(security::tls::parse_json(std::string(100'000, '['), 1'000'000));
}

}  // namespace
}  // namespace hawser
