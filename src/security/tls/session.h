#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "security/tls/context.h"
#include "security/tls/kernel.h"
#include "security/tls/openssl.h"
#include "security/tls/record_tracker.h"

namespace hawser::security::tls {

// Bytes in a block that are consumed from the front. Holds no block while it is empty.
class ByteQueue {
 public:
  ByteQueue() noexcept = default;
  ByteQueue(const ByteQueue&) = delete;
  ByteQueue& operator=(const ByteQueue&) = delete;
  ~ByteQueue() { clear(); }

  bool empty() const noexcept { return begin_ == end_; }
  // The size of the block.
  std::size_t capacity() const noexcept { return block_ == nullptr ? 0 : block_->size(); }
  // Moves the bytes to a block of about their size, if the present one is much larger. May throw.
  void shrink();
  Bytes bytes() const noexcept { return block_ == nullptr ? Bytes() : Bytes(block_->data() + begin_, end_ - begin_); }
  // Room for at least `bytes` more bytes behind the present ones. May throw.
  MutableBytes reserve(std::size_t bytes);
  void commit(std::size_t bytes) noexcept { end_ += bytes; }
  void append(Bytes bytes);
  void consume(std::size_t bytes) noexcept;
  void clear() noexcept;
  void swap(ByteQueue& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(begin_, other.begin_);
    std::swap(end_, other.end_);
  }

 private:
  Block* block_ = nullptr;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

// One end of a TLS connection, without I/O: the peer's bytes are added to input(), and output() is what must be sent to
// it. Used by one thread at a time, also by different ones. Keeps its context.
class TlsSession {
 public:
  // A server's end. `protocols` are the names that ALPN may select; empty: any offer is ignored.
  TlsSession(std::shared_ptr<const TlsContext> context, std::string protocols);
  // A client's end that expects the server `host`. `protocol` is offered by ALPN unless it is empty: a server that
  // answers with another one is refused. `resumed` may be null.
  TlsSession(std::shared_ptr<const TlsContext> context, std::string host, std::string_view protocol,
             SslSessionPtr resumed);
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;
  ~TlsSession();

  ByteQueue& input() noexcept { return input_; }
  // Called by OpenSSL. Returns the number of bytes that were moved from the input, or no number if the session ends
  // because of them.
  std::optional<std::size_t> take_input(MutableBytes to);
  // After the handshake: the memory for received bytes that wait: the input, and the buffers for a record or a
  // message of which a part has arrived or has been read.
  std::size_t waiting_bytes() const noexcept;
  ByteQueue& output() noexcept { return output_; }
  const ByteQueue& output() const noexcept { return output_; }

  // Continues the handshake. `more`: it needs further input.
  enum class Progress : std::uint8_t { more, done, failed };
  // `stop`: for a function that makes a signature.
  Progress handshake(std::stop_token stop = {});
  // True if the rest of a server's handshake needs no operation with a public key: the client's Finished is missing.
  bool awaits_short_end() const noexcept;
  bool resumed() const noexcept;
  const TlsContext& context() const noexcept { return *context_; }
  // The peer's verified certificate; null if it sent none, or if it is not verified. Valid as long as the session.
  X509* peer_certificate() const noexcept;
  // The name of the shared key by which both sides have proved themselves; empty: by certificates, or not at all.
  // After the handshake.
  std::string_view key_name() const noexcept;
  // The protocol that ALPN selected; empty: none.
  std::string_view protocol() const noexcept;

  // Decrypts into `space`. `closed`: the peer has ended the stream by close_notify.
  enum class Read : std::uint8_t { data, more, closed, failed };
  Read read(MutableBytes space, std::size_t& bytes);
  // Returns true if decrypted bytes wait that read() returns without further input.
  bool pending() const noexcept;
  // Encrypts the first bytes of `pieces`, up to `bytes_max` and somewhat more. Returns their number, which is less than
  // that only after a failure.
  std::size_t write(std::span<const ConstBuffer> pieces, std::size_t bytes_max);
  // This side has sent data, also by the kernel.
  void note_sent() noexcept { records_read_.forget_records(); }
  // The peer may send so many records after the handshake while neither side sends data, such as tickets and new keys
  // (KeyUpdate). OpenSSL handles all that have arrived in one call, which takes about 10 us for each.
  static constexpr std::size_t records_without_data_max = 64;
  // Adds close_notify to the output.
  void shut_down() noexcept;

  // Why a function returned `failed`.
  const Error& error() const noexcept { return error_; }

  // Empty if keys can be exported that only the two ends of this connection have (RFC 5705, RFC 7627); otherwise the
  // reason, a literal. After the handshake.
  std::string_view no_export_reason() const noexcept;
  // For tests, and for the callbacks of OpenSSL.
  SSL* ssl() noexcept { return ssl_.get(); }
  // The names that a server selects from, or the one that a client offers.
  const std::string& alpn() const noexcept { return alpn_; }
  const std::string& host() const noexcept { return host_; }
  void refuse_certificate(int error, X509* certificate);
  void refuse(std::string reason) noexcept { refused_ = std::move(reason); }
  // Client: false if the server's certificate is refused because of the OCSP response, or because there is none. Throws
  // std::bad_alloc.
  bool accepts_status();
  // Until when the verification of the peer's certificates holds, in seconds since 1970.
  std::int64_t verified_until() const noexcept { return verified_until_; }
  void note_key(std::string_view name) { key_name_ = name; }
  // Empty unless ContextOptions::kernel is set.
  WriteNotes& notes() noexcept { return notes_; }
  const WriteNotes& notes() const noexcept { return notes_; }
  static TlsSession& of(const SSL* ssl) noexcept;

 private:
  void begin();
  bool write_record(const std::byte* data, std::size_t bytes);
  void fail_with(std::string_view what) noexcept;
  std::string failure_text() const;

  const std::shared_ptr<const TlsContext> context_;
  const std::string alpn_;
  const std::string host_;
  ByteQueue input_;
  ByteQueue output_;
  RecordTracker records_read_;
  SslPtr ssl_;
  std::uint64_t records_ = 0;   // Written with the present key.
  std::uint64_t received_ = 0;  // Blocks of 16 bytes, and two for each read, since new keys were requested.
  WriteNotes notes_;
  bool open_ = false;     // The handshake is complete.
  bool over_ = false;     // The session has failed.
  std::string key_name_;  // The shared key that the client offers, if the server has it.
  std::int64_t verified_until_ = INT64_MAX;
  std::string refused_;  // Why the peer's certificate was refused.
  Error error_;
};

}  // namespace hawser::security::tls
