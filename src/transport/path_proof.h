#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "hawser/bytes.h"

namespace hawser::transport {

// How the messages on a path beside a protected stream are protected. Each level includes those below. The numbers are
// those of HELLO.
enum class PathProtection : std::uint8_t {
  none = 0,
  // Both sides prove by their first messages on the path that they hold the keys of the stream on which they agreed on
  // it. The messages after that are neither signed nor encrypted.
  authenticated = 1,
  // Each later message has a number and a tag: messages that were changed, forged, repeated, reordered or dropped end
  // the connection.
  signed_messages = 2,
  sealed_messages = 3,  // They are encrypted, too.
};

constexpr bool known(std::uint8_t protection) noexcept {
  return protection >= static_cast<std::uint8_t>(PathProtection::authenticated) &&
         protection <= static_cast<std::uint8_t>(PathProtection::sealed_messages);
}
// A literal for reports.
constexpr std::string_view to_string(PathProtection protection) noexcept {
  switch (protection) {
    case PathProtection::none: return "";
    case PathProtection::authenticated: return "authenticated";
    case PathProtection::signed_messages: return "signed";
    case PathProtection::sealed_messages: return "sealed";
  }
  return "";
}

// The terms of a path, which both sides know from their HELLOs. The views are valid during a call.
struct PathTerms {
  std::string_view transport;
  Bytes offer;      // The client's.
  Bytes selection;  // The parameters of the server's half.
  Bytes answer;     // The parameters of the client's half.
  PathProtection protection = PathProtection::authenticated;
};

// One side's proof on one path. Its values depend on the keys of the stream, the terms of the path and the direction,
// so that no other path, no other connection and not the opposite direction has them.
class PathProof {
 public:
  static constexpr std::size_t bytes = 32;

  virtual ~PathProof() = default;
  // The value that this side sends; `bytes` long. Valid as long as this object.
  virtual Bytes own() const noexcept = 0;
  // Returns true if `theirs` is the value that the peer must send. Takes the same time for all values of a length.
  // Called once; a peer that sends no value is passed as no bytes.
  virtual bool verify(Bytes theirs) noexcept = 0;
};

// Signs or encrypts the parts of the messages on one path. Each direction has a key, and a new one for each generation.
// One thread at a time.
class PathCipher {
 public:
  static constexpr std::size_t tag_bytes = 16;

  // Identifies a tag. No two calls of seal() have the same values.
  struct Place {
    std::uint16_t generation = 0;
    std::uint64_t message = 0;  // Its number, from 0, which continues through the generations.
    std::uint8_t part = 0;      // The part's number within the message.
  };

  virtual ~PathCipher() = default;
  // True if parts are encrypted; false if they are signed only.
  virtual bool encrypts() const noexcept = 0;
  // Writes the tag of `context` and of the pieces to `tag`. Encrypts the pieces, one behind the other, to `to`, which
  // may be their own memory; without encryption `to` is not used. `place.generation` is this side's current one. Throws
  // std::bad_alloc if the library of ciphers fails.
  virtual void seal(const Place& place, Bytes context, std::span<const ConstBuffer> pieces, std::byte* to,
                    std::byte* tag) = 0;
  // Returns true if `tag` is that of `context` and of `sealed`, which is decrypted to `to` as in seal(). Otherwise the
  // memory at `to` has any contents. `place.generation` is the peer's current one or the next.
  [[nodiscard]] virtual bool open(const Place& place, Bytes context, Bytes sealed, std::byte* to,
                                  const std::byte* tag) noexcept = 0;
  // Begins the next generation of this side's keys. Throws std::bad_alloc if the library of ciphers fails.
  virtual void begin_generation() = 0;
  // Begins the peer's next generation. open() knows the keys of the one before no more.
  virtual void begin_peer_generation() noexcept = 0;
  // Counts a message that ended the connection.
  virtual void count_refused() noexcept = 0;
};

// The protection of one side of one path.
struct PathSecurity {
  std::unique_ptr<PathProof> proof;
  std::unique_ptr<PathCipher> cipher;  // Null with PathProtection::authenticated.
};

}  // namespace hawser::transport
