#include "hawser/jwt.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/param_build.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/try.h"
#include "hawser/authorization.h"
#include "heap/secret_memory.h"
#include "rpc/server/audit_log.h"
#include "security/tls/certificate.h"
#include "security/tls/json.h"
#include "security/tls/openssl.h"

namespace hawser {
namespace {

using security::tls::Json;
using security::tls::KeyPtr;
using security::tls::Released;
using BigNumberPtr = std::unique_ptr<BIGNUM, Released<BN_free>>;
using ParameterBuilderPtr = std::unique_ptr<OSSL_PARAM_BLD, Released<OSSL_PARAM_BLD_free>>;
using ParametersPtr = std::unique_ptr<OSSL_PARAM, Released<OSSL_PARAM_free>>;
using KeyContextPtr = std::unique_ptr<EVP_PKEY_CTX, Released<EVP_PKEY_CTX_free>>;
using DigestContextPtr = std::unique_ptr<EVP_MD_CTX, Released<EVP_MD_CTX_free>>;
using SignaturePtr = std::unique_ptr<ECDSA_SIG, Released<ECDSA_SIG_free>>;

constexpr std::string_view spiffe_scheme = "spiffe://";
constexpr std::size_t keys_max = 64;
constexpr std::size_t file_values_max = 4096;
// The header is read before the signature is verified.
constexpr std::size_t header_values_max = 32;
constexpr std::size_t claims_values_max = 512;
constexpr std::size_t secret_bytes_min = 32;  // RFC 7518, 3.2.
constexpr int rsa_bits_min = 2048;
constexpr int rsa_bits_max = 8192;  // Larger keys make a verification expensive.
constexpr std::size_t coordinate_bytes = 32;

enum class Algorithm : std::uint8_t { hs256, rs256, es256 };

struct VerificationKey {
  std::string id = {};
  Algorithm algorithm = Algorithm::hs256;
  SecretString secret = {};  // HS256
  KeyPtr key = {};           // The others.
};
using VerificationKeys = std::vector<VerificationKey>;

Task<Result<void>> refuse_call(std::string text) { co_return fail(ErrorCode::unauthenticated, std::move(text)); }
std::unexpected<Error> refused(std::string_view why) {
  return fail(ErrorCode::unauthenticated, "the token is refused: " + std::string(why));
}

const unsigned char* as_octets(std::string_view text) noexcept {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// Base64 with the alphabet of URLs, without padding (RFC 7515, 2). Each value has one spelling only.
std::optional<SecretString> decode_url(std::string_view text) {
  SecretString other(text);
  for (char& c : other) {
    if (c == '+' || c == '/' || c == '=') return std::nullopt;
    c = c == '-' ? '+' : c == '_' ? '/' : c;
  }
  other.append((4 - other.size() % 4) % 4, '=');
  SecretString out;
  if (!decode_base64(other, out)) return std::nullopt;
  return out;
}

// ---- Keys ----

BigNumberPtr number_of(const SecretString& octets) {
  return BigNumberPtr(BN_bin2bn(as_octets(octets), static_cast<int>(octets.size()), nullptr));
}

KeyPtr made_key(const char* type, OSSL_PARAM_BLD* builder) {
  const ParametersPtr parameters(OSSL_PARAM_BLD_to_param(builder));
  const KeyContextPtr context(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* key = nullptr;
  if (parameters == nullptr || context == nullptr || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, parameters.get()) != 1) {
    return nullptr;
  }
  KeyPtr made(key);
  const KeyContextPtr check(EVP_PKEY_CTX_new(made.get(), nullptr));
  return check != nullptr && EVP_PKEY_public_check(check.get()) == 1 ? std::move(made) : nullptr;
}

KeyPtr rsa_key(const Json& json) {
  const auto modulus = decode_url(json.text_of("n"));
  const auto exponent = decode_url(json.text_of("e"));
  if (!modulus || !exponent || modulus->size() > rsa_bits_max / 8 || exponent->size() > 8) return nullptr;
  const BigNumberPtr n = number_of(*modulus);
  const BigNumberPtr e = number_of(*exponent);
  const ParameterBuilderPtr builder(OSSL_PARAM_BLD_new());
  if (n == nullptr || e == nullptr || builder == nullptr || BN_num_bits(n.get()) < rsa_bits_min ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) != 1 ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) != 1) {
    return nullptr;
  }
  return made_key("RSA", builder.get());
}

KeyPtr ec_key(const Json& json) {
  const auto x = decode_url(json.text_of("x"));
  const auto y = decode_url(json.text_of("y"));
  if (!x || !y || x->size() != coordinate_bytes || y->size() != coordinate_bytes) return nullptr;
  const SecretString point = "\x04" + *x + *y;
  const ParameterBuilderPtr builder(OSSL_PARAM_BLD_new());
  if (builder == nullptr ||
      OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0) != 1 ||
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(), point.size()) != 1) {
    return nullptr;
  }
  return made_key("EC", builder.get());
}

