#include "kv/log/log_format.h"

#include <utility>

#include "base/byte_fields.h"
#include "hawser/bytes.h"
#include "hawser/crc32c.h"

namespace hawser::kv {
namespace {

constexpr std::string_view log_magic = "HWKVLOG\n";
constexpr std::uint32_t log_version = 2;
constexpr std::size_t record_frame_bytes = 8;  // Bytes of the content, CRC of these four bytes and of the content.
constexpr std::uint32_t synced_content_bytes = 17;

void append_le(std::string& out, std::integral auto value) {
  std::byte bytes[sizeof value];
  store_le(bytes, value);
  out.append(reinterpret_cast<const char*>(bytes), sizeof value);
}

}  // namespace

std::string log_header(const LogHeader& header) {
  std::string text(log_magic);
  append_le(text, log_version);
  append_le(text, crc32c(as_bytes(text)));
  append_le(text, header.log_first);
  append_le(text, header.log_second);
  append_le(text, header.shard);
  append_le(text, header.shards);
  append_le(text, header.file);
  append_le(text, crc32c(as_bytes(text)));
  return text;
}

void append_record(std::string& out, const EffectRecord& record) {
  const std::size_t begin = out.size();
  append_le(out, std::uint64_t{0});  // The length and the CRC follow at the end.
  append_le(out, static_cast<std::uint8_t>(record.kind));
  switch (record.kind) {
    case LogKind::set:
      append_le(out, record.expires_at);
      append_le(out, record.version);
      append_le(out, static_cast<std::uint32_t>(record.key.size()));
      out.append(record.key).append(record.value);
      break;
    case LogKind::expiry:
      append_le(out, record.expires_at);
      out.append(record.key);
      break;
    case LogKind::remove: out.append(record.key); break;
    case LogKind::clear: break;
    case LogKind::synced:
      append_le(out, record.offset);
      append_le(out, record.file);
      break;
  }
  std::byte* const frame = reinterpret_cast<std::byte*>(out.data() + begin);
  store_le(frame, static_cast<std::uint32_t>(out.size() - begin - record_frame_bytes));
  const Bytes content = as_bytes(std::string_view(out).substr(begin + record_frame_bytes));
  store_le(frame + 4, crc32c(crc32c(Bytes(frame, 4)), content));
}

std::string synced_record(const LogHeader& header, std::uint64_t offset) {
  std::string text;
  append_record(text, {.kind = LogKind::synced, .offset = offset, .file = header.file});
  return text;
}

Result<LogHeader> LogReader::header() {
  if (!bytes_.starts_with(log_magic)) {
    return fail(ErrorCode::protocol_error, "it is not a log of hawser-kv: it does not begin with HWKVLOG");
  }
  // The first 16 bytes are the same in all versions.
  const auto damaged = [] {
    return fail(ErrorCode::protocol_error, "its header is damaged: restore the file from a copy");
  };
  ByteReader reader(as_bytes(bytes_.substr(log_magic.size())));
  const auto version = reader.number<std::uint32_t>();
  const auto checksum = reader.number<std::uint32_t>();
  if (!reader.complete() || checksum != crc32c(as_bytes(bytes_.substr(0, log_magic.size() + 4)))) return damaged();
  if (version != log_version) {
    return fail(ErrorCode::protocol_error,
                "it has version " + std::to_string(version) + " of the format, and this program reads version " +
                    std::to_string(log_version) + ": read it with the program that wrote it, or use another folder");
  }
  LogHeader header;
  header.log_first = reader.number<std::uint64_t>();
  header.log_second = reader.number<std::uint64_t>();
  header.shard = reader.number<std::uint32_t>();
  header.shards = reader.number<std::uint32_t>();
  header.file = reader.number<std::uint64_t>();
  const auto last = reader.number<std::uint32_t>();
  if (!reader.complete() || last != crc32c(as_bytes(bytes_.substr(0, log_header_bytes - 4)))) return damaged();
  at_ = log_header_bytes;
  file_ = header.file;
  return header;
}

std::optional<EffectRecord> LogReader::record_at(std::size_t offset, std::size_t& bytes) const {
  const Bytes left = as_bytes(bytes_.substr(offset));
  if (left.size() < record_frame_bytes + 1) return std::nullopt;
  ByteReader frame(left);
  const std::size_t size = frame.number<std::uint32_t>();
  const auto checksum = frame.number<std::uint32_t>();
  if (size == 0 || size > left.size() - record_frame_bytes) return std::nullopt;
  const Bytes content = left.subspan(record_frame_bytes, size);
  if (crc32c(crc32c(left.first(4)), content) != checksum) return std::nullopt;
  ByteReader reader(content);
  EffectRecord record{.kind = static_cast<LogKind>(reader.number<std::uint8_t>())};
  switch (record.kind) {
    case LogKind::set:
      record.expires_at = reader.number<std::int64_t>();
      record.version = reader.number<std::uint64_t>();
      record.key = as_text(reader.bytes(reader.number<std::uint32_t>()));
      record.value = as_text(reader.rest());
      break;
    case LogKind::expiry:
      record.expires_at = reader.number<std::int64_t>();
      record.key = as_text(reader.rest());
      break;
    case LogKind::remove: record.key = as_text(reader.rest()); break;
    case LogKind::clear: break;
    case LogKind::synced:
      record.offset = reader.number<std::uint64_t>();
      record.file = reader.number<std::uint64_t>();
      break;
    default: return std::nullopt;
  }
  if (!reader.finished()) return std::nullopt;
  bytes = record_frame_bytes + size;
  return record;
}

// Finds a later record which shows that the byte at `offset` had been on the disk. Bytes of a value may look like such
// a record. They do not know the number of the file, unless they are a copy of its beginning, and then they name a
// place before the record with this value.
std::optional<std::size_t> LogReader::synced_behind(std::size_t offset) const {
  for (std::size_t i = offset + 1; i + record_frame_bytes + synced_content_bytes <= bytes_.size(); ++i) {
    if (load_le<std::uint32_t>(as_bytes(bytes_.substr(i, 4)).data()) != synced_content_bytes) continue;
    std::size_t bytes = 0;
    const std::optional<EffectRecord> found = record_at(i, bytes);
    if (found && found->kind == LogKind::synced && found->file == file_ && found->offset >= offset) return i;
  }
  return std::nullopt;
}

Result<std::optional<EffectRecord>> LogReader::next() {
  if (at_ == bytes_.size()) return std::nullopt;
  std::size_t bytes = 0;
  std::optional<EffectRecord> record = record_at(at_, bytes);
  const bool displaced = record && record->kind == LogKind::synced && (record->file != file_ || record->offset != at_);
  if (record && !displaced) {
    at_ += bytes;
    return record;
  }
  const std::optional<std::size_t> synced = displaced ? at_ : synced_behind(at_);
  if (!synced) return std::nullopt;
  std::size_t marker_bytes = 0;
  const EffectRecord marker = *record_at(*synced, marker_bytes);
  const std::string restore = ": restore it from a copy";
  if (marker.offset == *synced) {
    return fail(ErrorCode::protocol_error,
                "it is damaged at offset " + std::to_string(at_) + ", before data that had been on the disk" + restore);
  }
  return fail(ErrorCode::protocol_error, "bytes were inserted or removed " +
                                             std::string(displaced ? "before" : "at or behind") + " offset " +
                                             std::to_string(at_) + ": the record at offset " + std::to_string(*synced) +
                                             " was written at offset " + std::to_string(marker.offset) + restore);
}

}  // namespace hawser::kv
