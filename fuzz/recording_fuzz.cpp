#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/byte_fields.h"
#include "hawser/crc32c.h"
#include "observe/record_format.h"

// Reads arbitrary bytes as a file of hawser record, and as the content of one record with a right checksum. What was
// read is written again and must be the same.
namespace hawser::observe {
namespace {

void expect(bool condition) {
  if (!condition) std::abort();
}

void check_events(const RecordedCall& call) {
  std::string again;
  StreamEvents events(call.events);
  Duration last{};
  while (const auto event = events.next()) {
    expect(event->at >= last && event->at <= recording_time_max);
    last = event->at;
    append_event(again, *event);
  }
  expect(!events.malformed() && again == as_text(call.events));
}

void read_all(RecordReader& reader) {
  for (;;) {
    const auto call = reader.next();
    if (!call) return expect(call.error().code == ErrorCode::protocol_error && !call.error().text.empty());
    if (!*call) return;
    check_events(**call);
    std::string record;
    append_record(record, **call);
    RecordReader second(as_bytes(record));
    const auto same = second.next();
    expect(same && *same && (*same)->method == (*call)->method && (*same)->streams == (*call)->streams &&
           (*same)->truncated == (*call)->truncated && as_text((*same)->events) == as_text((*call)->events));
  }
}

void check_content(Bytes content, bool streams) {
  ByteWriter record;
  record.number(static_cast<std::uint32_t>(content.size()));
  record.number(crc32c(crc32c(record.written()), content));
  record.bytes(content);
  const std::vector<std::byte> bytes = record.take();
  RecordReader reader(bytes, 0, streams);
  read_all(reader);
}

}  // namespace
}  // namespace hawser::observe

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hawser;
  if (size == 0) return 0;
  const Bytes rest = std::as_bytes(std::span(data + 1, size - 1));
  const std::vector<std::byte> copy(rest.begin(), rest.end());  // A read beyond it is detected.
  if (data[0] % 3 == 0) {
    observe::RecordReader reader(copy);
    if (reader.header()) observe::read_all(reader);
  } else {
    observe::check_content(copy, data[0] % 3 == 1);
  }
  return 0;
}
