#include "security/tls/pkcs11/token_key.h"

#include <openssl/crypto.h>
#include <openssl/ecdsa.h>
#include <openssl/x509.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/escaped_text.h"
#include "base/try.h"
#include "hawser/loop.h"
#include "security/tls/certificate.h"
#include "security/tls/pkcs11.h"

namespace hawser::security::tls {
namespace {

using Algorithm = TlsSigningRequest::Algorithm;
using Hash = TlsSigningRequest::Hash;

constexpr std::size_t keys_shown_max = 8;
constexpr std::size_t signature_bytes_max = 4096;
constexpr std::size_t pin_bytes_max = 256;

struct HashFacts {
  int nid;
  CK_MECHANISM_TYPE mechanism;
  CK_RSA_PKCS_MGF_TYPE mask;
};

HashFacts facts_of(Hash hash) {
  switch (hash) {
    case Hash::sha224: return {NID_sha224, CKM_SHA224, CKG_MGF1_SHA224};
    case Hash::sha384: return {NID_sha384, CKM_SHA384, CKG_MGF1_SHA384};
    case Hash::sha512: return {NID_sha512, CKM_SHA512, CKG_MGF1_SHA512};
    default: return {NID_sha256, CKM_SHA256, CKG_MGF1_SHA256};
  }
}

std::vector<unsigned char> bytes_of(Bytes data) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(data.data());
  return {begin, begin + data.size()};
}

// The DigestInfo of PKCS #1 (RFC 8017, 9.2).
std::vector<unsigned char> digest_info(Bytes digest, int hash) {
  const std::unique_ptr<X509_SIG, Released<X509_SIG_free>> info(X509_SIG_new());
  std::vector<unsigned char> der;
  if (info == nullptr) return der;
  X509_ALGOR* algorithm = nullptr;
  ASN1_OCTET_STRING* value = nullptr;
  X509_SIG_getm(info.get(), &algorithm, &value);
  if (X509_ALGOR_set0(algorithm, OBJ_nid2obj(hash), V_ASN1_NULL, nullptr) != 1 ||
      ASN1_OCTET_STRING_set(value, reinterpret_cast<const unsigned char*>(digest.data()),
                            static_cast<int>(digest.size())) != 1) {
    return der;
  }
  const int size = i2d_X509_SIG(info.get(), nullptr);
  if (size <= 0) return der;
  der.resize(static_cast<std::size_t>(size));
  unsigned char* out = der.data();
  i2d_X509_SIG(info.get(), &out);
  return der;
}

// A token returns both numbers of an ECDSA signature one after the other, equally long.
std::vector<std::byte> ecdsa_der(const std::vector<std::byte>& both) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(both.data());
  const int half = static_cast<int>(both.size() / 2);
  const std::unique_ptr<ECDSA_SIG, Released<ECDSA_SIG_free>> signature(ECDSA_SIG_new());
  BIGNUM* const r = BN_bin2bn(bytes, half, nullptr);
  BIGNUM* const s = BN_bin2bn(bytes + half, half, nullptr);
  if (signature == nullptr || ECDSA_SIG_set0(signature.get(), r, s) != 1) {
    BN_free(r);
    BN_free(s);
    return {};
  }
  const int size = i2d_ECDSA_SIG(signature.get(), nullptr);
  if (size <= 0) return {};
  std::vector<std::byte> der(static_cast<std::size_t>(size));
  auto* out = reinterpret_cast<unsigned char*>(der.data());
  i2d_ECDSA_SIG(signature.get(), &out);
  return der;
}

// Errors that another session, or the token in another slot, does not have.
bool is_final(CK_RV error) {
  constexpr std::array<CK_RV, 8> all = {
      CKR_MECHANISM_INVALID, CKR_MECHANISM_PARAM_INVALID, CKR_KEY_TYPE_INCONSISTENT,  CKR_KEY_FUNCTION_NOT_PERMITTED,
      CKR_KEY_SIZE_RANGE,    CKR_DATA_LEN_RANGE,          CKR_FUNCTION_NOT_SUPPORTED, CKR_PIN_LOCKED};
  return std::ranges::find(all, error) != all.end();
}

