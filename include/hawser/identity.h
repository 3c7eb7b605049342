#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hawser {

// Who the peer of a connection, or the caller of one call, is, as far as it has proved that: the result of
// Context::identity(). A copy is independent of the call.
struct Identity {
  enum class Kind : std::uint8_t {
    none,         // Nothing is proved. The address of the peer proves nothing.
    unix_peer,    // The kernel named the process (SO_PEERCRED): a Unix socket, or shared memory.
    certificate,  // The peer holds the key of a certificate that a trusted authority signed (TLS).
    token,        // The call carried a token that an authenticator accepted.
    shared_key,   // The peer holds a key that this process has, too (TLS).
  };
  // The kernel gives this number to no user and no group.
  static constexpr std::uint32_t no_user = 0xffff'ffff;

  Kind kind = Kind::none;
  // unix_peer: the process that connected, its effective user and group at that time. The process may have passed the
  // socket to another one or may have ended, and its number may belong to another process since. `pid` is 0 if the
  // process is in a PID namespace that this process does not see.
  std::int32_t pid = 0;
  std::uint32_t uid = no_user;
  std::uint32_t gid = no_user;
  // certificate: the distinguished name of RFC 4514, such as "CN=storage-7". token: claim "sub". shared_key: its name.
  std::string subject = {};
  // certificate: the distinguished name of the authority that signed it. token: the claim "iss".
  std::string issuer = {};
  // certificate: the subject alternative names in the form "DNS:a.example", "IP:10.0.0.1", "URI:spiffe://a/b".
  std::vector<std::string> alt_names = {};
  // The SPIFFE id, such as "spiffe://example.org/storage". Empty unless the certificate has exactly one URI and it is a
  // SPIFFE id, or the token has one as its subject.
  std::string spiffe_id = {};
  // token: all claims as text; a claim that is a list has one entry for each element.
  std::vector<std::pair<std::string, std::string>> claims = {};

  explicit operator bool() const noexcept { return kind != Kind::none; }
  // True if there is a claim of that name and value.
  bool has_claim(std::string_view name, std::string_view value) const noexcept;
  // One line of printable ASCII for logs and pages: "unix uid 1000 gid 1000 pid 4711", "certificate CN=storage-7",
  // "token alice", "nobody". Other characters are escaped, at most 256 bytes.
  std::string text() const;
};

std::string_view to_string(Identity::Kind kind) noexcept;
// The identity of a peer that has proved nothing.
const Identity& no_identity() noexcept;

}  // namespace hawser
