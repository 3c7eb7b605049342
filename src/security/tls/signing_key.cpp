#include "security/tls/signing_key.h"

#include <openssl/core.h>
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <openssl/rsa.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "base/what_of.h"
#include "hawser/loop.h"
#include "security/tls/certificate.h"

// A provider of OpenSSL within this library. It is loaded into a library context of its own, which has no other
// algorithms, so that it changes nothing for the rest of the process. libssl finds the algorithm for a signature by the
// provider of the key (provider-signature(7)). Everything but private operations is done by the public key, which is
// one of the default context.
namespace hawser::security::tls {
namespace {

using Algorithm = TlsSigningRequest::Algorithm;
using Hash = TlsSigningRequest::Hash;

constexpr const char* signer_param = "hawser-signer";  // The address of a Signer, in EVP_PKEY_fromdata().

struct Signer {
  TlsSign sign;
  std::string name;
  std::shared_ptr<SigningCounters> counters;
};

// The key data of the provider. Without a signer it is a public key alone, for comparison.
struct KeyData {
  KeyPtr key;
  std::shared_ptr<const Signer> signer;
};

// ---- Keys ----

void* key_new(void*) { return new (std::nothrow) KeyData; }
void key_free(void* data) { delete static_cast<KeyData*>(data); }

int key_has(const void* data, int selection) {
  const auto* const own = static_cast<const KeyData*>(data);
  if (own == nullptr || own->key == nullptr) return 0;
  return (selection & OSSL_KEYMGMT_SELECT_PRIVATE_KEY) == 0 || own->signer != nullptr ? 1 : 0;
}

int key_match(const void* one, const void* other, int) {
  const auto* const left = static_cast<const KeyData*>(one);
  const auto* const right = static_cast<const KeyData*>(other);
  if (left->key == nullptr || right->key == nullptr) return 0;
  return EVP_PKEY_eq(left->key.get(), right->key.get()) == 1 ? 1 : 0;
}

int key_get_params(void* data, OSSL_PARAM params[]) {
  const auto* const own = static_cast<const KeyData*>(data);
  return own->key != nullptr ? EVP_PKEY_get_params(own->key.get(), params) : 0;
}

const OSSL_PARAM* key_gettable_params(void*) {
  static const std::array<OSSL_PARAM, 7> params = {{
      OSSL_PARAM_int(OSSL_PKEY_PARAM_BITS, nullptr),
      OSSL_PARAM_int(OSSL_PKEY_PARAM_SECURITY_BITS, nullptr),
      OSSL_PARAM_int(OSSL_PKEY_PARAM_MAX_SIZE, nullptr),
      OSSL_PARAM_utf8_string(OSSL_PKEY_PARAM_DEFAULT_DIGEST, nullptr, 0),
      OSSL_PARAM_utf8_string(OSSL_PKEY_PARAM_MANDATORY_DIGEST, nullptr, 0),
      OSSL_PARAM_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, nullptr, 0),
      OSSL_PARAM_END,
  }};
  return params.data();
}

// Either a private key, with its signer; or the public key of another provider that is to be compared.
int key_import(KeyData& own, const char* type, const OSSL_PARAM params[]) {
  if (const OSSL_PARAM* const given = OSSL_PARAM_locate_const(params, signer_param)) {
    KeyData* made = nullptr;
    if (given->data_type != OSSL_PARAM_OCTET_STRING || given->data_size != sizeof made) return 0;
    std::memcpy(&made, given->data, sizeof made);
    own = std::move(*made);
    return 1;
  }
  const std::unique_ptr<EVP_PKEY_CTX, Released<EVP_PKEY_CTX_free>> context(
      EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* made = nullptr;
  if (context == nullptr || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &made, EVP_PKEY_PUBLIC_KEY, const_cast<OSSL_PARAM*>(params)) != 1) {
    return 0;
  }
  own.key.reset(made);
  return 1;
}

int rsa_import(void* data, int, const OSSL_PARAM params[]) {
  return key_import(*static_cast<KeyData*>(data), "RSA", params);
}
int ec_import(void* data, int, const OSSL_PARAM params[]) {
  return key_import(*static_cast<KeyData*>(data), "EC", params);
}
int ed25519_import(void* data, int, const OSSL_PARAM params[]) {
  return key_import(*static_cast<KeyData*>(data), "ED25519", params);
}

const OSSL_PARAM* key_import_types(int) {
  static const std::array<OSSL_PARAM, 2> params = {{OSSL_PARAM_octet_string(signer_param, nullptr, 0), OSSL_PARAM_END}};
  return params.data();
}

const char* rsa_operation(int) { return "RSA"; }
const char* ec_operation(int) { return "ECDSA"; }
const char* ed25519_operation(int) { return "ED25519"; }

template <class Function>
OSSL_DISPATCH entry(int id, Function* function) {
  return {id, reinterpret_cast<void (*)()>(function)};
}

template <auto import, auto operation>
const OSSL_DISPATCH* key_functions() {
  static const std::array<OSSL_DISPATCH, 10> functions = {entry(OSSL_FUNC_KEYMGMT_NEW, key_new),
                                                          entry(OSSL_FUNC_KEYMGMT_FREE, key_free),
                                                          entry(OSSL_FUNC_KEYMGMT_HAS, key_has),
                                                          entry(OSSL_FUNC_KEYMGMT_MATCH, key_match),
                                                          entry(OSSL_FUNC_KEYMGMT_GET_PARAMS, key_get_params),
                                                          entry(OSSL_FUNC_KEYMGMT_GETTABLE_PARAMS, key_gettable_params),
                                                          entry(OSSL_FUNC_KEYMGMT_IMPORT, import),
                                                          entry(OSSL_FUNC_KEYMGMT_IMPORT_TYPES, key_import_types),
                                                          entry(OSSL_FUNC_KEYMGMT_QUERY_OPERATION_NAME, operation),
                                                          {0, nullptr}};
  return functions.data();
}

// ---- Signatures ----

struct SignatureContext {
  const KeyData* key = nullptr;  // The EVP_PKEY_CTX above keeps it.
  const EVP_MD* hash = nullptr;  // Points to `fetched`. Null: none.
  std::unique_ptr<EVP_MD, Released<EVP_MD_free>> fetched;
  bool pss = false;
};

void* signature_new(void*, const char*) { return new (std::nothrow) SignatureContext; }
void signature_free(void* context) { delete static_cast<SignatureContext*>(context); }

int signature_set_params(void* context, const OSSL_PARAM params[]) {
  auto& own = *static_cast<SignatureContext*>(context);
  if (params == nullptr) return 1;
  if (const OSSL_PARAM* const mode = OSSL_PARAM_locate_const(params, OSSL_SIGNATURE_PARAM_PAD_MODE)) {
    int number = 0;
    if (mode->data_type == OSSL_PARAM_UTF8_STRING) {
      const std::string_view text = static_cast<const char*>(mode->data);
      number = text == OSSL_PKEY_RSA_PAD_MODE_PSS       ? RSA_PKCS1_PSS_PADDING
               : text == OSSL_PKEY_RSA_PAD_MODE_PKCSV15 ? RSA_PKCS1_PADDING
                                                        : 0;
    } else if (OSSL_PARAM_get_int(mode, &number) != 1) {
      return 0;
    }
    if (number != RSA_PKCS1_PSS_PADDING && number != RSA_PKCS1_PADDING) return 0;
    own.pss = number == RSA_PKCS1_PSS_PADDING;
  }
  // TLS uses no other length than that of the hash (RFC 8446, 4.2.3).
  if (const OSSL_PARAM* const length = OSSL_PARAM_locate_const(params, OSSL_SIGNATURE_PARAM_PSS_SALTLEN)) {
    int number = 0;
    if (length->data_type == OSSL_PARAM_UTF8_STRING) {
      if (static_cast<const char*>(length->data) != std::string_view(OSSL_PKEY_RSA_PSS_SALT_LEN_DIGEST)) return 0;
    } else if (OSSL_PARAM_get_int(length, &number) != 1 ||
               (number != RSA_PSS_SALTLEN_DIGEST && (own.hash == nullptr || number != EVP_MD_get_size(own.hash)))) {
      return 0;
    }
  }
  return 1;
}

const OSSL_PARAM* signature_settable_params(void*, void*) {
  static const std::array<OSSL_PARAM, 3> params = {{
      OSSL_PARAM_utf8_string(OSSL_SIGNATURE_PARAM_PAD_MODE, nullptr, 0),
      OSSL_PARAM_utf8_string(OSSL_SIGNATURE_PARAM_PSS_SALTLEN, nullptr, 0),
      OSSL_PARAM_END,
  }};
  return params.data();
}

int sign_init(void* context, const char* hash, void* key, const OSSL_PARAM params[]) {
  auto& own = *static_cast<SignatureContext*>(context);
  own.key = static_cast<const KeyData*>(key);
  if (own.key == nullptr || own.key->signer == nullptr) return 0;
  if (hash != nullptr && *hash != '\0') {
    own.fetched.reset(EVP_MD_fetch(nullptr, hash, nullptr));
    own.hash = own.fetched.get();
    if (own.hash == nullptr) return 0;
  }
  return signature_set_params(context, params);
}

std::optional<Hash> hash_of(const EVP_MD* hash) {
  if (hash == nullptr) return Hash::none;
  constexpr std::array<std::pair<const char*, Hash>, 4> known = {
      {{"SHA224", Hash::sha224}, {"SHA256", Hash::sha256}, {"SHA384", Hash::sha384}, {"SHA512", Hash::sha512}}};
  for (const auto& [name, value] : known) {
    if (EVP_MD_is_a(hash, name) == 1) return value;
  }
  return std::nullopt;
}

// A token or a service may use another key than that of the certificate, and a faulty RSA signature discloses the key.
bool is_valid(const SignatureContext& own, Bytes message, const std::vector<std::byte>& signature) {
  const DigestContextPtr context(EVP_MD_CTX_new());
  EVP_PKEY_CTX* options = nullptr;
  const char* const hash = own.hash != nullptr ? EVP_MD_get0_name(own.hash) : nullptr;
  const bool valid =
      context != nullptr &&
      EVP_DigestVerifyInit_ex(context.get(), &options, hash, nullptr, nullptr, own.key->key.get(), nullptr) == 1 &&
      (!own.pss || (EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING) == 1 &&
                    EVP_PKEY_CTX_set_rsa_pss_saltlen(options, RSA_PSS_SALTLEN_DIGEST) == 1)) &&
      EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()), signature.size(),
                       reinterpret_cast<const unsigned char*>(message.data()), message.size()) == 1;
  ERR_clear_error();
  return valid;
}