std::string algorithm_text(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::rsa_pkcs1: return "RSA with PKCS #1 v1.5 (CKM_RSA_PKCS)";
    case Algorithm::rsa_pss: return "RSA-PSS (CKM_RSA_PKCS_PSS), which TLS 1.3 needs";
    case Algorithm::ecdsa: return "ECDSA (CKM_ECDSA)";
    default: return "Ed25519 (CKM_EDDSA)";
  }
}

}  // namespace

// The last connection of a server may end on its loop after the key was replaced.
TokenKey::~TokenKey() {
  for (const Session session : idle_) module_.close(session);
}

Result<void> TokenKey::open() {
  TRY(Session&& session, acquire());
  release(session, false);
  return {};
}

Result<std::vector<std::byte>> TokenKey::sign(const TlsSigningRequest& request) {
  const HashFacts hash = facts_of(request.hash);
  CK_RSA_PKCS_PSS_PARAMS pss{hash.mechanism, hash.mask, request.data.size()};
  CK_MECHANISM mechanism{CKM_ECDSA, nullptr, 0};
  std::vector<unsigned char> data = bytes_of(request.data);
  switch (request.algorithm) {
    case Algorithm::rsa_pkcs1:
      mechanism.mechanism = CKM_RSA_PKCS;
      data = digest_info(request.data, hash.nid);
      break;
    case Algorithm::rsa_pss: mechanism = {CKM_RSA_PKCS_PSS, &pss, sizeof pss}; break;
    case Algorithm::ecdsa: break;
    case Algorithm::ed25519: mechanism.mechanism = CKM_EDDSA; break;
  }
  // The second attempt finds the token again, which may have been removed and inserted.
  for (int attempt = 0;; ++attempt) {
    TRY(const Session& session, acquire());
    Signed made = sign_once(session, mechanism, data);
    const bool lost = made.error != CKR_OK && !is_final(made.error);
    release(session, lost);
    const bool again = lost && attempt == 0;
    if (made.refusal && (!again || made.refusal->code != ErrorCode::unavailable)) {
      return fail(std::move(*made.refusal));
    }
    if (made.error == CKR_OK) {
      return request.algorithm == Algorithm::ecdsa ? ecdsa_der(made.signature) : std::move(made.signature);
    }
    if (again) continue;
    return failed("the token cannot sign by " + algorithm_text(request.algorithm) + ": " + pkcs11_text(made.error) +
                      (lost ? ": check that the token is present"
                            : ": use a token and a key that can, or another algorithm of TLS"),
                  ErrorCode::unavailable);
  }
}

TokenKey::Signed TokenKey::sign_once(Session session, CK_MECHANISM& mechanism, const std::vector<unsigned char>& data) {
  CK_OBJECT_HANDLE key = 0;
  bool authenticate = false;
  {
    const std::lock_guard lock(mutex_);
    if (!key_) return {CKR_KEY_HANDLE_INVALID, {}, {}};
    key = *key_;
    authenticate = authenticate_always_;
  }
  const CK_FUNCTION_LIST& functions = module_.functions();
  Signed made;
  made.error = functions.C_SignInit(session, &mechanism, key);
  if (made.error == CKR_OK && authenticate) {
    // The session has begun a signature, so it is closed.
    const std::lock_guard lock(mutex_);
    if (Result<void> done = log_in(session, CKU_CONTEXT_SPECIFIC); !done) {
      done.error().text += ". The key demands the PIN for each signature (CKA_ALWAYS_AUTHENTICATE)";
      return {CKR_USER_NOT_LOGGED_IN, {}, std::move(done.error())};
    }
  }
  if (made.error != CKR_OK) return made;
  made.signature.resize(signature_bytes_max);
  CK_ULONG size = signature_bytes_max;
  made.error = functions.C_Sign(session, const_cast<unsigned char*>(data.data()), data.size(),
                                reinterpret_cast<unsigned char*>(made.signature.data()), &size);
  made.signature.resize(made.error == CKR_OK ? size : 0);
  return made;
}

// ---- Sessions ----

Result<TokenKey::Session> TokenKey::acquire() {
  const std::lock_guard lock(mutex_);
  if (!key_ || idle_.empty()) return find();
  const Session session = idle_.back();
  idle_.pop_back();
  return session;
}

