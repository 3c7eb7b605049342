#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hawser::protocol::http2 {

// Finds requests that are malformed by RFC 9113, sections 8.1 to 8.3, field by field and byte by byte. nghttp2 could do
// that too, but it refuses each :authority that does not look like a host, and clients of gRPC send the path of a Unix
// socket there, or nothing. No I/O.
class RequestRules {
 public:
  // The value of a field without the spaces and tabs at its ends, which are not a part of it.
  static std::string_view without_spaces(std::string_view value) noexcept;

  // Sees the next field, without spaces at the ends of its value. `trailers`: of the block behind the body. Returns
  // false if the request is malformed. No field is ignored: a proxy may have added its own text to a value of the
  // client, and what decides about access must see it.
  bool add(std::string_view name, std::string_view value, bool trailers) noexcept;
  // The first block is complete.
  void end_head() noexcept;
  void add_body(std::size_t bytes) noexcept;
  // The client has ended the stream.
  void end() noexcept;
  // The block behind the body does not end the stream.
  void fail() noexcept { malformed_ = true; }
  bool malformed() const noexcept { return malformed_; }

 private:
  bool add_pseudo(std::string_view name, std::string_view value) noexcept;
  bool add_regular(std::string_view name, std::string_view value) noexcept;

  std::uint8_t seen_ = 0;  // The pseudo-header fields that have come, and the method CONNECT; a bit each.
  bool regular_ = false;   // A field has come that is not a pseudo-header field.
  bool malformed_ = false;
  std::optional<std::uint64_t> content_length_;
  std::uint64_t body_bytes_ = 0;
};

}  // namespace hawser::protocol::http2
