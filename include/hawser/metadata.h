#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/bytes.h"

namespace hawser {

// Key-value pairs that travel beside a call or its reply: at most 64, keys of at most 255 bytes, 65,535 bytes in all.
// More is an error of the call (limit_exceeded).
using Metadata = std::vector<std::pair<std::string, std::string>>;

// Received metadata, read in place; lives as long as the message it belongs to.
class MetadataView {
 public:
  MetadataView() noexcept = default;
  // `bytes` are well-formed, as the session checked on receipt.
  explicit MetadataView(Bytes bytes) noexcept : bytes_(bytes) {}

  bool empty() const noexcept { return bytes_.empty(); }
  // As on the wire.
  Bytes bytes() const noexcept { return bytes_; }
  // The value of the first entry of that key.
  std::optional<std::string_view> find(std::string_view key) const noexcept;
  // A copy of all entries, in order.
  Metadata copy() const;

 private:
  Bytes bytes_;
};

}  // namespace hawser
