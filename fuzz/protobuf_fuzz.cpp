#include <google/protobuf/util/json_util.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tuple>

#include "hawser/protobuf.h"
#include "protobuf/plain_json.h"
#include "protobuf/test/plain.pb.h"

// Reads arbitrary bytes as a message, within limits of depth and memory, and arbitrary text as the JSON of a message.
// JSON that is read or written directly must be what libprotobuf reads or writes. Input: u8 kind | the bytes.
namespace hawser::pb {
namespace {

using probe::Plain;
namespace util = google::protobuf::util;

void expect(bool condition) {
  if (!condition) std::abort();
}

const PlainJson& plain() {
  static const PlainJson json(Plain::descriptor());
  return json;
}

void check_message(std::string_view bytes) {
  constexpr codec::DecodeLimits limits{
      .memory_factor_max = 0, .memory_bytes_base = std::size_t{1} << 20, .message_depth_max = 20};
  codec::Decoder decoder(as_bytes(bytes), {}, limits);
  std::tuple<Plain> value;
  if (!codec::decode_all(decoder, value)) return expect(decoder.error().text.find("probe.Plain") != std::string::npos);
  const Plain& message = std::get<0>(value);
  expect(message.SpaceUsedLong() <= limits.memory_bytes_base + (std::size_t{1} << 16));
  std::string body(codec::encoded_size(message).body, '\0');
  codec::Encoder encoder(reinterpret_cast<std::byte*>(body.data()), nullptr);
  codec::encode_all(encoder, message);
  expect(reinterpret_cast<char*>(encoder.position()) == body.data() + body.size());
  Plain again;
  expect(again.ParseFromString(body) && again.ByteSizeLong() == body.size());
}

void check_to_json(std::string_view bytes) {
  std::string json;
  if (!plain().to_json(as_bytes(bytes), json)) return;
  Plain message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  Plain back;
  expect(util::JsonStringToMessage(json, &back).ok());
  expect(back.SerializeAsString() == message.SerializeAsString());
}

void check_to_bytes(std::string_view json) {
  std::string bytes;
  if (!plain().to_bytes(json, bytes)) return;
  Plain direct;
  expect(direct.ParseFromString(bytes));
  Plain expected;
  expect(util::JsonStringToMessage({json.data(), json.size()}, &expected).ok());
  expect(direct.SerializeAsString() == expected.SerializeAsString());
}

}  // namespace
}  // namespace hawser::pb

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0: hawser::pb::check_message(rest); break;
    case 1: hawser::pb::check_to_json(rest); break;
    default: hawser::pb::check_to_bytes(rest); break;
  }
  return 0;
}