Result<std::vector<std::byte>> make_signature(const SignatureContext& own, Bytes message, std::size_t bytes_max) {
  const Signer& signer = *own.key->signer;
  const auto failed = [&signer](const std::string& what) {
    return fail(ErrorCode::unavailable, signer.name + " " + what);
  };
  if (Loop::current() != nullptr) {
    return failed("does not sign on the thread of a loop: set handshake_threads to 1 or more");
  }
  const std::optional<Hash> hash = hash_of(own.hash);
  const EVP_PKEY* const key = own.key->key.get();
  const bool rsa = EVP_PKEY_is_a(key, "RSA") == 1;
  const Algorithm algorithm = !rsa      ? EVP_PKEY_is_a(key, "EC") == 1 ? Algorithm::ecdsa : Algorithm::ed25519
                              : own.pss ? Algorithm::rsa_pss
                                        : Algorithm::rsa_pkcs1;
  if (!hash || (*hash == Hash::none) != (algorithm == Algorithm::ed25519)) {
    return failed("cannot sign with the hash " + std::string(own.hash ? EVP_MD_get0_name(own.hash) : "none"));
  }
  std::array<std::byte, EVP_MAX_MD_SIZE> digest{};
  Bytes data = message;
  if (own.hash != nullptr) {
    unsigned size = 0;
    if (EVP_Digest(message.data(), message.size(), reinterpret_cast<unsigned char*>(digest.data()), &size, own.hash,
                   nullptr) != 1) {
      return failed("cannot hash: " + take_errors());
    }
    data = Bytes(digest).first(size);
  }
  const SigningScope* const scope = SigningScope::current();
  const TlsSigningRequest request{algorithm, *hash, data, scope != nullptr ? scope->stop() : std::stop_token()};
  Result<std::vector<std::byte>> signature = fail(Error{});
  try {
    signature = signer.sign(request);
  } catch (const std::exception& error) {
    return failed("did not sign: an exception was thrown: " + std::string(what_of(error)));
  } catch (...) {
    return failed("did not sign: an exception was thrown");
  }
  if (!signature) return failed("did not sign: " + signature.error().text);
  if (signature->empty() || signature->size() > bytes_max || !is_valid(own, message, *signature)) {
    return failed("made a signature of " + count_text(signature->size(), "byte") +
                  " that is not one of the certificate's key (" + key_text(key) +
                  "): sign with the private key of this certificate");
  }
  return signature;
}

