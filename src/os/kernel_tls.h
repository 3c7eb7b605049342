#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "hawser/time.h"

namespace hawser {

// The ciphers of TLS 1.3 that the kernel has. By their numbers in TLS.
enum class KernelCipher : std::uint16_t { aes_128_gcm = 0x1301, aes_256_gcm = 0x1302, chacha20_poly1305 = 0x1303 };

// The key of one direction. Wiped when it is destroyed.
struct KernelTlsKey {
  KernelTlsKey() noexcept = default;
  KernelTlsKey(const KernelTlsKey&) = delete;
  KernelTlsKey& operator=(const KernelTlsKey&) = delete;
  ~KernelTlsKey();

  KernelCipher cipher = KernelCipher::aes_128_gcm;
  std::array<unsigned char, 32> key{};  // The first 16 bytes with AES-128-GCM.
  std::array<unsigned char, 12> iv{};
  std::uint64_t next_record = 0;  // The number of records that were encrypted with this key.
};

// Encryption by the kernel (kTLS) of what is sent on a TCP socket. The socket must outlive it. Used by one thread.
class KernelTls {
 public:
  // Steps that may fail, each with an errno. `module`: ENOENT means that the kernel has no module tls, or that this
  // process may not load it.
  // `report`: the kernel does not report the number of the next record, which held_bytes() needs.
  enum class Step : std::uint8_t { none, connection, module, key, report };
  struct Failure {
    Step step = Step::none;
    int error = 0;
  };
  // Tries a key on a connection of this host, within the process. Waits at most twice trial_wait_max for the
  // connection. Loads modules of the kernel if the process may, so that the first call may take long: a second, or
  // more than ten on a slow machine.
  static Failure try_key(const KernelTlsKey& key) noexcept;
  static constexpr Duration trial_wait_max = std::chrono::seconds(1);

  // Whatever is sent on the socket from now on is encrypted. The socket must have accepted everything that was
  // encrypted before. After a failure, the socket sends what it is given, as before.
  Failure begin(int socket, const KernelTlsKey& key) noexcept;
  bool begun() const noexcept { return socket_ >= 0; }
  KernelCipher cipher() const noexcept { return cipher_; }

  // The socket has accepted so many bytes, which are more than 0, of so many pieces.
  void count(std::size_t bytes, std::size_t pieces) noexcept;
  // The sum that the security of AES-GCM bounds: blocks of 16 bytes, and two more for each record. Counted too high
  // rather than too low. 0 with ChaCha20-Poly1305, which needs no bound (RFC 8446, 5.5).
  std::uint64_t blocks() const noexcept { return cipher_ == KernelCipher::chacha20_poly1305 ? 0 : blocks_; }

  // Sends an alert (level and description) in a record of its own. Returns false if the socket has no room now.
  bool send_alert(const std::array<std::byte, 2>& alert) noexcept;
  // The bytes of records that have not left the kernel's TLS for the queue of TCP. Before that, shutdown() and close()
  // would drop records.
  std::uint64_t held_bytes() const noexcept;

 private:
  std::optional<std::uint64_t> next_record() const noexcept;
  static std::optional<std::uint64_t> queued_bytes(int socket) noexcept;

  int socket_ = -1;
  KernelCipher cipher_ = KernelCipher::aes_128_gcm;
  std::uint64_t first_record_ = 0;
  std::uint64_t first_byte_ = 0;  // The place of the first record in the bytes of the connection.
  std::uint64_t content_bytes_ = 0;
  std::uint64_t blocks_ = 0;
};

}  // namespace hawser
