#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "hawser/error.h"

namespace hawser::protocol::http {

// How much of the body of an upload is written. A body of known length ends with its last byte, or with a last part
// that is empty; a body of unknown length is chunked, and ends with the last part.
class UploadBody {
 public:
  explicit UploadBody(std::optional<std::uint64_t> length) noexcept
      : length_(length), left_(length.value_or(0)), done_(length == 0) {}

  bool done() const noexcept { return done_; }
  bool chunked() const noexcept { return !length_; }
  // Why the next part can't have that many bytes. `last`: it ends the body.
  std::optional<Error> misuse(std::size_t bytes, bool last) const;
  // Whether the part has something to be sent.
  bool sends(std::size_t bytes, bool last) const noexcept { return bytes != 0 || (last && chunked()); }
  // A part that has no misuse is being sent.
  void add(std::size_t bytes, bool last) noexcept {
    if (!chunked()) left_ -= bytes;
    done_ = last || (!chunked() && left_ == 0);
  }

 private:
  const std::optional<std::uint64_t> length_;
  std::uint64_t left_;  // Bytes of a body of known length that were not written.
  bool done_;
};

}  // namespace hawser::protocol::http