int sign(void* context, unsigned char* out, std::size_t* size, std::size_t room, const unsigned char* message,
         std::size_t bytes) {
  const auto& own = *static_cast<const SignatureContext*>(context);
  const int most = EVP_PKEY_get_size(own.key->key.get());
  if (most <= 0) return 0;
  if (out == nullptr) {
    *size = static_cast<std::size_t>(most);
    return 1;
  }
  SigningCounters& counters = *own.key->signer->counters;
  try {
    const Result<std::vector<std::byte>> signature =
        make_signature(own, Bytes(reinterpret_cast<const std::byte*>(message), bytes), room);
    if (signature) {
      std::memcpy(out, signature->data(), signature->size());
      *size = signature->size();
      counters.made.fetch_add(1, std::memory_order_relaxed);
      return 1;
    }
    if (SigningScope* const scope = SigningScope::current()) scope->set_reason(signature.error().text);
  } catch (const std::exception&) {
    // Without memory there is no reason.
  }
  counters.failed.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

const OSSL_DISPATCH* signature_functions() {
  static const std::array<OSSL_DISPATCH, 7> functions = {
      entry(OSSL_FUNC_SIGNATURE_NEWCTX, signature_new),
      entry(OSSL_FUNC_SIGNATURE_FREECTX, signature_free),
      entry(OSSL_FUNC_SIGNATURE_DIGEST_SIGN_INIT, sign_init),
      entry(OSSL_FUNC_SIGNATURE_DIGEST_SIGN, sign),
      entry(OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS, signature_set_params),
      entry(OSSL_FUNC_SIGNATURE_SETTABLE_CTX_PARAMS, signature_settable_params),
      {0, nullptr}};
  return functions.data();
}

// ---- The provider ----

const OSSL_ALGORITHM* operations(void*, int operation, int* no_store) {
  *no_store = 0;
  static const std::array<OSSL_ALGORITHM, 4> keys = {{
      {"RSA:rsaEncryption", "provider=hawser", key_functions<rsa_import, rsa_operation>(), nullptr},
      {"EC:id-ecPublicKey", "provider=hawser", key_functions<ec_import, ec_operation>(), nullptr},
      {"ED25519", "provider=hawser", key_functions<ed25519_import, ed25519_operation>(), nullptr},
      {nullptr, nullptr, nullptr, nullptr},
  }};
  static const std::array<OSSL_ALGORITHM, 4> signatures = {{
      {"RSA:rsaEncryption", "provider=hawser", signature_functions(), nullptr},
      {"ECDSA", "provider=hawser", signature_functions(), nullptr},
      {"ED25519", "provider=hawser", signature_functions(), nullptr},
      {nullptr, nullptr, nullptr, nullptr},
  }};
  if (operation == OSSL_OP_KEYMGMT) return keys.data();
  if (operation == OSSL_OP_SIGNATURE) return signatures.data();
  return nullptr;
}

int begin_provider(const OSSL_CORE_HANDLE* handle, const OSSL_DISPATCH*, const OSSL_DISPATCH** functions,
                   void** context) {
  static const std::array<OSSL_DISPATCH, 2> own = {entry(OSSL_FUNC_PROVIDER_QUERY_OPERATION, operations), {0, nullptr}};
  *functions = own.data();
  *context = const_cast<OSSL_CORE_HANDLE*>(handle);
  return 1;
}

// Never freed: keys of the provider may outlive any other static object. Null if OpenSSL has failed.
OSSL_LIB_CTX* provider_context() {
  static OSSL_LIB_CTX* const context = [] {
    OSSL_LIB_CTX* const made = OSSL_LIB_CTX_new();
    if (made == nullptr || OSSL_PROVIDER_add_builtin(made, "hawser", begin_provider) != 1 ||
        OSSL_PROVIDER_load(made, "hawser") == nullptr) {
      OSSL_LIB_CTX_free(made);
      return static_cast<OSSL_LIB_CTX*>(nullptr);
    }
    return made;
  }();
  return context;
}

thread_local SigningScope* scope_of_thread = nullptr;

}  // namespace

