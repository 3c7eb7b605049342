#include "security/tls/kernel.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <system_error>

#include "security/tls/session.h"

namespace hawser::security::tls {
namespace {

std::size_t index_of(KernelCipher cipher) noexcept {
  return static_cast<std::size_t>(std::ranges::find(kernel_ciphers, cipher) - kernel_ciphers.begin());
}

std::string text_of(int error) { return std::generic_category().message(error); }

// Errors that say nothing about the abilities of the kernel.
bool is_passing(int error) noexcept {
  constexpr std::array all = {EMFILE, ENFILE, ENOMEM, ENOBUFS, EAGAIN, EINTR, EADDRNOTAVAIL, EADDRINUSE, ETIMEDOUT};
  return std::ranges::find(all, error) != all.end();
}

std::string problem_of(KernelCipher cipher, const KernelTls::Failure& failure) {
  switch (failure.step) {
    case KernelTls::Step::none: return {};
    case KernelTls::Step::connection:
      return "this host has no connections of its own on which the kernel could be tried (" + text_of(failure.error) +
             (is_passing(failure.error) ? "): it is tried again" : "): enable the interface lo");
    case KernelTls::Step::module:
      return failure.error == ENOENT
                 ? "the kernel cannot encrypt TLS, because its module tls is not loaded: modprobe tls"
                 : "the kernel refuses TLS on the socket (" + text_of(failure.error) + "): use OpenSSL";
    case KernelTls::Step::report:
      return "the kernel does not report how many records it has sent with " + std::string(name_of(cipher)) + " (" +
             text_of(failure.error) + "): use another cipher, or a later Linux";
    case KernelTls::Step::key: break;
  }
  if (is_passing(failure.error)) {
    return "the kernel has no means to encrypt with " + std::string(name_of(cipher)) + " now (" +
           text_of(failure.error) + "): it is tried again";
  }
  return "the kernel does not encrypt TLS 1.3 with " + std::string(name_of(cipher)) + " (" + text_of(failure.error) +
         "): use another cipher, or Linux 5.11 or later";
}

// The length of records that the peer has demanded (RFC 6066, 4), which OpenSSL grants; 0: it has not.
std::size_t record_bytes_max_of(const SSL* ssl) noexcept {
  const SSL_SESSION* const session = SSL_get0_session(ssl);
  const unsigned mode = session == nullptr ? 0 : SSL_SESSION_get_max_fragment_length(session);
  return mode >= TLSEXT_max_fragment_length_512 && mode <= TLSEXT_max_fragment_length_4096 ? std::size_t{256} << mode
                                                                                           : 0;
}

// HKDF-Expand-Label with an empty context (RFC 8446, 7.1).
bool expand_label(const char* digest, Bytes secret, std::string_view label, std::span<unsigned char> out) noexcept {
  constexpr std::string_view prefix = "tls13 ";
  std::array<unsigned char, 32> info{};
  std::size_t size = 0;
  info[size++] = static_cast<unsigned char>(out.size() >> 8);
  info[size++] = static_cast<unsigned char>(out.size());
  info[size++] = static_cast<unsigned char>(prefix.size() + label.size());
  for (const std::string_view part : {prefix, label}) {
    std::memcpy(info.data() + size, part.data(), part.size());
    size += part.size();
  }
  info[size++] = 0;  // The length of the context.
  EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* const context = kdf == nullptr ? nullptr : EVP_KDF_CTX_new(kdf);
  int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
  // OpenSSL changes none of them.
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, const_cast<char*>(digest), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<std::byte*>(secret.data()), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), size), OSSL_PARAM_construct_end()};
  const bool done = context != nullptr && EVP_KDF_derive(context, out.data(), out.size(), parameters) == 1;
  EVP_KDF_CTX_free(context);
  EVP_KDF_free(kdf);
  if (!done) ERR_clear_error();
  return done;
}

void on_secret(const SSL* ssl, const char* line) {
  TlsSession& session = TlsSession::of(ssl);
  note_line(session.notes(), session.context().options().server, line);
}

void on_message(int written, int, int type, const void* bytes, std::size_t size, SSL* ssl, void*) {
  WriteNotes& notes = TlsSession::of(ssl).notes();
  const auto* const content = static_cast<const std::byte*>(bytes);
  const bool key_update = type == SSL3_RT_HANDSHAKE && size != 0 && content[0] == std::byte{SSL3_MT_KEY_UPDATE};
  if (written == 0) {
    // OpenSSL answers with the next data that it writes.
    if (key_update && size == 5 && content[4] == std::byte{SSL_KEY_UPDATE_REQUESTED}) notes.key_demanded = true;
    return;
  }
  if (type == SSL3_RT_HEADER && !notes.secret.empty()) ++notes.records;
  if (key_update) notes.key_changed = true;
  if (type == SSL3_RT_ALERT && size == 2 && notes.dropped) notes.alert = {content[0], content[1]};
}

}  // namespace

std::string_view name_of(KernelCipher cipher) noexcept {
  switch (cipher) {
    case KernelCipher::aes_128_gcm: return "AES-128-GCM";
    case KernelCipher::aes_256_gcm: return "AES-256-GCM";
    default: return "ChaCha20-Poly1305";
  }
}

