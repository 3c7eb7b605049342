#pragma once

#include <openssl/ssl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/bytes.h"
#include "heap/secret_memory.h"
#include "os/kernel_tls.h"

// Encryption of sent bytes by the kernel (kTLS). docs/decisions/0051-the-kernel-encrypts-what-is-sent.md.
namespace hawser::security::tls {

inline constexpr std::array kernel_ciphers = {KernelCipher::aes_128_gcm, KernelCipher::aes_256_gcm,
                                              KernelCipher::chacha20_poly1305};
std::string_view name_of(KernelCipher cipher) noexcept;

// Derives the key of a direction from its traffic secret (RFC 8446, 7.3). `next_record` is the number of records that
// were encrypted with this secret. Returns false if OpenSSL fails.
bool derive_key(KernelTlsKey& key, KernelCipher cipher, Bytes secret, std::uint64_t next_record) noexcept;

// Notes about what the OpenSSL of this side has written, for a session whose key may go to the kernel.
struct WriteNotes {
  WriteNotes() noexcept = default;
  WriteNotes(const WriteNotes&) = delete;
  WriteNotes& operator=(const WriteNotes&) = delete;
  // Wipes the secret.
  void forget() noexcept;

  static constexpr std::size_t secret_bytes_max = 64;
  SecretVector<std::byte> secret;                 // Traffic secret of this side's application data. Empty: not known.
  std::uint64_t records = 0;                      // Written with keys of this secret.
  bool key_changed = false;                       // A KeyUpdate was written. The secret is that of an older key.
  bool key_demanded = false;                      // The peer has demanded new keys, and may not have them yet.
  std::optional<std::array<std::byte, 2>> alert;  // The latest one that was dropped: level and description.
  bool dropped = false;                           // The kernel encrypts. OpenSSL's records are not sent.
};
// Notes the traffic secrets of all sessions of a context, and the records of one session, in TlsSession::notes().
void note_secrets(SSL_CTX* context) noexcept;
void note_writes(SSL* ssl) noexcept;
// Notes the secret of a line of the key log (SSLKEYLOGFILE) if it is that of this side's application data.
void note_line(WriteNotes& notes, bool server, std::string_view line) noexcept;

// Reasons why the kernel does not encrypt for a connection.
enum class KernelRefusal : std::uint8_t {
  none,
  support,
  socket,
  version,
  cipher,
  key_update,
  record_size,
  ended,
  failed,
};

// The abilities of this kernel.
struct KernelSupport {
  std::string problem = {};  // Why nothing can be encrypted, with the remedy; empty: something can.
  std::array<KernelTls::Failure, kernel_ciphers.size()> failures = {};  // One for each of kernel_ciphers.
  bool passing = false;    // An error is one of a moment, such as of a process that has no descriptor left.
  bool timed_out = false;  // The kernel made no connection in time. The trial has taken long.
};
// Tries each cipher. May load modules of the kernel, so it may take long.
KernelSupport examine_kernel();

struct KernelBegun {
  KernelRefusal refusal = KernelRefusal::none;
  std::string problem = {};  // With the remedy.
};
// Gives the key of a session to the kernel. `socket` has accepted everything that the session has written; -1: there is
// none. Wipes the secret in the notes. Throws std::bad_alloc.
KernelBegun begin_kernel(KernelTls& kernel, int socket, SSL* ssl, WriteNotes& notes, const KernelSupport& support);

}  // namespace hawser::security::tls
