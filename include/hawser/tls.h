#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/time.h"

// TLS 1.3 and 1.2 for servers and clients. Component hawser::tls. docs/security.md.
namespace hawser {

namespace transport {
class ServerSecurity;
class ClientSecurity;
}  // namespace transport

// A request for a signature by a key outside this process.
struct TlsSigningRequest {
  enum class Algorithm : std::uint8_t {
    rsa_pkcs1,  // PKCS #1 v1.5 (RFC 8017, 8.2), for TLS 1.2. The data is not yet in a DigestInfo.
    rsa_pss,    // PSS (RFC 8017, 8.1): MGF1 with the same hash, and a salt as long as the hash.
    ecdsa,      // The signature is in DER form (Ecdsa-Sig-Value, RFC 3279, 2.2.3).
    ed25519,    // RFC 8032, without a hash. The signature has 64 bytes.
  };
  enum class Hash : std::uint8_t { none, sha224, sha256, sha384, sha512 };
  Algorithm algorithm;
  Hash hash;
  // The value of `hash` over the message; with Ed25519 the message itself. Valid during the call.
  Bytes data;
  // A stop is requested when the connection has ended, because the signature is not needed then. For a trial signature,
  // it is requested when the last user of the TlsServer or TlsClient ends.
  std::stop_token stop;
};

// Returns the signature, or an error: it ends the handshake and is logged. Called on the threads for handshakes, on
// several at a time, and never on a loop. May block. Each call occupies one of `handshake_threads` until it returns;
// when all are occupied, other handshakes wait. Exceptions are treated as errors. What the function refers to must live
// until the last user of the TlsServer or TlsClient has ended.
using TlsSign = std::function<Result<std::vector<std::byte>>(const TlsSigningRequest& request)>;

// Files in PEM format. The first certificate of certificate_file is the own one. Those of its issuers follow, without
// the root.
struct TlsCertificate {
  std::string certificate_file;
  // A file in PEM format, or the URI of a key in a PKCS #11 token (RFC 7512), such as
  // "pkcs11:token=web;object=server?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=/etc/web.pin".
  std::string key_file = {};
  // For servers: the latest answer of the issuer's OCSP responder about this certificate, in DER format, of at most
  // 64 KiB. The server sends it with the certificate until it expires. It must say that the certificate is good.
  // Whoever renews the file, such as `openssl ocsp -respout`, replaces it in one step. Empty: none is sent.
  std::string ocsp_file = {};
  // Instead of key_file: a function that signs with the private key of the certificate, which is RSA, EC or Ed25519. A
  // trial signature is made when the files are read, unless that happens on a loop. A certificate with both keys, or
  // with this one and handshake_threads = 0, is refused (`invalid_argument`).
  TlsSign sign = {};
};

// A key that both sides have, for clusters without certificates. The handshake is that of TLS 1.3 with a pre-shared key
// and ephemeral Diffie-Hellman (RFC 8446, 4.2.9): each side proves to the other that it has the key, and recorded
// connections stay secret if the key is disclosed later. Everything else is as with certificates. Whoever has the key
// can be either side.
struct TlsSharedKey {
  // Selects the key at the server, which takes it for the client's name: Identity::subject, with the kind shared_key.
  // 1 to 128 bytes. It travels in plain text.
  std::string name;
  // 64 to 128 hexadecimal digits, random ones, such as `openssl rand -hex 32` writes. White space is ignored.
  std::string file;
};

// The connections that a server with TLS accepts.
enum class TlsPolicy : std::uint8_t {
  required,             // TLS only. Plain text is refused with a text that names the remedy.
  required_from_hosts,  // As `required`, but plain text is accepted from the loopback addresses and at Unix sockets.
  allowed,              // TLS and plain text.
};

// Selects what may carry the messages of a native connection over TLS, and how messages beside the encrypted stream are
// protected. The HELLOs travel within TLS in any case. The higher of the levels of both sides applies. Each level
// includes those before it. With a level that a transport or a peer cannot have, the encrypted stream is used, or
// TransportOptions::required makes that an error.
enum class TlsProtection : std::uint8_t {
  // Also the transport beside the stream that both sides agree on in their HELLOs: shared memory, RDMA, UCX. Its keys
  // and addresses travel only within TLS, and both sides prove by their first messages on it that they are the ends of
  // this TLS connection. Later messages are neither encrypted nor signed.
  authenticated,
  // Each message beside the stream has a number and a tag of 16 bytes (AES-256-GCM, or ChaCha20-Poly1305 if TLS has
  // negotiated it). A message that was changed, forged, repeated, reordered or dropped ends the connection before the
  // application sees it. There is no one-sided access: memory is accessed by messages.
  signed_messages,
  // Messages beside the stream are encrypted, too. Payloads are copied once by each side for that.
  sealed_messages,
  // The encrypted stream only. Other transports are neither offered nor selected.
  encrypted_stream,
};

// Selects who encrypts what a connection sends. OpenSSL always decrypts what it receives, in this process.
enum class TlsKernel : std::uint8_t {
  off,  // OpenSSL.
  // The kernel (kTLS) where it can, without a copy of large messages into records; otherwise OpenSSL. kTLS needs Linux
  // 5.11 or later with the module tls, a TCP socket, and TLS 1.3 with AES-128-GCM, AES-256-GCM or ChaCha20-Poly1305. A
  // connection for which the kernel encrypts ends when its keys must be replaced: when the peer demands new ones, and
  // with AES-GCM before it has sent 256 GiB, where each record counts 32 bytes more.
  automatic,
  // As `automatic`, but a connection for which the kernel does not encrypt ends, with the reason.
  required,
};

struct TlsServerOptions {
  // One at least, unless there are shared_keys. The server sends the first one that is valid for the host name that the
  // client demands (SNI), and the first of all if there is none. Several of the same names may have different kinds of
  // keys: of these, the client gets one that it supports.
  std::vector<TlsCertificate> certificates = {};
  // Clients may prove who they are by one of these instead of by a certificate, and need no certificate of the server.
  std::vector<TlsSharedKey> shared_keys = {};
  // Certificates of the issuers of client certificates. Empty: no client certificates are requested.
  std::string client_ca_file = {};
  bool client_certificate_required = true;  // With client_ca_file: clients without a certificate are refused.
  // Files with lists of revoked certificates, one or several in each. If there is any, the issuer of a client
  // certificate needs a current one. A list of the issuer of an issuer is used if there is one, and must be current
  // then.
  std::vector<std::string> crl_files = {};
  TlsPolicy policy = TlsPolicy::required;
  TlsProtection protection = TlsProtection::authenticated;
  bool tls12 = true;  // Accepts TLS 1.2 beside TLS 1.3.
  // Changed files are used by new connections as soon as they match. Files that cannot be used for 1 s are logged, and
  // the old ones stay. The kernel notifies of changes (inotify), on a thread that all objects of a process share. The
  // files are also looked at when a connection begins, at most once in this interval, which finds changes by other
  // hosts of a network file system. 0: when each connection begins, without notifications. `forever`: see reload().
  Duration reload_interval = std::chrono::seconds(5);
  // Threads that perform handshakes, started when they are first needed. 0: handshakes run on the loops.
  unsigned handshake_threads = 2;
  std::size_t handshakes_max = 1024;  // Limit of those that wait for a thread. More are refused.
  // Limit for the certificates that a client sends, in bytes. Their number is limited to 10.
  std::size_t peer_certificate_bytes_max = 32 * 1024;
  // Limit for the first message of a client, in bytes. At least 1 KiB. With client_ca_file, peer_certificate_bytes_max
  // is added, because the message may have a ticket that contains a certificate.
  std::size_t client_hello_bytes_max = 16 * 1024;
  // Limit, on each loop, for the bytes that clients make their connections hold: handshakes that are not complete,
  // incomplete records and messages of TLS, received bytes of paused connections, and encrypted bytes that the client
  // has not received. When it is exceeded, the peer whose connections hold the most loses the one whose bytes have
  // waited longest; docs/security.md says what a peer is. At least 1 MiB, and as much as one handshake may hold:
  // 80 KiB, client_hello_bytes_max, and with client_ca_file peer_certificate_bytes_max.
  std::size_t held_bytes_max = std::size_t{256} << 20;
  TlsKernel kernel = TlsKernel::off;  // Whether the kernel encrypts what is sent.
};

struct TlsClientOptions {
  // Certificates of the issuers of server certificates. Empty: those of the system.
  std::string ca_file = {};
  std::vector<std::string> crl_files = {};  // As in TlsServerOptions, for server certificates.
  // A server must send an OCSP response which says that its certificate is good. Without this option, only a server
  // whose certificate demands it (must-staple, RFC 7633) must. A response that a server sends is always verified.
  bool ocsp_required = false;
  TlsCertificate certificate = {};  // For servers that demand one. Empty: none.
  // With a file: the server must have this key, and no certificate is accepted instead. ca_file, certificate,
  // server_name and resumption have no effect then.
  TlsSharedKey shared_key = {};
  // The name or address that the server's certificate must have. Empty: the host of the address. Required with Unix
  // sockets.
  std::string server_name = {};
  TlsProtection protection = TlsProtection::authenticated;
  bool tls12 = true;
  // Accepts every server, whoever it is. For experiments only: the connection is encrypted, and anybody in the network
  // may be the peer.
  bool accept_any_server = false;
  bool resumption = true;  // Keeps sessions in memory, which makes later connections to the same server cheaper.
  Duration reload_interval = std::chrono::seconds(5);  // As in TlsServerOptions.
  unsigned handshake_threads = 1;                      // As in TlsServerOptions.
  std::size_t handshakes_max = 1024;
  std::size_t peer_certificate_bytes_max = 32 * 1024;
  TlsKernel kernel = TlsKernel::off;  // Whether the kernel encrypts what is sent.
};

// Since the construction. Each value is correct, but the values are not read at one instant.
struct TlsCounters {
  std::uint64_t handshakes = 0;         // Complete handshakes.
  std::uint64_t resumed = 0;            // Handshakes that resumed a session; `handshakes` counts them too.
  std::uint64_t handshakes_failed = 0;  // Also connections that ended later by a violation of TLS.
  std::uint64_t paths_proved = 0;       // Paths whose peer has proved that it agreed on them within TLS.
  std::uint64_t paths_refused = 0;      // Paths that ended because their peer did not prove it.
  // Messages on signed or sealed paths that were not what the peer had sent. Each ended its connection.
  std::uint64_t path_messages_refused = 0;
  std::uint64_t reloads = 0;         // Changed files that are used.
  std::uint64_t reloads_failed = 0;  // Changed files that could not be used.
  // Valid signatures by TlsCertificate::sign and by keys in tokens, and calls that returned no valid signature.
  std::uint64_t signatures = 0;
  std::uint64_t signatures_failed = 0;
  std::uint64_t held_bytes = 0;  // Current use of TlsServerOptions::held_bytes_max, over all loops.
  std::uint64_t held_ended = 0;  // Connections that held_bytes_max ended.
  // With TlsKernel::automatic or required.
  std::uint64_t kernel_begun = 0;    // Connections for which the kernel encrypts, or has encrypted.
  std::uint64_t kernel_refused = 0;  // Connections for which it does not. The log and /connections have the reasons.
  std::uint64_t kernel_ended = 0;    // Connections that ended because the kernel cannot replace their keys.
};

// TLS of servers, for ServerOptions::security. Several servers may share one. Thread-safe.
//   hawser::TlsServer tls({.certificates = {{"server.pem", "server.key"}}});
//   hawser::Server server({.listen = "0.0.0.0:9000", .security = tls});
class TlsServer {
 public:
  // Reads no file: Server::start() does, and fails with the reason if a file cannot be used.
  explicit TlsServer(TlsServerOptions options);
  operator std::shared_ptr<transport::ServerSecurity>() const;
  // Reads the files now. Existing connections stay. After an error the server continues with the files that it has.
  Result<void> reload();
  TlsCounters counters() const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// TLS of clients, for ClientOptions::security and GrpcClientOptions::security. Clients that share one resume each
// other's sessions. Thread-safe.
class TlsClient {
 public:
  // Reads no file: the first connect() does, and fails with the reason if a file cannot be used.
  explicit TlsClient(TlsClientOptions options = {});
  operator std::shared_ptr<transport::ClientSecurity>() const;
  Result<void> reload();  // As TlsServer::reload().
  TlsCounters counters() const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// From now on, core dumps of this process do not contain the memory of OpenSSL: private keys, keys of connections,
// shared keys, and whatever other users of OpenSSL in the process keep in it. Released memory is wiped.
// docs/security.md says what core dumps contain nevertheless. Call it at the start of main(): it fails with
// invalid_argument if OpenSSL has allocated memory since the start of the program, and with limit_exceeded if the
// limits of the process leave fewer than 1 GiB of addresses. After an error, everything else works as before. There is
// no way back; later calls succeed. One thread calls it.
Result<void> exclude_tls_memory_from_core_dumps();

// Facts about a certificate, for tools.
struct TlsCertificateReport {
  std::string subject;
  std::string issuer;
  std::vector<std::string> names;  // Host names, addresses and URIs that it is valid for.
  std::string key;                 // Such as "EC 256 bits".
  std::int64_t begins = 0;         // Seconds since 1970.
  std::int64_t ends = 0;
  // Reasons why peers do not accept it at the time `now`, each with the remedy. Empty: none was found.
  std::vector<std::string> problems;
};

// The ciphers with which the kernel of this host can encrypt (kTLS), for tools.
struct TlsKernelReport {
  std::vector<std::string> ciphers;  // Such as "AES-128-GCM". Empty: none.
  std::string problem;               // Why not all ciphers, or none, can be used, with the remedy. Empty: all can.
};
// Tries each cipher on a connection of this host to itself. Does not load the module tls: without it, `problem` says
// so. Blocks the calling thread, for up to a second.
TlsKernelReport inspect_tls_kernel();

// Reads a certificate, and its key if there is one. A key in a token makes a trial signature. `host` is a name that the
// certificate should be valid for; empty: any. `now` is in seconds since 1970. Fails if a file cannot be read. Blocks
// the calling thread, which must not run a loop if the key is in a token.
Result<TlsCertificateReport> inspect_certificate(const TlsCertificate& certificate, const std::string& host,
                                                 std::int64_t now);

}  // namespace hawser