SigningScope::SigningScope(std::stop_token stop)
    : stop_(std::move(stop)), outer_(std::exchange(scope_of_thread, this)) {}
SigningScope::~SigningScope() { scope_of_thread = outer_; }
SigningScope* SigningScope::current() noexcept { return scope_of_thread; }

Result<KeyPtr> make_signing_key(EVP_PKEY* key, TlsSign sign, std::string name,
                                std::shared_ptr<SigningCounters> counters) {
  const char* type = nullptr;
  for (const char* const known : {"RSA", "EC", "ED25519"}) {
    if (key != nullptr && EVP_PKEY_is_a(key, known) == 1) type = known;
  }
  if (type == nullptr) {
    return fail(ErrorCode::invalid_argument, name + " is of another kind (" + key_text(key) +
                                                 ") than RSA, EC and Ed25519: use a certificate with one of these");
  }
  EVP_PKEY_up_ref(key);
  KeyData data{KeyPtr(key), std::make_shared<Signer>(Signer{std::move(sign), name, std::move(counters)})};
  KeyData* address = &data;
  const std::array<OSSL_PARAM, 2> params = {OSSL_PARAM_construct_octet_string(signer_param, &address, sizeof address),
                                            OSSL_PARAM_construct_end()};
  const std::unique_ptr<EVP_PKEY_CTX, Released<EVP_PKEY_CTX_free>> context(
      provider_context() != nullptr ? EVP_PKEY_CTX_new_from_name(provider_context(), type, nullptr) : nullptr);
  EVP_PKEY* made = nullptr;
  if (context == nullptr || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &made, EVP_PKEY_KEYPAIR, const_cast<OSSL_PARAM*>(params.data())) != 1) {
    return fail(ErrorCode::internal, "OpenSSL makes no key for " + name + ": " + take_errors());
  }
  return KeyPtr(made);
}