// Nothing: the key is not for this purpose. The algorithm follows from the kind of the key, and never from a token.
Result<std::optional<VerificationKey>> key_of(const Json& json, const std::string& where) {
  const auto unusable = [&](std::string_view why) {
    return fail(ErrorCode::invalid_argument, where + " cannot be used: " + std::string(why));
  };
  if (json.kind != Json::Kind::object) return unusable("it is not an object");
  VerificationKey made;
  const std::string_view kind = json.text_of("kty");
  std::string_view algorithm;
  if (kind == "oct") {
    made.algorithm = Algorithm::hs256;
    algorithm = "HS256";
  } else if (kind == "RSA") {
    made.algorithm = Algorithm::rs256;
    algorithm = "RS256";
  } else if (kind == "EC" && json.text_of("crv") == "P-256") {
    made.algorithm = Algorithm::es256;
    algorithm = "ES256";
  } else {
    return std::optional<VerificationKey>();
  }
  if (json.find("use") != nullptr && json.text_of("use") != "sig") return std::optional<VerificationKey>();
  if (json.find("alg") != nullptr && json.text_of("alg") != algorithm) return std::optional<VerificationKey>();
  made.id = json.text_of("kid");
  if (made.algorithm == Algorithm::hs256) {
    auto secret = decode_url(json.text_of("k"));
    if (!secret) return unusable("\"k\" is not Base64 for URLs without padding");
    made.secret = std::move(*secret);
    if (made.secret.size() < secret_bytes_min) return unusable("a key for HS256 needs 32 bytes or more");
  } else {
    made.key = made.algorithm == Algorithm::rs256 ? rsa_key(json) : ec_key(json);
    security::tls::take_errors();
    if (made.key == nullptr) {
      return unusable(made.algorithm == Algorithm::rs256 ? "\"n\" and \"e\" are not a key of 2048 to 8192 bits"
                                                         : "\"x\" and \"y\" are not a point of P-256");
    }
  }
  return std::optional<VerificationKey>(std::move(made));
}

Result<std::shared_ptr<const VerificationKeys>> read_keys(const std::string& path) {
  TRY(const security::tls::PemText& text, security::tls::read_file(path));
  const std::optional<Json> set = security::tls::parse_json(text.text(), file_values_max);
  const Json* const list = set ? set->find("keys") : nullptr;
  if (list == nullptr || list->kind != Json::Kind::list) {
    return fail(ErrorCode::invalid_argument, path + " is not a JWK set: write JSON such as {\"keys\": [...]}");
  }
  if (list->items.size() > keys_max) {
    return fail(ErrorCode::limit_exceeded,
                path + " has " + std::to_string(list->items.size()) + " keys, of which 64 are allowed");
  }
  auto keys = std::make_shared<VerificationKeys>();
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    TRY(auto&& key, key_of(list->items[i], "key " + std::to_string(i) + " of " + path));
    if (!key) continue;
    for (const VerificationKey& other : *keys) {
      if (other.id == key->id && other.algorithm == key->algorithm) {
        return fail(ErrorCode::invalid_argument,
                    path + " has two keys of one algorithm with the same \"kid\": give them different ones");
      }
    }
    keys->push_back(std::move(*key));
  }
  if (keys->empty()) {
    return fail(ErrorCode::invalid_argument, path + " has no key for HS256, RS256 or ES256");
  }
  return keys;
}

// ---- Signatures ----

bool verify_hmac(const VerificationKey& key, std::string_view text, const SecretString& signature) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> expected;
  unsigned size = 0;
  return HMAC(EVP_sha256(), key.secret.data(), static_cast<int>(key.secret.size()), as_octets(text), text.size(),
              expected.data(), &size) != nullptr &&
         signature.size() == size && CRYPTO_memcmp(expected.data(), signature.data(), size) == 0;
}

bool verify_digest(EVP_PKEY* key, std::string_view text, const unsigned char* signature, std::size_t size) {
  const DigestContextPtr context(EVP_MD_CTX_new());
  return context != nullptr && EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key) == 1 &&
         EVP_DigestVerify(context.get(), signature, size, as_octets(text), text.size()) == 1;
}

