#include "protocol/baidu_std/rpc_meta.h"

#include <string>
#include <utility>

#include "base/decimal_text.h"

namespace hawser::protocol::baidu_std {
namespace {

using Field = FieldReader::Field;

constexpr auto varint = WireType::varint;
constexpr auto bytes_type = WireType::bytes;

// Fields of this library's own, which bRPC skips: in StreamSettings, and in StreamFrameMeta.
constexpr std::uint32_t extended_number = 1000;
constexpr std::uint32_t result_number = 1000;
constexpr std::uint32_t error_number = 1001;

std::unexpected<Error> malformed_meta(std::string what) {
  return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error, std::move(what)));
}

std::int64_t signed64(std::uint64_t value) noexcept { return static_cast<std::int64_t>(value); }
std::int32_t signed32(std::uint64_t value) noexcept { return static_cast<std::int32_t>(value); }

// The flags say which required fields were present; a submessage that occurs twice is merged.
struct Required {
  bool service = false;
  bool method = false;
  bool stream_id = false;
  bool chunk_stream = false;
  bool chunk = false;
};

bool parse_request(Bytes bytes, RequestMeta& meta, Required& seen) noexcept {
  FieldReader reader(bytes);
  for (Field field; reader.next(field);) {
    switch (field.number) {
      case 1:
        if (field.type == bytes_type) meta.service = field.text(), seen.service = true;
        break;
      case 2:
        if (field.type == bytes_type) meta.method = field.text(), seen.method = true;
        break;
      case 3:
        if (field.type == varint) meta.log_id = signed64(field.value);
        break;
      case 4:
        if (field.type == varint) meta.trace_id = signed64(field.value);
        break;
      case 5:
        if (field.type == varint) meta.span_id = signed64(field.value);
        break;
      case 6:
        if (field.type == varint) meta.parent_span_id = signed64(field.value);
        break;
      case 7:
        if (field.type == bytes_type) meta.request_id = field.text();
        break;
      case 8:
        if (field.type == varint) meta.timeout_ms = signed32(field.value);
        break;
      default: break;
    }
  }
  return reader.ok();
}

bool parse_response(Bytes bytes, ResponseMeta& meta) noexcept {
  FieldReader reader(bytes);
  for (Field field; reader.next(field);) {
    if (field.is(1, varint)) meta.error_code = signed32(field.value);
    if (field.is(2, bytes_type)) meta.error_text = field.text();
  }
  return reader.ok();
}

void add_extra(StreamSettings& stream, std::uint64_t id) {
  if (stream.extra_ids.size() >= StreamSettings::extra_streams_max) {
    stream.too_many = true;
  } else {
    stream.extra_ids.push_back(signed64(id));
  }
}

bool parse_stream(Bytes bytes, StreamSettings& stream, Required& seen) {
  FieldReader reader(bytes);
  for (Field field; reader.next(field);) {
    if (field.is(1, varint)) stream.stream_id = signed64(field.value), seen.stream_id = true;
    if (field.is(2, varint)) stream.need_feedback = field.value != 0;
    if (field.is(3, varint)) stream.writable = field.value != 0;
    if (field.is(4, varint)) add_extra(stream, field.value);
    if (field.is(extended_number, varint)) stream.extended = field.value != 0;
    if (field.is(4, bytes_type)) {  // Packed.
      FieldReader packed(field.bytes);
      for (std::uint64_t id = 0; packed.next_packed(id);) add_extra(stream, id);
      if (!packed.ok()) return false;
    }
  }
  return reader.ok();
}

bool parse_chunk(Bytes bytes, Required& seen) noexcept {
  FieldReader reader(bytes);
  for (Field field; reader.next(field);) {
    if (field.is(1, varint)) seen.chunk_stream = true;
    if (field.is(2, varint)) seen.chunk = true;
  }
  return reader.ok();
}

bool check_entry(Bytes bytes) noexcept {
  FieldReader reader(bytes);
  for (Field field; reader.next(field);) {
  }
  return reader.ok();
}

template <class Fields>
void describe_stream(Fields& fields, const StreamSettings& stream) noexcept {
  fields.varint(1, static_cast<std::uint64_t>(stream.stream_id));
  fields.varint(2, stream.need_feedback ? 1 : 0);
  fields.varint(3, stream.writable ? 1 : 0);
  for (const std::int64_t id : stream.extra_ids) fields.varint(4, static_cast<std::uint64_t>(id));
  if (stream.extended) fields.varint(extended_number, 1);
}

