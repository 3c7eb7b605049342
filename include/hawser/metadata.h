#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/bytes.h"

namespace hawser {

// Pairs of key and value that a request or a reply carries: at most 64 pairs, keys of at most 255 bytes, 65,535 bytes
// in total. More fails the call with limit_exceeded.
using Metadata = std::vector<std::pair<std::string, std::string>>;

// Received metadata, read in place. Valid as long as its message.
class MetadataView {
 public:
  MetadataView() noexcept = default;
  // `bytes` must be well-formed; the session checks this on receipt.
  explicit MetadataView(Bytes bytes) noexcept : bytes_(bytes) {}

  bool empty() const noexcept { return bytes_.empty(); }
  // The encoded metadata, as on the wire.
  Bytes bytes() const noexcept { return bytes_; }
  // The value of the first entry with that key; empty if there is none.
  std::optional<std::string_view> find(std::string_view key) const noexcept;
  // A copy of all entries, in order.
  Metadata copy() const;

 private:
  Bytes bytes_;
};

}  // namespace hawser