Result<void> try_signing_key(EVP_PKEY* key, std::stop_token stop) {
  constexpr std::string_view text = "hawser: a trial of the key of a certificate";
  const SigningScope scope(std::move(stop));
  const DigestContextPtr context(EVP_MD_CTX_new());
  EVP_PKEY_CTX* options = nullptr;
  std::array<unsigned char, 2048> signature{};
  std::size_t size = signature.size();
  const char* const hash = EVP_PKEY_is_a(key, "ED25519") == 1 ? nullptr : "SHA256";
  const bool pss = EVP_PKEY_is_a(key, "RSA") == 1;
  const bool done = context != nullptr &&
                    EVP_DigestSignInit_ex(context.get(), &options, hash, nullptr, nullptr, key, nullptr) == 1 &&
                    (!pss || (EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING) == 1 &&
                              EVP_PKEY_CTX_set_rsa_pss_saltlen(options, RSA_PSS_SALTLEN_DIGEST) == 1)) &&
                    EVP_DigestSign(context.get(), signature.data(), &size,
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
  const std::string error = take_errors();
  if (done) return {};
  return fail(ErrorCode::invalid_argument, scope.reason().empty() ? "OpenSSL cannot sign: " + error : scope.reason());
}

}  // namespace hawser::security::tls
