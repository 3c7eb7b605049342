#include "observe/record_format.h"

#include <utility>

#include "base/byte_fields.h"
#include "hawser/crc32c.h"
#include "wire/metadata.h"

namespace hawser::observe {
namespace {

constexpr std::string_view magic = "HAWSREC\n";
// Version 2 added streams. A record without streams is the same in both.
constexpr std::uint32_t version = 2;
constexpr std::uint32_t version_least = 1;
constexpr std::uint32_t version_of_streams = 2;
constexpr std::size_t header_bytes = recording_header_bytes;
constexpr std::size_t frame_bytes = record_frame_bytes;
constexpr std::uint16_t has_checksum = 1;
constexpr std::uint32_t is_truncated = 1;

std::uint32_t frame_checksum(Bytes length, Bytes content) noexcept { return crc32c(crc32c(length), content); }

void append(std::string& out, Bytes bytes) { out += as_text(bytes); }

Bytes sized(ByteReader& reader) { return reader.bytes(reader.number<std::uint32_t>()); }

// Returns why the events contradict each other; empty if they do not.
std::string_view fault_of(Bytes events) noexcept {
  StreamEvents reader(events);
  Duration last{};
  bool ended = false;
  while (const std::optional<StreamEvent> event = reader.next()) {
    if (event->at < last) return "the items of a record are not in the order of their times";
    if (event->at > recording_time_max) return "an item has a time of more than 10 years after its call began";
    last = event->at;
    if (ended && event->kind != StreamEvent::Kind::handler_item) return "an item of a caller follows its end";
    ended |= event->kind == StreamEvent::Kind::caller_end;
  }
  return reader.malformed() ? "the items of a record are malformed" : "";
}

}  // namespace

std::size_t record_content_bytes(Bytes frame) noexcept {
  return frame.size() < frame_bytes ? 0 : ByteReader(frame).number<std::uint32_t>();
}

std::string recording_header() {
  ByteWriter header;
  header.bytes(as_bytes(magic)).number(version);
  header.number(crc32c(header.written()));
  return std::string(as_text(header.written()));
}

void append_record(std::string& out, const RecordedCall& call) {
  ByteWriter content;
  content.number(static_cast<std::int64_t>(call.at.count()))
      .number(static_cast<std::int64_t>(call.duration.count()))
      .number(static_cast<std::uint16_t>(call.outcome))
      .number(call.reply_checksum ? has_checksum : std::uint16_t{0})
      .number(call.reply_checksum.value_or(0))
      .number(call.reply_bytes);
  for (const Bytes part :
       {as_bytes(call.method), as_bytes(call.protocol), call.metadata, call.body, call.payload, call.attachment}) {
    content.number(static_cast<std::uint32_t>(part.size())).bytes(part);
  }
  if (call.streams) {
    content.number(call.truncated ? is_truncated : 0U)
        .number(static_cast<std::uint32_t>(call.events.size()))
        .bytes(call.events);
  }
  ByteWriter frame;
  frame.number(static_cast<std::uint32_t>(content.size()));
  frame.number(frame_checksum(frame.written(), content.written()));
  append(out, frame.written());
  append(out, content.written());
}

void append_event(std::string& events, const StreamEvent& event) {
  ByteWriter out;
  out.number(static_cast<std::uint8_t>(event.kind)).number(static_cast<std::int64_t>(event.at.count()));
  if (event.kind == StreamEvent::Kind::caller_item) {
    out.number(static_cast<std::uint32_t>(event.body.size())).number(static_cast<std::uint32_t>(event.payload.size()));
  } else if (event.kind == StreamEvent::Kind::handler_item) {
    out.number(event.bytes).number(event.checksum);
  }
  append(events, out.written());
  append(events, event.body);
  append(events, event.payload);
}

std::optional<StreamEvent> StreamEvents::next() noexcept {
  if (rest_.empty()) return std::nullopt;
  ByteReader reader(rest_);
  StreamEvent event;
  const auto kind = reader.number<std::uint8_t>();
  event.kind = static_cast<StreamEvent::Kind>(kind);
  event.at = Duration(reader.number<std::int64_t>());
  if (event.kind == StreamEvent::Kind::caller_item) {
    const auto body = reader.number<std::uint32_t>();
    const auto payload = reader.number<std::uint32_t>();
    event.body = reader.bytes(body);
    event.payload = reader.bytes(payload);
  } else if (event.kind == StreamEvent::Kind::handler_item) {
    event.bytes = reader.number<std::uint64_t>();
    event.checksum = reader.number<std::uint32_t>();
  }
  if (!reader.complete() || kind > static_cast<std::uint8_t>(StreamEvent::Kind::handler_item)) {
    malformed_ = true;
    rest_ = {};
    return std::nullopt;
  }
  rest_ = reader.rest();
  return event;
}

std::unexpected<Error> RecordReader::damaged(std::string what) const {
  return fail(ErrorCode::protocol_error,
              "the recording is damaged at offset " + std::to_string(offset_ + at_) + ": " + std::move(what));
}

Result<void> RecordReader::header() {
  if (bytes_.size() < header_bytes || as_text(bytes_.first(magic.size())) != magic) {
    return fail(ErrorCode::protocol_error, "this is not a recording of hawser record: it does not begin with HAWSREC");
  }
  ByteReader reader(bytes_.subspan(magic.size()));
  const auto given = reader.number<std::uint32_t>();
  if (reader.number<std::uint32_t>() != crc32c(bytes_.first(header_bytes - 4))) {
    return damaged("the header has another checksum");
  }
  if (given < version_least || given > version) {
    return fail(ErrorCode::protocol_error, "the recording has version " + std::to_string(given) +
                                               "; this program reads the versions " + std::to_string(version_least) +
                                               " to " + std::to_string(version) + ": use a newer program");
  }
  streams_ = given >= version_of_streams;
  at_ = header_bytes;
  return {};
}

Result<std::optional<RecordedCall>> RecordReader::next() {
  const Bytes left = bytes_.subspan(at_);
  if (left.empty()) return std::nullopt;
  if (left.size() < frame_bytes) return damaged("the file ends within a record");
  ByteReader frame(left);
  const std::size_t size = frame.number<std::uint32_t>();
  const auto checksum = frame.number<std::uint32_t>();
  if (size > record_bytes_max) {
    return damaged("a record of " + std::to_string(size) + " bytes exceeds " + std::to_string(record_bytes_max));
  }
  if (size > left.size() - frame_bytes) {
    return damaged("a record of " + std::to_string(size) + " bytes has " + std::to_string(left.size() - frame_bytes));
  }
  const Bytes content = left.subspan(frame_bytes, size);
  if (frame_checksum(left.first(4), content) != checksum) return damaged("a record has another checksum");
  ByteReader reader(content);
  RecordedCall call;
  call.at = Duration(reader.number<std::int64_t>());
  call.duration = Duration(reader.number<std::int64_t>());
  call.outcome = static_cast<ErrorCode>(reader.number<std::uint16_t>());
  const bool checked = reader.number<std::uint16_t>() == has_checksum;
  const auto reply_checksum = reader.number<std::uint32_t>();
  if (checked) call.reply_checksum = reply_checksum;
  call.reply_bytes = reader.number<std::uint64_t>();
  call.method = as_text(sized(reader));
  call.protocol = as_text(sized(reader));
  call.metadata = sized(reader);
  call.body = sized(reader);
  call.payload = sized(reader);
  call.attachment = sized(reader);
  if (streams_ && reader.complete() && !reader.at_end()) {
    call.streams = true;
    const auto flags = reader.number<std::uint32_t>();
    if (flags > is_truncated) return damaged("a record with streams has unknown flags");
    call.truncated = flags == is_truncated;
    call.events = sized(reader);
  }
  if (!reader.finished()) return damaged("the lengths of a record contradict each other");
  if (call.at < Duration::zero() || call.duration < Duration::zero()) return damaged("a record has a negative time");
  if (call.at > recording_time_max) return damaged("a record has a time of more than 10 years after the beginning");
  if (call.method.empty()) return damaged("a record has no method");
  if (!wire::check_metadata(call.metadata)) return damaged("a record has malformed metadata");
  if (const std::string_view fault = fault_of(call.events); !fault.empty()) return damaged(std::string(fault));
  record_ = left.first(frame_bytes + size);
  at_ += frame_bytes + size;
  return call;
}

}  // namespace hawser::observe