template <class Fields>
void describe_response(Fields& fields, const ResponseMeta& response) noexcept {
  fields.varint(1, static_cast<std::uint64_t>(std::int64_t{response.error_code}));
  if (!response.error_text.empty()) fields.text(2, response.error_text);
}

template <class Fields>
void describe_request(Fields& fields, const RequestMeta& request) noexcept {
  fields.text(1, request.service);
  fields.text(2, request.method);
  if (request.log_id) fields.varint(3, static_cast<std::uint64_t>(*request.log_id));
  if (request.trace_id) fields.varint(4, static_cast<std::uint64_t>(*request.trace_id));
  if (request.span_id) fields.varint(5, static_cast<std::uint64_t>(*request.span_id));
  if (request.parent_span_id) fields.varint(6, static_cast<std::uint64_t>(*request.parent_span_id));
  if (!request.request_id.empty()) fields.text(7, request.request_id);
  // Negative numbers of 32 bits have ten bytes.
  if (request.timeout_ms) fields.varint(8, static_cast<std::uint64_t>(std::int64_t{*request.timeout_ms}));
}

// Writes everything but checksum_value, which is the last field of the message.
template <class Fields>
void describe(Fields& fields, const RpcMeta& meta, const Metadata* user_fields) noexcept {
  if (meta.request) {
    fields.message(1, [&](auto& inner) { describe_request(inner, *meta.request); });
  }
  if (meta.response) {
    fields.message(2, [&](auto& inner) { describe_response(inner, *meta.response); });
  }
  fields.varint(3, static_cast<std::uint64_t>(std::int64_t{meta.compress_type}));
  fields.varint(4, static_cast<std::uint64_t>(meta.correlation_id));
  if (meta.attachment_size > 0) fields.varint(5, static_cast<std::uint64_t>(meta.attachment_size));
  if (!meta.authentication_data.empty()) fields.text(7, meta.authentication_data);
  if (meta.stream) {
    fields.message(8, [&](auto& inner) { describe_stream(inner, *meta.stream); });
  }
  if (user_fields != nullptr) {
    for (const auto& [key, value] : *user_fields) {
      fields.message(user_fields_number, [&](auto& inner) {
        inner.text(1, key);
        inner.text(2, value);
      });
    }
  }
  fields.varint(10, static_cast<std::uint64_t>(std::int64_t{meta.content_type}));
  fields.varint(11, static_cast<std::uint64_t>(std::int64_t{meta.checksum_type}));
  if (meta.checksum_with_attachment) fields.varint(13, 1);
}

constexpr char no_checksum[checksum_bytes] = {};

std::string_view checksum_room(const RpcMeta& meta) noexcept {
  return {no_checksum, meta.checksum_type == 0 ? 0 : checksum_bytes};
}

}  // namespace

Result<RpcMeta> parse_meta(Bytes bytes) {
  Result<RpcMeta> result(std::in_place);
  RpcMeta& meta = *result;
  Required seen;
  bool ok = true;
  FieldReader reader(bytes);
  for (Field field; ok && reader.next(field);) {
    const bool number = field.type == varint;
    const bool data = field.type == bytes_type;
    switch (field.number) {
      case 1:
        if (data) ok = parse_request(field.bytes, meta.request ? *meta.request : meta.request.emplace(), seen);
        break;
      case 2:
        if (data) ok = parse_response(field.bytes, meta.response ? *meta.response : meta.response.emplace());
        break;
      case 3:
        if (number) meta.compress_type = signed32(field.value);
        break;
      case 4:
        if (number) meta.correlation_id = signed64(field.value);
        break;
      case 5:
        if (number) meta.attachment_size = signed32(field.value);
        break;
      case 6:
        if (data) meta.chunked = true, ok = parse_chunk(field.bytes, seen);
        break;
      case 7:
        if (data) meta.authentication_data = field.text();
        break;
      case 8:
        if (data) ok = parse_stream(field.bytes, meta.stream ? *meta.stream : meta.stream.emplace(), seen);
        break;
      case user_fields_number:
        if (data) ++meta.user_fields, ok = check_entry(field.bytes);
        break;
      case 10:
        if (number) meta.content_type = signed32(field.value);
        break;
      case 11:
        if (number) meta.checksum_type = signed32(field.value);
        break;
      case 12:
        if (data) meta.checksum_value = field.text();
        break;
      case 13:
        if (number) meta.checksum_with_attachment = field.value != 0;
        break;
      default: break;
    }
  }
  if (!ok || !reader.ok()) [[unlikely]]
    return malformed_meta("malformed RpcMeta of " + count_text(bytes.size(), "byte") + " in a baidu_std frame");
  if (meta.request && !(seen.service && seen.method)) [[unlikely]]
    return malformed_meta("RpcMeta of a request has no service_name or no method_name");
  if (meta.stream && !seen.stream_id) [[unlikely]]
    return malformed_meta("RpcMeta has stream_settings without a stream_id");
  if (meta.chunked && !(seen.chunk_stream && seen.chunk)) [[unlikely]]
    return malformed_meta("RpcMeta has chunk_info without its ids");
  return result;
}