void TokenKey::release(Session session, bool lost) {
  const std::lock_guard lock(mutex_);
  if (!lost && key_) {
    idle_.push_back(session);
    return;
  }
  module_.functions().C_CloseSession(session);
  if (!lost) return;
  key_.reset();
  for (const Session other : std::exchange(idle_, {})) module_.functions().C_CloseSession(other);
}

// Opens a session with the token, and finds the key in it. With mutex_.
Result<TokenKey::Session> TokenKey::find() {
  module_.close_noted();
  TRY(const Pkcs11Module::Token& token, module_.find_token(uri_));
  const CK_FUNCTION_LIST& functions = module_.functions();
  token_ = "the token '";
  append_escaped(token_, token.label, label_bytes_max);
  token_ += "'";
  Session session = 0;
  if (const CK_RV error = functions.C_OpenSession(token.slot, CKF_SERIAL_SESSION, nullptr, nullptr, &session);
      error != CKR_OK) {
    return failed(token_ + " opens no session: " + pkcs11_text(error) +
                      ": check that it is present and not used up by other programs",
                  ErrorCode::unavailable);
  }
  const auto give_up = [&](Error error) -> std::unexpected<Error> {
    functions.C_CloseSession(session);
    return fail(std::move(error));
  };
  if ((token.flags & CKF_LOGIN_REQUIRED) != 0) {
    if (Result<void> done = log_in(session, CKU_USER); !done) return give_up(std::move(done.error()));
  }
  Result<CK_OBJECT_HANDLE> key = find_key(session);
  if (!key) return give_up(std::move(key.error()));
  CK_BBOOL always = CK_FALSE;
  CK_ATTRIBUTE attribute{CKA_ALWAYS_AUTHENTICATE, &always, sizeof always};
  authenticate_always_ = functions.C_GetAttributeValue(session, *key, &attribute, 1) == CKR_OK && always == CK_TRUE;
  key_ = *key;
  return session;
}

// With mutex_. The PIN is not kept.
Result<void> TokenKey::log_in(Session session, CK_USER_TYPE user) {
  if (pin_refused_) {
    return failed(token_ +
                      " has refused the PIN, which is not tried again, because wrong PINs lock the token: "
                      "correct the PIN, and load the key again",
                  ErrorCode::permission_denied);
  }
  SecretText pin;
  if (uri_.pin) {
    pin = *uri_.pin;
  } else if (!uri_.pin_file.empty()) {
    const Result<PemText> file = read_file(uri_.pin_file);
    if (!file) return failed("its PIN: " + file.error().text + ": correct pin-source in the URI of the key");
    const std::string_view text = file->text();
    pin = SecretText(text.substr(0, std::min(text.find_last_not_of(" \t\r\n") + 1, pin_bytes_max)));
  } else {
    return failed(token_ + " demands a PIN: add pin-source=FILE to the URI of the key");
  }
  const CK_RV error =
      module_.functions().C_Login(session, user, reinterpret_cast<unsigned char*>(pin.data()), pin.size());
  if (error == CKR_OK || error == CKR_USER_ALREADY_LOGGED_IN) return {};
  pin_refused_ = error == CKR_PIN_INCORRECT || error == CKR_PIN_LOCKED || error == CKR_PIN_LEN_RANGE ||
                 error == CKR_PIN_INVALID || error == CKR_PIN_EXPIRED;
  const std::string source = uri_.pin ? "pin-value in the URI of the key" : "the PIN in " + uri_.pin_file;
  return failed(token_ + " refuses the PIN: " + pkcs11_text(error) +
                    (error == CKR_PIN_LOCKED ? ": unlock the token with its SO PIN" : ": correct " + source),
                pin_refused_ ? ErrorCode::permission_denied : ErrorCode::unavailable);
}

