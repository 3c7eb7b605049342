#include "security/tls/session.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

namespace hawser::security::tls {
namespace {

constexpr std::size_t record_bytes_max = 16 * 1024;
constexpr std::size_t cipher_block_bytes = 16;
// Bytes of a record beside its content, with any of the ciphers.
constexpr std::size_t record_overhead_bytes_max = 64;
// The buffer of OpenSSL for a record that is received (SSL3_RT_MAX_ENCRYPTED_LENGTH and its alignment).
constexpr std::size_t record_buffer_bytes = 17 * 1024;

// The buffers of OpenSSL while a message is incomplete: for the message, and for a record in each direction.
constexpr std::size_t message_buffers_bytes = 48 * 1024;

// ---- The BIO of a session: OpenSSL reads from its input and writes to its output ----

int bio_read(BIO* bio, char* to, std::size_t wanted, std::size_t* done) {
  BIO_clear_retry_flags(bio);
  *done = 0;
  try {
    const std::optional<std::size_t> taken =
        static_cast<TlsSession*>(BIO_get_data(bio))->take_input({reinterpret_cast<std::byte*>(to), wanted});
    if (!taken) return 0;
    *done = *taken;
  } catch (const std::bad_alloc&) {
    return 0;
  }
  if (*done != 0) return 1;
  BIO_set_retry_read(bio);
  return 0;
}

int bio_write(BIO* bio, const char* from, std::size_t size, std::size_t* done) {
  BIO_clear_retry_flags(bio);
  *done = 0;
  auto& session = *static_cast<TlsSession*>(BIO_get_data(bio));
  if (session.notes().dropped) {
    *done = size;
    return 1;
  }
  try {
    session.output().append(Bytes(reinterpret_cast<const std::byte*>(from), size));
  } catch (const std::bad_alloc&) {
    return 0;
  }
  *done = size;
  return 1;
}

long bio_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* session_bio() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hawser");
    BIO_meth_set_read_ex(made, bio_read);
    BIO_meth_set_write_ex(made, bio_write);
    BIO_meth_set_ctrl(made, bio_control);
    return made;
  }();
  return method;
}

int session_index() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

// The zone of an IPv6 address (RFC 4007) names an interface of this machine. A certificate has the address only.
std::string without_zone(std::string host) {
  const std::size_t zone = host.find('%');
  if (zone != std::string::npos && host.find(':') < zone && is_address(host.substr(0, zone))) host.resize(zone);
  return host;
}

}  // namespace

// ---- ByteQueue ----

MutableBytes ByteQueue::reserve(std::size_t bytes) {
  if (block_ == nullptr) {
    block_ = Block::allocate(bytes);
    begin_ = end_ = 0;
  } else if (block_->size() - end_ < bytes) {
    const std::size_t held = end_ - begin_;
    if (block_->size() >= held + bytes && begin_ >= held) {
      std::memcpy(block_->data(), block_->data() + begin_, held);
    } else {
      Block* const larger = Block::allocate(std::max(held + bytes, 2 * held));
      std::memcpy(larger->data(), block_->data() + begin_, held);
      block_->release();
      block_ = larger;
    }
    begin_ = 0;
    end_ = held;
  }
  return {block_->data() + end_, block_->size() - end_};
}

void ByteQueue::append(Bytes bytes) {
  if (bytes.empty()) return;
  const MutableBytes room = reserve(bytes.size());
  std::memcpy(room.data(), bytes.data(), bytes.size());
  commit(bytes.size());
}

void ByteQueue::consume(std::size_t bytes) noexcept {
  begin_ += bytes;
  if (begin_ == end_) clear();
}

void ByteQueue::clear() noexcept {
  if (block_ != nullptr) std::exchange(block_, nullptr)->release();
  begin_ = end_ = 0;
}

void ByteQueue::shrink() {
  const std::size_t held = end_ - begin_;
  if (block_ == nullptr || block_->size() < 2 * held) return;
  Block* const smaller = Block::allocate(held);
  if (smaller->size() >= block_->size()) return smaller->release();
  std::memcpy(smaller->data(), block_->data() + begin_, held);
  std::exchange(block_, smaller)->release();
  begin_ = 0;
  end_ = held;
}