std::size_t meta_bytes(const RpcMeta& meta, const Metadata* user_fields) noexcept {
  FieldSizer sizer;
  describe(sizer, meta, user_fields);
  sizer.text(12, checksum_room(meta));
  return sizer.bytes();
}

std::byte* write_meta(std::byte* to, const RpcMeta& meta, const Metadata* user_fields) noexcept {
  FieldWriter writer(to);
  describe(writer, meta, user_fields);
  const std::string_view room = checksum_room(meta);
  writer.text(12, room);
  return writer.position() - room.size();
}

Result<StreamFrameMeta> parse_stream_meta(Bytes bytes) {
  StreamFrameMeta meta;
  bool id = false;
  bool ok = true;
  FieldReader reader(bytes);
  for (Field field; ok && reader.next(field);) {
    if (field.is(1, varint)) meta.stream_id = signed64(field.value), id = true;
    if (field.is(2, varint)) meta.source_stream_id = signed64(field.value);
    if (field.is(3, varint)) {
      const std::int32_t type = signed32(field.value);
      meta.type = type >= 1 && type <= 5 ? static_cast<StreamFrameType>(type) : StreamFrameType::unknown;
    }
    if (field.is(4, varint)) meta.has_continuation = field.value != 0;
    if (field.is(5, bytes_type)) {
      FieldReader feedback(field.bytes);
      for (Field part; feedback.next(part);) {
        if (part.is(1, varint)) meta.consumed_size = signed64(part.value);
      }
      ok = feedback.ok();
    }
    if (field.is(result_number, varint)) meta.result = field.value != 0;
    if (field.is(error_number, bytes_type)) {
      ResponseMeta error;
      ok = parse_response(field.bytes, error);
      meta.error_code = error.error_code;
      meta.error_text = error.error_text;
    }
  }
  if (!ok || !reader.ok() || !id) [[unlikely]]
    return malformed_meta("malformed StreamFrameMeta of " + count_text(bytes.size(), "byte") + " in a STRM frame");
  return meta;
}

namespace {

template <class Fields>
void describe(Fields& fields, const StreamFrameMeta& meta) noexcept {
  fields.varint(1, static_cast<std::uint64_t>(meta.stream_id));
  fields.varint(2, static_cast<std::uint64_t>(meta.source_stream_id));
  fields.varint(3, static_cast<std::uint64_t>(meta.type));
  if (meta.has_continuation) fields.varint(4, 1);
  if (meta.type == StreamFrameType::feedback) {
    fields.message(5, [&](auto& inner) { inner.varint(1, static_cast<std::uint64_t>(meta.consumed_size)); });
  }
  if (meta.result) fields.varint(result_number, 1);
  if (meta.error_code != 0) {
    fields.message(error_number, [&](auto& inner) { describe_response(inner, {meta.error_code, meta.error_text}); });
  }
}

}  // namespace

std::size_t stream_meta_bytes(const StreamFrameMeta& meta) noexcept {
  FieldSizer sizer;
  describe(sizer, meta);
  return sizer.bytes();
}

std::byte* write_stream_meta(std::byte* to, const StreamFrameMeta& meta) noexcept {
  FieldWriter writer(to);
  describe(writer, meta);
  return writer.position();
}

}  // namespace hawser::protocol::baidu_std