Result<CK_OBJECT_HANDLE> TokenKey::find_key(Session session) const {
  CK_OBJECT_CLASS kind = CKO_PRIVATE_KEY;
  std::vector<CK_ATTRIBUTE> wanted = {{CKA_CLASS, &kind, sizeof kind}};
  std::string label = uri_.object;
  std::string id = uri_.id;
  if (!label.empty()) wanted.push_back({CKA_LABEL, label.data(), label.size()});
  if (!id.empty()) wanted.push_back({CKA_ID, id.data(), id.size()});
  const CK_FUNCTION_LIST& functions = module_.functions();
  std::array<CK_OBJECT_HANDLE, 2> found{};
  CK_ULONG count = 0;
  CK_RV error = functions.C_FindObjectsInit(session, wanted.data(), wanted.size());
  if (error == CKR_OK) {
    error = functions.C_FindObjects(session, found.data(), found.size(), &count);
    functions.C_FindObjectsFinal(session);
  }
  if (error != CKR_OK) {
    return failed(token_ + " does not list its keys: " + pkcs11_text(error) + ": check that the token is present",
                  ErrorCode::unavailable);
  }
  if (count == 1) return found.front();
  if (count > 1) return failed(token_ + " has more than one such private key: add object and id to the URI of the key");
  return failed(token_ + " has no such private key. The labels of its keys are: " + other_keys(session) +
                ": correct object and id in the URI of the key");
}

std::string TokenKey::other_keys(Session session) const {
  const CK_FUNCTION_LIST& functions = module_.functions();
  CK_OBJECT_CLASS kind = CKO_PRIVATE_KEY;
  CK_ATTRIBUTE wanted{CKA_CLASS, &kind, sizeof kind};
  std::array<CK_OBJECT_HANDLE, keys_shown_max> found{};
  CK_ULONG count = 0;
  if (functions.C_FindObjectsInit(session, &wanted, 1) == CKR_OK) {
    functions.C_FindObjects(session, found.data(), found.size(), &count);
    functions.C_FindObjectsFinal(session);
  }
  std::string all;
  for (const CK_OBJECT_HANDLE key : std::span(found).first(std::min<std::size_t>(count, found.size()))) {
    std::array<char, 256> text{};
    CK_ATTRIBUTE label{CKA_LABEL, text.data(), text.size()};
    if (functions.C_GetAttributeValue(session, key, &label, 1) != CKR_OK || label.ulValueLen > text.size()) continue;
    all += all.empty() ? "'" : ", '";
    append_escaped(all, {text.data(), label.ulValueLen}, label_bytes_max);
    all += "'";
  }
  return all.empty() ? "none" : all;
}

// A key whose module is loaded by the first signature. Thread-safe.
class LateKey {
 public:
  explicit LateKey(Pkcs11Uri uri) : uri_(std::move(uri)) {}
  Result<void> load() {
    const std::lock_guard lock(mutex_);
    if (key_ != nullptr) return {};
    TRY(Pkcs11Module* const module, Pkcs11Module::load(uri_.module_path));
    key_ = std::make_unique<TokenKey>(uri_, *module);
    return {};
  }
  Result<void> open() {
    const Pkcs11Module::Use use;
    if (!use) return process_exits();
    TRY(load());
    return key_->open();
  }
  Result<std::vector<std::byte>> sign(const TlsSigningRequest& request) {
    const Pkcs11Module::Use use;
    if (!use) return process_exits();
    TRY(load());
    return key_->sign(request);
  }

 private:
  std::unexpected<Error> process_exits() const {
    return fail(ErrorCode::unavailable, "the key " + uri_.shown + " cannot be used while the process exits");
  }

  const Pkcs11Uri uri_;
  std::mutex mutex_;
  std::unique_ptr<TokenKey> key_;  // Set once, with mutex_.
};

// ---- The interface ----

Result<Pkcs11Key> open_pkcs11_key(const std::string& text) {
  TRY(Pkcs11Uri&& uri, parse_pkcs11_uri(text));
  const std::string name = "the key " + uri.shown;
  const auto key = std::make_shared<LateKey>(std::move(uri));
  if (Loop::current() == nullptr) {
    TRY(key->open());
  }
  return Pkcs11Key{[key](const TlsSigningRequest& request) { return key->sign(request); }, name};
}

std::string pin_file_of_pkcs11(const std::string& text) {
  const Result<Pkcs11Uri> uri = parse_pkcs11_uri(text);
  return uri ? uri->pin_file : std::string();
}

}  // namespace hawser::security::tls