// ---- TlsSession ----

std::optional<std::size_t> TlsSession::take_input(MutableBytes to) {
  const Bytes bytes = input_.bytes().first(std::min(to.size(), input_.bytes().size()));
  const std::size_t size = bytes.size();
  if (size == 0) return 0;
  std::memcpy(to.data(), bytes.data(), size);
  records_read_.add(bytes, SSL_version(ssl_.get()) == TLS1_3_VERSION);
  input_.consume(size);
  if (open_ && records_read_.records() > records_without_data_max) [[unlikely]] {
    refused_ =
        "the peer sent more than " + std::to_string(records_without_data_max) +
        " records without data, such as demands for new keys (KeyUpdate), one after the other: send data between "
        "them";
    return std::nullopt;
  }
  if (records_read_.excess() == 0) [[likely]]
    return size;
  refused_ = "the client sent a first message (ClientHello) of " + std::to_string(records_read_.excess()) +
             " bytes, more than client_hello_bytes_max allows (" +
             std::to_string(context_->options().client_hello_bytes_max) + " bytes)";
  return std::nullopt;
}

std::size_t TlsSession::waiting_bytes() const noexcept {
  // A message after the handshake, such as one that replaces keys, of which a part has arrived in whole records.
  if (SSL_in_init(ssl_.get()) == 1) return input_.capacity() + message_buffers_bytes;
  const bool record = records_read_.incomplete() || SSL_has_pending(ssl_.get()) == 1;
  return input_.capacity() + (record ? record_buffer_bytes : 0);
}

TlsSession& TlsSession::of(const SSL* ssl) noexcept {
  return *static_cast<TlsSession*>(SSL_get_ex_data(ssl, session_index()));
}

void TlsSession::begin() {
  ERR_clear_error();
  ssl_.reset(SSL_new(context_->get()));
  BIO* const bio = BIO_new(session_bio());
  if (ssl_ == nullptr || bio == nullptr || SSL_set_ex_data(ssl_.get(), session_index(), this) != 1) {
    BIO_free(bio);
    throw std::bad_alloc();
  }
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  if (context_->options().kernel != TlsKernel::off) note_writes(ssl_.get());
}

TlsSession::TlsSession(std::shared_ptr<const TlsContext> context, std::string protocols)
    : context_(std::move(context)),
      alpn_(std::move(protocols)),
      records_read_(context_->options().client_hello_bytes_max) {
  begin();
  SSL_set_accept_state(ssl_.get());
}

TlsSession::TlsSession(std::shared_ptr<const TlsContext> context, std::string host, std::string_view protocol,
                       SslSessionPtr resumed)
    : context_(std::move(context)), alpn_(protocol), host_(without_zone(std::move(host))), records_read_(0) {
  begin();
  SSL* const ssl = ssl_.get();
  SSL_set_connect_state(ssl);
  bool set = true;
  if (!host_.empty()) {
    X509_VERIFY_PARAM* const expected = SSL_get0_param(ssl);
    if (is_address(host_)) {
      set = X509_VERIFY_PARAM_set1_ip_asc(expected, host_.c_str()) == 1;
    } else {
      X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
      set = X509_VERIFY_PARAM_set1_host(expected, host_.data(), host_.size()) == 1 &&
            SSL_set_tlsext_host_name(ssl, host_.c_str()) == 1;
    }
  }
  if (!protocol.empty()) {
    const std::string list = std::string(1, static_cast<char>(protocol.size())) + std::string(protocol);
    set = set && SSL_set_alpn_protos(ssl, reinterpret_cast<const unsigned char*>(list.data()),
                                     static_cast<unsigned>(list.size())) == 0;
  }
  // A session that cannot be resumed is not used.
  if (resumed != nullptr) SSL_set_session(ssl, resumed.get());
  if (!set) {
    ERR_clear_error();
    throw std::bad_alloc();
  }
}

