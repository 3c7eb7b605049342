#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rpc/port/http_streams.h"

namespace hawser::protocol::http {

// Collects the header fields of a response over HTTP/2. The memory is reused. No I/O.
class StreamHead {
 public:
  // Begins with the field date.
  void begin(std::int64_t unix_seconds);
  // Adds a field with its name in lower case. Left out if the name is not a token, the value has a control character,
  // or the field is not that of a handler: content-length, date, and those that HTTP/2 forbids.
  void add(std::string_view name, std::string_view value);
  void add_type(std::string_view type);
  void add_length(std::uint64_t bytes);
  // Valid until the next change.
  std::span<const rpc::HttpField> fields();

 private:
  void append(std::string_view name, std::string_view value);

  std::string text_;
  std::vector<std::pair<std::size_t, std::size_t>> sizes_;
  std::vector<rpc::HttpField> fields_;
  std::int64_t date_seconds_ = -1;
  std::string date_;
};

}  // namespace hawser::protocol::http