bool derive_key(KernelTlsKey& key, KernelCipher cipher, Bytes secret, std::uint64_t next_record) noexcept {
  const char* const digest = cipher == KernelCipher::aes_256_gcm ? "SHA384" : "SHA256";
  const std::size_t key_bytes = cipher == KernelCipher::aes_128_gcm ? 16 : 32;
  key.cipher = cipher;
  key.next_record = next_record;
  return expand_label(digest, secret, "key", std::span(key.key).first(key_bytes)) &&
         expand_label(digest, secret, "iv", key.iv);
}

// ---- Notes ----

void WriteNotes::forget() noexcept { secret = SecretVector<std::byte>(); }

void note_secrets(SSL_CTX* context) noexcept { SSL_CTX_set_keylog_callback(context, on_secret); }
void note_writes(SSL* ssl) noexcept { SSL_set_msg_callback(ssl, on_message); }

void note_line(WriteNotes& notes, bool server, std::string_view line) noexcept {
  const std::string_view label = server ? "SERVER_TRAFFIC_SECRET_0 " : "CLIENT_TRAFFIC_SECRET_0 ";
  if (!line.starts_with(label)) return;
  const std::string_view digits = line.substr(line.rfind(' ') + 1);
  const std::size_t size = digits.size() / 2;
  notes.forget();
  if (digits.size() % 2 != 0 || size > WriteNotes::secret_bytes_max) return;
  try {
    notes.secret.resize(size);
  } catch (const std::bad_alloc&) {
    return;  // The kernel gets no key.
  }
  for (std::size_t i = 0; i < size; ++i) {
    const int high = OPENSSL_hexchar2int(static_cast<unsigned char>(digits[2 * i]));
    const int low = OPENSSL_hexchar2int(static_cast<unsigned char>(digits[2 * i + 1]));
    if (high < 0 || low < 0) return notes.forget();
    notes.secret[i] = static_cast<std::byte>(high << 4 | low);
  }
  notes.records = 0;
  notes.key_changed = false;
}

// ---- The kernel ----

KernelSupport examine_kernel() {
  constexpr std::array<std::byte, 48> any_secret{};
  KernelSupport found;
  KernelTls::Failure last;
  bool usable = false;
  for (std::size_t i = 0; i < kernel_ciphers.size(); ++i) {
    KernelTlsKey key;
    KernelTls::Failure failure{KernelTls::Step::key, ENOTSUP};
    if (derive_key(key, kernel_ciphers[i], any_secret, 0)) failure = KernelTls::try_key(key);
    found.failures[i] = failure;
    found.passing = found.passing || (failure.step != KernelTls::Step::none && is_passing(failure.error));
    found.timed_out = found.timed_out || failure.error == ETIMEDOUT;
    usable = usable || failure.step == KernelTls::Step::none;
    if (failure.step != KernelTls::Step::none) last = failure;
    // Neither depends on the cipher.
    if (failure.step == KernelTls::Step::module || failure.step == KernelTls::Step::connection) {
      std::fill(found.failures.begin() + static_cast<std::ptrdiff_t>(i), found.failures.end(), failure);
      break;
    }
  }
  if (!usable) found.problem = problem_of(kernel_ciphers.back(), last);
  return found;
}

KernelBegun begin_kernel(KernelTls& kernel, int socket, SSL* ssl, WriteNotes& notes, const KernelSupport& support) {
  struct Forgetting {
    ~Forgetting() { of.forget(); }
    WriteNotes& of;
  } const forgetting{notes};
  if (!support.problem.empty()) return {KernelRefusal::support, support.problem};
  if (socket < 0) return {KernelRefusal::socket, "the connection is not a TCP socket of the kernel: use TCP"};
  if (SSL_version(ssl) != TLS1_3_VERSION) {
    return {KernelRefusal::version, "the peer speaks " + std::string(SSL_get_version(ssl)) +
                                        ", and the kernel encrypts TLS 1.3 only: enable TLS 1.3 there"};
  }
  const SSL_CIPHER* const current = SSL_get_current_cipher(ssl);
  const auto cipher = static_cast<KernelCipher>(current == nullptr ? 0 : SSL_CIPHER_get_protocol_id(current));
  const std::size_t index = index_of(cipher);
  if (index == kernel_ciphers.size()) {
    return {KernelRefusal::cipher,
            "the kernel does not encrypt with " + std::string(SSL_get_cipher_name(ssl)) + ": use another cipher"};
  }
  if (support.failures[index].step != KernelTls::Step::none) {
    return {KernelRefusal::cipher, problem_of(cipher, support.failures[index])};
  }
  if (notes.key_changed || notes.key_demanded) {
    return {KernelRefusal::key_update, "the peer demanded new keys before the kernel had the first: connect again"};
  }
  if (const std::size_t bytes = record_bytes_max_of(ssl); bytes != 0) {
    return {KernelRefusal::record_size, "the peer takes records of " + std::to_string(bytes) +
                                            " bytes at most (max_fragment_length), and the kernel's have up to 16384: "
                                            "remove that limit there"};
  }
  KernelTlsKey key;
  if (notes.secret.empty() || !derive_key(key, cipher, notes.secret, notes.records)) {
    return {KernelRefusal::failed, "OpenSSL gives no key for the kernel: update OpenSSL"};
  }
  const KernelTls::Failure failure = kernel.begin(socket, key);
  if (failure.step == KernelTls::Step::none) return {};
  if (failure.error == ENOTCONN) {
    return {KernelRefusal::ended,
            "the peer ended its sending direction, or the connection, before the kernel had the key: end it after the "
            "first reply"};
  }
  return {KernelRefusal::failed, problem_of(cipher, failure)};
}

}  // namespace hawser::security::tls