// OpenSSL resumes no session of a connection that ended without close_notify, as it does when messages travel beside
// the stream. A cut connection says nothing about the keys.
TlsSession::~TlsSession() {
  if (!over_) SSL_set_shutdown(ssl_.get(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
}

TlsSession::Progress TlsSession::handshake(std::stop_token stop) {
  if (over_) return Progress::failed;
  const SigningScope signing(std::move(stop));
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) {
    // A resumed session does not verify the certificate again.
    X509* const certificate = peer_certificate();
    if (resumed() && certificate != nullptr && X509_cmp_current_time(X509_get0_notAfter(certificate)) <= 0) {
      refuse_certificate(X509_V_ERR_CERT_HAS_EXPIRED, certificate);
      fail_with("the TLS handshake failed: ");
      return Progress::failed;
    }
    // OpenSSL itself refuses this as a bad extension since one of the later versions of 3.0.
    if (!context_->options().server && !protocol().empty() && protocol() != alpn_) {
      refused_ = "the server answered with another protocol (ALPN) than this client offered, which is " + alpn_;
      fail_with("the TLS handshake failed: ");
      return Progress::failed;
    }
    // Without the note the session is not resumed.
    TlsContext::note_verified(SSL_get_session(ssl_.get()), verified_until_);
    open_ = true;
    records_read_.forget_records();
    return Progress::done;
  }
  if (SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ) return Progress::more;
  const bool unsigned_by_us = !signing.reason().empty();
  if (unsigned_by_us) refused_ = signing.reason();
  fail_with("the TLS handshake failed: ");
  if (unsigned_by_us) error_.initiator = Initiator::local;
  return Progress::failed;
}

// TLS 1.3: the server has sent everything up to its Finished, and has requested no certificate. OpenSSL has named the
// state after early data, which may come there. The state is the same after a HelloRetryRequest, before the server's
// Finished.
bool TlsSession::awaits_short_end() const noexcept {
  std::array<std::byte, 1> finished{};
  return SSL_get_state(ssl_.get()) == TLS_ST_EARLY_DATA && SSL_get_finished(ssl_.get(), finished.data(), 1) != 0 &&
         (SSL_get_verify_mode(ssl_.get()) & SSL_VERIFY_PEER) == 0;
}

// The handshake with a shared key has the form of a resumption, and sends no certificate.
std::string_view TlsSession::key_name() const noexcept {
  return SSL_session_reused(ssl_.get()) == 1 ? std::string_view(key_name_) : std::string_view();
}
bool TlsSession::resumed() const noexcept { return SSL_session_reused(ssl_.get()) == 1 && key_name_.empty(); }
X509* TlsSession::peer_certificate() const noexcept {
  return (SSL_get_verify_mode(ssl_.get()) & SSL_VERIFY_PEER) != 0 ? SSL_get0_peer_certificate(ssl_.get()) : nullptr;
}

std::string_view TlsSession::protocol() const noexcept {
  const unsigned char* data = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &data, &size);
  return {reinterpret_cast<const char*>(data), size};
}

// Without the extended master secret, a man in the middle can make two connections of TLS 1.2 that have the same keys.
std::string_view TlsSession::no_export_reason() const noexcept {
  if (SSL_version(ssl_.get()) >= TLS1_3_VERSION || SSL_get_extms_support(ssl_.get()) == 1) return {};
  return "the peer speaks TLS 1.2 without the extended master secret, so that no keys of a path can be derived";
}

TlsSession::Read TlsSession::read(MutableBytes space, std::size_t& bytes) {
  bytes = 0;
  if (over_) return Read::failed;
  ERR_clear_error();
  if (SSL_read_ex(ssl_.get(), space.data(), space.size(), &bytes) == 1) {
    received_ += bytes / cipher_block_bytes + 2;
    records_read_.forget_records();
    return Read::data;
  }
  bytes = 0;
  switch (SSL_get_error(ssl_.get(), 0)) {
    case SSL_ERROR_WANT_READ:
      // A message of TLS leaves a buffer for sending, which OpenSSL otherwise keeps until it sends.
      if (!records_read_.incomplete() && SSL_in_init(ssl_.get()) == 0) SSL_free_buffers(ssl_.get());
      return Read::more;
    case SSL_ERROR_ZERO_RETURN: return Read::closed;
    default: fail_with("TLS: "); return Read::failed;
  }
}

