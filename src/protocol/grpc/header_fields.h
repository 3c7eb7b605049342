#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/error.h"
#include "hawser/time.h"
#include "protocol/grpc/compression.h"

namespace hawser::protocol::grpc {

// The fields of a header block or of several blocks of one stream, as far as gRPC uses them.
struct HeaderFields {
  static constexpr int no_status = -2;
  // Fields that hold at most so much memory are not charged, and keep it for the next stream.
  static constexpr std::size_t free_bytes_max = 1024;

  std::string path;
  bool post = false;
  bool grpc_content = false;  // content-type is application/grpc, with any suffix.
  bool bad_timeout = false;
  bool bad_metadata = false;  // A field that can't be metadata, such as -bin without base64.
  bool too_many = false;      // More metadata than a call may have; pairs are missing.
  bool too_large = false;     // The list exceeds metadata_bytes_max; fields are missing.
  bool no_memory = false;     // The fields could not be charged; those with text are missing.
  std::optional<Duration> timeout;
  Encoding encoding = Encoding::identity;
  Encodings accepted;
  int http_status = 0;
  int grpc_status = no_status;  // -1: malformed.
  std::string grpc_message;
  std::vector<std::byte> metadata;  // Encoded as wire/metadata.h describes.
  std::size_t metadata_entries = 0;
  std::size_t list_bytes = 0;  // As SETTINGS_MAX_HEADER_LIST_SIZE counts.

  // ---- For requests that are not gRPC, if they are kept: `keep_plain`. Fields that come before the content type of a
  // request of gRPC are kept for nothing. ----
  bool keep_plain = false;
  std::string method;
  std::string authority;
  std::string plain;  // The names and the values of all other fields, one after another.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> plain_sizes;

  void clear() noexcept;
  // The memory that the fields hold.
  std::size_t held_bytes() const noexcept;
  // Releases the fields because they can't be charged.
  void refuse_memory() noexcept;
  // Adds a field that has been decoded. `list_bytes_max` is the limit of list_bytes.
  void add(std::string_view name, std::string_view value, std::size_t list_bytes_max);
  // The reason for which a request of gRPC with these fields must be refused, or nothing.
  std::optional<Error> fault(std::size_t list_bytes_max) const;

 private:
  void add_metadata(std::string_view name, std::string_view value);
  void append(std::string_view name, std::string_view value);
  void release_text() noexcept;
};

}  // namespace hawser::protocol::grpc
