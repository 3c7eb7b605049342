#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/time.h"

// The format of docs/recordings.md. No I/O.
namespace hawser::observe {

// A part of the streams of a recorded call.
struct StreamEvent {
  enum class Kind : std::uint8_t {
    caller_item,   // An item of the caller.
    caller_end,    // The caller ended its stream: no item of it follows.
    handler_item,  // An item of the handler, as its size and checksum.
  };
  Kind kind = Kind::caller_item;
  Duration at{};               // Since the call began.
  Bytes body = {};             // caller_item.
  Bytes payload = {};          // caller_item.
  std::uint64_t bytes = 0;     // handler_item: body and payload.
  std::uint32_t checksum = 0;  // handler_item: CRC32C of both.
};

// One recorded call. The views refer to the bytes that were decoded, or to the call.
struct RecordedCall {
  Duration at{};        // Since the recording began.
  Duration duration{};  // Until its end.
  ErrorCode outcome = ErrorCode::ok;
  std::uint64_t reply_bytes = 0;                     // Result and attachment.
  std::optional<std::uint32_t> reply_checksum = {};  // CRC32C of these; empty if the call failed.
  std::string_view method = {};
  std::string_view protocol = {};
  Bytes metadata = {};  // As on the wire, well-formed.
  Bytes body = {};
  Bytes payload = {};
  Bytes attachment = {};
  bool streams = false;    // The caller or the handler sent a stream.
  bool truncated = false;  // Only the beginning of the streams was recorded. The outcome is not known then.
  Bytes events = {};       // See StreamEvents.
};

// Appends an event to RecordedCall::events.
void append_event(std::string& events, const StreamEvent& event);
// The bytes of an event beside body and payload, at most.
inline constexpr std::size_t event_overhead_bytes = 1 + 8 + 8 + 4;

// Reads the events of a call that RecordReader returned, in order.
class StreamEvents {
 public:
  explicit StreamEvents(Bytes events) noexcept : rest_(events) {}
  // The next event. Empty at the end, and where the bytes are malformed: malformed() is true then.
  std::optional<StreamEvent> next() noexcept;
  bool malformed() const noexcept { return malformed_; }

 private:
  Bytes rest_;
  bool malformed_ = false;
};

// Times of records are those of one recording: a later one would not fit into the times of a replay at any speed.
inline constexpr Duration recording_time_max = std::chrono::hours(24 * 3650);

inline constexpr std::size_t record_bytes_max = std::size_t{256} << 20;

inline constexpr std::size_t recording_header_bytes = 16;  // The magic text, the version, the CRC of both.
inline constexpr std::size_t record_frame_bytes =
    8;  // Bytes of the content, CRC of these four bytes and of the content.

// The size of the content that a record's frame states; 0 if `frame` has fewer than record_frame_bytes.
std::size_t record_content_bytes(Bytes frame) noexcept;

// The bytes at the beginning of a file.
std::string recording_header();
// Appends a record. `metadata` of the call may have any entries.
void append_record(std::string& out, const RecordedCall& call);

// Reads the records of a file, or those of a part without the header. Errors are `protocol_error` and name the offset.
class RecordReader {
 public:
  // `offset` is that of `bytes` in the file. `streams`: that of the reader that has read the header.
  explicit RecordReader(Bytes bytes, std::size_t offset = 0, bool streams = true) noexcept
      : bytes_(bytes), at_(0), offset_(offset), streams_(streams) {}
  // Checks the beginning of a file. Call it first, or not at all for a part.
  Result<void> header();
  // The next record; empty at the end.
  Result<std::optional<RecordedCall>> next();
  bool streams() const noexcept { return streams_; }
  // The bytes of the record that next() returned.
  Bytes record() const noexcept { return record_; }

 private:
  std::unexpected<Error> damaged(std::string what) const;

  Bytes bytes_;
  std::size_t at_;
  std::size_t offset_;
  Bytes record_;
  bool streams_ = true;  // Records may have streams: not in a file of version 1.
};

}  // namespace hawser::observe