// The signature is r and s of 32 bytes each (RFC 7518, 3.4). OpenSSL takes them in DER.
bool verify_ecdsa(EVP_PKEY* key, std::string_view text, const SecretString& signature) {
  if (signature.size() != 2 * coordinate_bytes) return false;
  BigNumberPtr r = number_of(signature.substr(0, coordinate_bytes));
  BigNumberPtr s = number_of(signature.substr(coordinate_bytes));
  const SignaturePtr pair(ECDSA_SIG_new());
  if (r == nullptr || s == nullptr || pair == nullptr || ECDSA_SIG_set0(pair.get(), r.get(), s.get()) != 1)
    return false;
  static_cast<void>(r.release());
  static_cast<void>(s.release());
  std::array<unsigned char, 80> der;
  unsigned char* end = der.data();
  const int size = i2d_ECDSA_SIG(pair.get(), nullptr);
  if (size <= 0 || static_cast<std::size_t>(size) > der.size() || i2d_ECDSA_SIG(pair.get(), &end) != size) return false;
  return verify_digest(key, text, der.data(), static_cast<std::size_t>(size));
}

bool verify_signature(const VerificationKey& key, std::string_view text, const SecretString& signature) {
  bool valid = false;
  switch (key.algorithm) {
    case Algorithm::hs256: valid = verify_hmac(key, text, signature); break;
    case Algorithm::rs256: valid = verify_digest(key.key.get(), text, as_octets(signature), signature.size()); break;
    case Algorithm::es256: valid = verify_ecdsa(key.key.get(), text, signature); break;
  }
  security::tls::take_errors();
  return valid;
}

// ---- Tokens ----

std::optional<Algorithm> algorithm_of(std::string_view name) noexcept {
  if (name == "HS256") return Algorithm::hs256;
  if (name == "RS256") return Algorithm::rs256;
  if (name == "ES256") return Algorithm::es256;
  return std::nullopt;
}

Result<const VerificationKey*> key_for(const VerificationKeys& keys, const Json& header) {
  const std::optional<Algorithm> algorithm = algorithm_of(header.text_of("alg"));
  if (!algorithm) return refused("its algorithm is none of HS256, RS256 and ES256");
  // Extensions that must be understood. This library understands none.
  if (header.find("crit") != nullptr) return refused("its header has \"crit\"");
  const Json* const id = header.find("kid");
  if (id != nullptr && id->kind != Json::Kind::text) return refused("its \"kid\" is not a text");
  const VerificationKey* found = nullptr;
  for (const VerificationKey& key : keys) {
    if (key.algorithm != *algorithm || (id != nullptr && key.id != std::string_view(id->text))) continue;
    if (found != nullptr) return refused("it names no key (\"kid\"), and the server has several for its algorithm");
    found = &key;
  }
  if (found == nullptr) return refused("the server has no such key for its algorithm");
  return found;
}

bool names_audience(const Json& claims, const std::string& audience) {
  const Json* const value = claims.find("aud");
  if (value == nullptr) return false;
  const auto is = [&](const Json& one) {
    return one.kind == Json::Kind::text && std::string_view(one.text) == audience;
  };
  return is(*value) || (value->kind == Json::Kind::list && std::ranges::any_of(value->items, is));
}

Identity identity_of(Json claims, const std::string& trust_domain) {
  Identity identity;
  identity.kind = Identity::Kind::token;
  identity.subject = claims.text_of("sub");
  identity.issuer = claims.text_of("iss");
  if (!trust_domain.empty() && valid_spiffe_id(identity.subject)) {
    std::string_view domain = std::string_view(identity.subject).substr(spiffe_scheme.size());
    domain = domain.substr(0, domain.find('/'));
    if (domain == trust_domain) identity.spiffe_id = identity.subject;
  }
  for (std::size_t i = 0; i < claims.names.size(); ++i) {
    std::string& name = claims.names[i];
    const Json& value = claims.items[i];
    if (value.kind == Json::Kind::list) {
      for (const Json& item : value.items) {
        if (item.kind != Json::Kind::null && item.kind != Json::Kind::list && item.kind != Json::Kind::object) {
          identity.claims.emplace_back(name, item.text);
        }
      }
    } else if (value.kind != Json::Kind::null) {
      identity.claims.emplace_back(std::move(name), value.text);
    }
  }
  return identity;
}

}  // namespace

