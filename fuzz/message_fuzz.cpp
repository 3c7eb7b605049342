#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/loop.h"
#include "transport/common/framed_connection.h"
#include "transport/common/test/framed_testing.h"
#include "wire/message.h"

// Arbitrary bytes as messages on a byte stream: the parser of prefixes, and a connection that receives the bytes in
// parts. Both must find the messages that a plain loop over the bytes finds, and refuse the first one above the limit.
// Input: u8 bytes that arrive at a time (0: all) | u8 mode of the receive buffer | u16 limit, in units of 4 bytes | the
// bytes.
namespace hawser::transport {
namespace {

void expect(bool condition) {
  if (!condition) std::abort();
}

struct Expected {
  std::vector<RecordingSink::Received> messages;
  bool too_long = false;
};

std::size_t number_at(std::string_view bytes, std::size_t offset) {
  std::size_t number = 0;
  for (std::size_t i = 4; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[offset + i]);
  return number;
}

Expected read_plainly(std::string_view bytes, std::size_t limit) {
  Expected expected;
  while (bytes.size() >= 8) {
    const std::size_t head = number_at(bytes, 0);
    const std::size_t payload = number_at(bytes, 4);
    if (8 + head + payload > limit) {
      expected.too_long = true;
      break;
    }
    if (bytes.size() < 8 + head + payload) break;
    expected.messages.push_back(
        {std::string(bytes.substr(8, head)), std::string(bytes.substr(8 + head, payload)), false});
    bytes.remove_prefix(8 + head + payload);
  }
  return expected;
}

// The parser uses only the eight bytes of the prefix.
void check_parser(std::string_view bytes, wire::MessageLimit limit) {
  using State = wire::ParsedPrefix::State;
  const wire::ParsedPrefix whole = wire::parse_prefix(as_bytes(bytes), limit);
  for (std::size_t size = 0; size <= std::min<std::size_t>(bytes.size(), 12); ++size) {
    const std::string part(bytes.substr(0, size));  // A separate block, so that a read beyond it is detected.
    const wire::ParsedPrefix parsed = wire::parse_prefix(as_bytes(part), limit);
    expect((parsed.state == State::incomplete) == (size < wire::MessagePrefix::bytes));
    if (parsed.state == State::incomplete) continue;
    expect(parsed.state == whole.state && parsed.prefix == whole.prefix);
    expect(parsed.prefix.head_bytes == number_at(bytes, 0) && parsed.prefix.payload_bytes == number_at(bytes, 4));
    expect((parsed.state == State::complete) == (parsed.prefix.message_bytes() <= limit.bytes_max()));
    std::byte again[wire::MessagePrefix::bytes];
    wire::encode(again, parsed.prefix);
    expect(as_text(again) == bytes.substr(0, sizeof again));
    if (parsed.state == State::too_long) {
      expect(limit.exceeded_by(parsed.prefix).text.find("exceeds message_bytes_max") != std::string::npos);
    }
  }
}

void check_connection(std::string_view bytes, wire::MessageLimit limit, std::size_t step,
                      ReceiveBuffer::Kind placement) {
  const Expected expected = read_plainly(bytes, limit.bytes_max());
  Loop loop{std::make_unique<exec::SimPoller>(), {}};
  pipe::StreamScript script;
  RecordingSink sink;
  sink.receive_buffer = placement;
  FramedConnection connection(loop, std::make_unique<pipe::ScriptedStream>(script), {.message_limit = limit});
  sink.connection = &connection;
  connection.start(sink);
  script.deliver(bytes, step);
  expect(sink.closed.size() == (expected.too_long ? 1U : 0U));
  expect(sink.messages.size() == expected.messages.size());
  for (std::size_t i = 0; i < expected.messages.size(); ++i) {
    if (sink.messages[i].discarded) {
      expect(placement == ReceiveBuffer::Kind::discard && sink.messages[i].head == expected.messages[i].head);
    } else {
      expect(sink.messages[i] == expected.messages[i]);
    }
  }
}

}  // namespace
}  // namespace hawser::transport

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hawser;
  using transport::ReceiveBuffer;
  if (size < 4) return 0;
  const std::size_t step = data[0] == 0 ? SIZE_MAX : data[0];
  const auto placement =
      std::array{ReceiveBuffer::Kind::own, ReceiveBuffer::Kind::given, ReceiveBuffer::Kind::discard}[data[1] % 3];
  // Above the size from which payloads are received into a receive buffer.
  const wire::MessageLimit limit((data[2] | static_cast<std::size_t>(data[3]) << 8) * 4);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 4, size - 4);
  transport::check_parser(bytes, limit);
  transport::check_connection(bytes, limit, step, placement);
  return 0;
}
