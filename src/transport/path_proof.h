#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "hawser/bytes.h"

namespace hawser::transport {

// How the messages on a path beside a protected stream are protected. The numbers are those of HELLO.
enum class PathProtection : std::uint8_t {
  none = 0,
  // Both sides prove by their first messages on the path that they hold the keys of the stream on which they agreed on
  // it. The messages after that are neither signed nor encrypted.
  authenticated = 1,
};

// The level that this version demands, as HELLO carries it.
inline constexpr auto demanded_protection = static_cast<std::uint8_t>(PathProtection::authenticated);

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

}  // namespace hawser::transport
