#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/metadata.h"
#include "protocol/baidu_std/proto_fields.h"

// The messages RpcMeta and StreamFrameMeta: what a PRPC and a STRM frame carry before their data.
namespace hawser::protocol::baidu_std {

enum class Compression : std::int32_t { none = 0, snappy = 1, gzip = 2, zlib = 3, lz4 = 4 };
enum class ContentType : std::int32_t { proto = 0, json = 1, proto_json = 2, proto_text = 3 };
enum class ChecksumType : std::int32_t { none = 0, crc32c = 1 };

// A checksum on the wire has exactly this size: bRPC ends the process if a peer sends another one.
inline constexpr std::size_t checksum_bytes = 4;

// Field number of RpcMeta::user_fields.
inline constexpr std::uint32_t user_fields_number = 9;

struct StreamSettings {
  // parse_meta() keeps no more of extra_stream_ids: the limit of what a call may have in addition to its first stream.
  static constexpr std::size_t extra_streams_max = 255;

  std::int64_t stream_id = 0;
  bool need_feedback = false;
  bool writable = false;
  // This library's extension, docs/decisions/0049: the sender knows END, StreamFrameMeta::result and the error of RST.
  // A server sets it if the client has. bRPC skips the field.
  bool extended = false;
  std::vector<std::int64_t> extra_ids = {};  // extra_stream_ids: the ids of further streams of the call.
  bool too_many = false;                     // Received: there were more than extra_streams_max.

  friend bool operator==(const StreamSettings&, const StreamSettings&) = default;
};

struct RequestMeta {
  std::string_view service;
  std::string_view method;
  std::optional<std::int64_t> log_id;
  std::optional<std::int64_t> trace_id;
  std::optional<std::int64_t> span_id;
  std::optional<std::int64_t> parent_span_id;
  std::string_view request_id;
  std::optional<std::int32_t> timeout_ms;

  friend bool operator==(const RequestMeta&, const RequestMeta&) = default;
};

struct ResponseMeta {
  std::int32_t error_code = 0;
  std::string_view error_text;

  friend bool operator==(const ResponseMeta&, const ResponseMeta&) = default;
};

// The views refer to the memory that was parsed.
struct RpcMeta {
  std::optional<RequestMeta> request = {};
  std::optional<ResponseMeta> response = {};
  std::int32_t compress_type = 0;
  std::int64_t correlation_id = 0;
  std::int32_t attachment_size = 0;
  bool chunked = false;  // chunk_info is present. No implementation supports it.
  std::string_view authentication_data = {};
  std::optional<StreamSettings> stream = {};
  std::int32_t content_type = 0;
  std::int32_t checksum_type = 0;
  std::string_view checksum_value = {};
  bool checksum_with_attachment = false;
  std::size_t user_fields = 0;  // Number of entries of user_fields. read_user_fields() gives them.
};

// Parses RpcMeta. Fails if the bytes are malformed or a required field is missing. Unknown fields are skipped.
Result<RpcMeta> parse_meta(Bytes bytes);

// Calls `use(key, value)` for each entry of user_fields in the meta `bytes`, which parse_meta() has accepted.
template <class Use>
void read_user_fields(Bytes bytes, Use use) {
  FieldReader reader(bytes);
  for (FieldReader::Field field; reader.next(field);) {
    if (!field.is(user_fields_number, WireType::bytes)) continue;
    std::string_view key;
    std::string_view value;
    FieldReader entry(field.bytes);
    for (FieldReader::Field part; entry.next(part);) {
      if (part.is(1, WireType::bytes)) key = part.text();
      if (part.is(2, WireType::bytes)) value = part.text();
    }
    use(key, value);
  }
}

// Encodes RpcMeta in two steps: rpc_meta_bytes(), then write_meta() into memory of that size. Writes the fields that
// bRPC always writes, even if they have their default values. `user_fields` may be null. Returns the position of the
// checksum's value, which is checksum_bytes long if checksum_type is not 0.
std::size_t meta_bytes(const RpcMeta& meta, const Metadata* user_fields) noexcept;
std::byte* write_meta(std::byte* to, const RpcMeta& meta, const Metadata* user_fields) noexcept;

// END is this library's own: the sender writes no more, and still reads.
enum class StreamFrameType : std::int32_t { unknown = 0, reset = 1, close = 2, data = 3, feedback = 4, end = 5 };

struct StreamFrameMeta {
  std::int64_t stream_id = 0;         // The receiver's id.
  std::int64_t source_stream_id = 0;  // The sender's id.
  StreamFrameType type = StreamFrameType::unknown;
  bool has_continuation = false;
  std::int64_t consumed_size = 0;  // Feedback: all bytes that the sender has consumed since the start.
  // This library's own.
  bool result = false;          // DATA is the handler's result, and no item.
  std::int32_t error_code = 0;  // RST: the call's error, as ResponseMeta has it. 0: none is given.
  std::string_view error_text = {};

  friend bool operator==(const StreamFrameMeta&, const StreamFrameMeta&) = default;
};

Result<StreamFrameMeta> parse_stream_meta(Bytes bytes);
std::size_t stream_meta_bytes(const StreamFrameMeta& meta) noexcept;
std::byte* write_stream_meta(std::byte* to, const StreamFrameMeta& meta) noexcept;

}  // namespace hawser::protocol::baidu_std