bool TlsSession::pending() const noexcept { return !over_ && SSL_pending(ssl_.get()) != 0; }

bool TlsSession::write_record(const std::byte* data, std::size_t bytes) {
  records_ += (bytes + record_bytes_max - 1) / record_bytes_max;
  const std::uint64_t limit = context_->options().records_per_key;
  if (records_ >= limit) [[unlikely]] {
    if (SSL_version(ssl_.get()) >= TLS1_3_VERSION) {
      // The peer counts what it sends itself. It is asked for new keys only if it has sent as much as one key may
      // protect, because a peer whose kernel encrypts may have to end the connection then.
      const bool request = received_ >= 2 * limit * (record_bytes_max / cipher_block_bytes);
      SSL_key_update(ssl_.get(), request ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED);
      records_ = 0;
      if (request) received_ = 0;
    } else if (records_ > 2 * limit) {
      refused_ = "this connection of TLS 1.2 has sent " + std::to_string(2 * limit) +
                 " records, as many as its key may protect: connect again, or use TLS 1.3";
      fail_with("");
      return false;
    }
  }
  std::size_t written = 0;
  if (SSL_write_ex(ssl_.get(), data, bytes, &written) == 1) {
    note_sent();
    return true;
  }
  fail_with("TLS: ");
  return false;
}

// Small pieces are put together in records. Large ones, and the last one, are encrypted where they are.
std::size_t TlsSession::write(std::span<const ConstBuffer> pieces, std::size_t bytes_max) {
  static thread_local std::array<std::byte, record_bytes_max> together;
  if (over_) return 0;
  ERR_clear_error();
  // Room for all records at once.
  std::size_t planned = 0;
  for (const ConstBuffer& piece : pieces) planned += std::min(piece.size, bytes_max);
  planned = std::min(planned, bytes_max + record_bytes_max);
  output_.reserve(planned + (planned / record_bytes_max + 2) * record_overhead_bytes_max);
  std::size_t done = 0;
  std::size_t held = 0;
  for (const ConstBuffer& piece : pieces) {
    std::size_t used = 0;
    while (used < piece.size && done + held < bytes_max) {
      const std::size_t rest = piece.size - used;
      const bool last = &piece == &pieces.back();
      if (held == 0 && (last || rest >= record_bytes_max)) {
        const std::size_t direct = std::min(rest, bytes_max - done);
        const std::size_t full = direct / record_bytes_max * record_bytes_max;
        const std::size_t size = last ? direct : full != 0 ? full : record_bytes_max;
        if (!write_record(piece.data + used, size)) return done;
        done += size;
        used += size;
        continue;
      }
      const std::size_t size = std::min(rest, together.size() - held);
      std::memcpy(together.data() + held, piece.data + used, size);
      held += size;
      used += size;
      if (held == together.size()) {
        if (!write_record(together.data(), held)) return done;
        done += std::exchange(held, 0);
      }
    }
  }
  if (held != 0) {
    if (!write_record(together.data(), held)) return done;
    done += held;
  }
  return done;
}