struct JwtVerifier::State {
  explicit State(JwtOptions with) : options(std::move(with)), audit(options.log_lines_per_second_max) {}
  Task<Result<void>> refuse(IncomingCall& call, std::string why) {
    if (options.log_refused) audit.write(call, rpc::AuditLog::Verdict::refused, why);
    return refuse_call(std::move(why));
  }
  Result<void> read() {
    TRY(std::shared_ptr<const VerificationKeys> made, read_keys(options.keys_file));
    const std::lock_guard lock(mutex);
    keys = std::move(made);
    return {};
  }
  std::shared_ptr<const VerificationKeys> current() const {
    const std::lock_guard lock(mutex);
    return keys;
  }
  double now() const { return static_cast<double>(options.clock ? options.clock() : std::time(nullptr)); }

  const JwtOptions options;
  mutable std::mutex mutex;
  std::shared_ptr<const VerificationKeys> keys;  // Guarded by mutex.
  rpc::AuditLog audit;
};

JwtVerifier::JwtVerifier(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

Result<JwtVerifier> JwtVerifier::load(JwtOptions options) {
  if (!options.trust_domain.empty() &&
      (options.trust_domain.contains('/') || !valid_spiffe_id(std::string(spiffe_scheme) + options.trust_domain))) {
    return fail(ErrorCode::invalid_argument, "JwtOptions::trust_domain is " + options.trust_domain.substr(0, 256) +
                                                 ": it must be a SPIFFE trust domain, such as example.org");
  }
  if (options.issuer.empty() || options.audience.empty()) {
    return fail(ErrorCode::invalid_argument,
                "JwtOptions::issuer and audience must be set: otherwise tokens for other services are accepted");
  }
  JwtVerifier made(std::make_shared<State>(std::move(options)));
  TRY(made.reload());
  return made;
}

Result<void> JwtVerifier::reload() { return state_->read(); }

Result<Identity> JwtVerifier::verify(std::string_view token) const {
  const JwtOptions& options = state_->options;
  if (token.size() > options.token_bytes_max) {
    return refused("it has " + std::to_string(token.size()) + " bytes, of which token_bytes_max (" +
                   std::to_string(options.token_bytes_max) + ") are allowed");
  }
  const std::size_t first = token.find('.');
  const std::size_t second = first == std::string_view::npos ? first : token.find('.', first + 1);
  if (second == std::string_view::npos || token.find('.', second + 1) != std::string_view::npos) {
    return refused("it does not consist of three parts with dots between them");
  }
  const auto header_text = decode_url(token.substr(0, first));
  const auto signature = decode_url(token.substr(second + 1));
  if (!header_text || !signature) return refused("a part of it is not Base64 for URLs without padding");
  const std::optional<Json> header = security::tls::parse_json(*header_text, header_values_max);
  if (!header || header->kind != Json::Kind::object)
    return refused("its header is not a JSON object of at most 32 values");
  const std::shared_ptr<const VerificationKeys> keys = state_->current();
  TRY(const VerificationKey* const key, key_for(*keys, *header));
  if (!verify_signature(*key, token.substr(0, second), *signature)) return refused("its signature is wrong");

  const auto claims_text = decode_url(token.substr(first + 1, second - first - 1));
  std::optional<Json> claims = claims_text ? security::tls::parse_json(*claims_text, claims_values_max) : std::nullopt;
  if (!claims || claims->kind != Json::Kind::object)
    return refused("its claims are not a JSON object of at most 512 values");
  if (claims->text_of("iss") != options.issuer) return refused("its issuer (\"iss\") is not the server's");
  if (!names_audience(*claims, options.audience)) return refused("its audience (\"aud\") is not this server");
  const double now = state_->now();
  const double skew = static_cast<double>(options.clock_skew.count());
  const Json* const end = claims->find("exp");
  if (end == nullptr || !end->number()) return refused("it has no end (\"exp\")");
  if (now >= *end->number() + skew) return refused("it has expired");
  if (const Json* const begin = claims->find("nbf"); begin != nullptr) {
    if (!begin->number()) return refused("its begin (\"nbf\") is not a number");
    if (now + skew < *begin->number()) return refused("it is not valid yet (\"nbf\")");
  }
  if (const Json* const name = claims->find("sub"); name != nullptr && name->kind != Json::Kind::text) {
    return refused("its subject (\"sub\") is not a text");
  }
  return identity_of(std::move(*claims), options.trust_domain);
}

Task<Result<void>> JwtVerifier::operator()(IncomingCall& call, Next next) const {
  const std::string_view token = bearer_token(call);
  if (token.empty()) {
    if (!state_->options.required) return next();
    return state_->refuse(call, "the call has no token: send the metadata authorization: Bearer TOKEN");
  }
  Result<Identity> identity = verify(token);
  if (!identity) return state_->refuse(call, std::move(identity.error().text));
  call.set_identity(std::move(*identity));
  if (!state_->options.keep) call.remove_metadata("authorization");
  return next();
}

}  // namespace hawser
