#pragma once

#include <string>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser::detail {

// Converts the arguments and the result of one method between JSON and the bytes of the method's encoding. Immutable,
// thus thread-safe.
class JsonTranscoder {
 public:
  virtual ~JsonTranscoder() = default;
  // Returns the body of a request. `json` is one JSON object; empty text stands for an empty object.
  virtual Result<Buffer> arguments_from_json(std::string_view json) const = 0;
  // `body` and `payload` are those of a reply, without its attachment.
  virtual Result<std::string> result_to_json(Bytes body, Bytes payload) const = 0;
  // The encoding of the bodies: "proto" if they are exactly one protobuf message, "hawser" for the library's own codec.
  virtual std::string_view encoding() const noexcept = 0;
};

}  // namespace hawser::detail