void TlsSession::shut_down() noexcept {
  // A second SSL_shutdown() would read, and refuse what the peer still sends.
  if (over_ || (SSL_get_shutdown(ssl_.get()) & SSL_SENT_SHUTDOWN) != 0) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

void TlsSession::refuse_certificate(int error, X509* certificate) {
  refused_ = verify_text(error, certificate, host_, context_->options().server ? "client" : "server");
}

// A resumed session has no response. It was noted until when it may be resumed.
bool TlsSession::accepts_status() {
  X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
  STACK_OF(X509)* const chain = SSL_get0_verified_chain(ssl_.get());
  if (SSL_session_reused(ssl_.get()) == 1) return true;
  if (certificate == nullptr || sk_X509_num(chain) < 1) {
    if (!context_->options().ocsp_required) return true;
    refused_ =
        "the server's certificate is refused: it was not verified, so that no OCSP response can be judged: "
        "TlsClientOptions::ocsp_required needs a verified certificate";
    return false;
  }
  // A certificate that is trusted itself has no other issuer.
  X509* const issuer = sk_X509_value(chain, sk_X509_num(chain) > 1 ? 1 : 0);
  const unsigned char* response = nullptr;
  const long bytes = SSL_get_tlsext_status_ocsp_resp(ssl_.get(), &response);
  const std::string_view der(reinterpret_cast<const char*>(response),
                             response != nullptr && bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  OcspVerdict verdict =
      check_ocsp_response(der, certificate, issuer, SSL_CTX_get_cert_store(context_->get()), std::time(nullptr));
  using Status = OcspVerdict::Status;
  const bool required = context_->options().ocsp_required;
  if (verdict.status == Status::good) verified_until_ = verdict.ends;
  if (verdict.status == Status::good || (verdict.status == Status::absent && !required && !must_staple(certificate))) {
    return true;
  }
  refused_ = "the server's certificate is refused: " + verdict.reason;
  if (verdict.status == Status::absent) {
    refused_ +=
        std::string(", and ") +
        (required ? "TlsClientOptions::ocsp_required demands a good one" : "the certificate demands a good one") +
        ": set TlsCertificate::ocsp_file at the server";
  }
  return false;
}

void TlsSession::fail_with(std::string_view what) noexcept {
  over_ = true;
  error_ = Error::of_connection(Initiator::peer, ErrorCode::unavailable, {});
  try {
    error_.text = std::string(what) + failure_text();
  } catch (const std::bad_alloc&) {
    error_.text = "TLS failed";  // So short that it needs no memory.
  }
  ERR_clear_error();
}

std::string TlsSession::failure_text() const {
  if (!refused_.empty()) return refused_;
  const unsigned long error = ERR_peek_error();
  const bool server = context_->options().server;
  const int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
  if (reason > SSL_AD_REASON_OFFSET) {
    const int alert = reason - SSL_AD_REASON_OFFSET;
    std::string text = std::string("the ") + (server ? "client" : "server") + " ended it with the alert \"" +
                       SSL_alert_desc_string_long(alert) + "\" (" + std::to_string(alert) + ")";
    if (!server && alert == TLS1_AD_NO_APPLICATION_PROTOCOL) text += ": it does not speak this client's protocol";
    if (!server && alert == SSL_AD_CERTIFICATE_REQUIRED) text += ": set TlsClientOptions::certificate";
    if (server && alert == SSL_AD_UNKNOWN_CA)
      text += ": the client does not trust the issuer of this server's certificate";
    return text;
  }
  switch (reason) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_RECORD_LENGTH_MISMATCH:
      return server ? "the client does not speak TLS"
                    : "the server does not answer in TLS: enable TLS there, or remove `security` from the client's "
                      "options";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
      return std::string("the peer speaks no version of TLS from ") +
             (context_->options().tls12 ? "1.2" : "1.3 (the option tls12 is false)") + " on";
    case SSL_R_NO_SHARED_CIPHER:
      return "the peer has no cipher in common with this side: it needs ECDHE with AES-GCM or ChaCha20";
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return "the client sent no certificate, which this server requires: set TlsClientOptions::certificate there";
    case SSL_R_EXCESSIVE_MESSAGE_SIZE:
      return "the peer sent a message longer than allowed, such as certificates of more than " +
             std::to_string(context_->options().peer_certificate_bytes_max) + " bytes (peer_certificate_bytes_max)";
    case SSL_R_NO_APPLICATION_PROTOCOL: return "the client offers no protocol (ALPN) that this server speaks";
    default: break;
  }
  return error == 0 ? "the peer violated the protocol" : reason_text(error);
}

}  // namespace hawser::security::tls
