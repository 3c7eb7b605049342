#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "hawser/grpc.h"
#include "hawser/hawser.h"

// Methods whose messages are bytes without a structure, as a protobuf message is for the protocol.
namespace hawser::testing_tools {

struct Raw {
  std::string bytes;
};

// Number of handlers of Sleep, Converse, Hold and Watch that run.
std::atomic<int>& raw_handlers_running();

// Registers "test.Raw/..." : Echo, Bulk, Sleep, Running, Deadline, Fail, Count, Sum, Converse, Hold, Watch,
// SucceedAt.
void register_raw_service(Server& server);

}  // namespace hawser::testing_tools

namespace hawser::codec {

template <>
struct Codec<testing_tools::Raw> {
  static constexpr std::string_view signature = "test.Raw";
  static constexpr std::size_t bytes_min = 0;
  static void size(Sizer& sizer, const testing_tools::Raw& value) { sizer.add(value.bytes.size()); }
  static void encode(Encoder& encoder, const testing_tools::Raw& value) {
    encoder.write(value.bytes.data(), value.bytes.size());
  }
  static bool decode(Decoder& decoder, testing_tools::Raw& value) {
    const std::size_t bytes = decoder.available();
    const std::byte* data = nullptr;
    if (!decoder.charge(bytes, "raw") || !decoder.take(bytes, data, "raw")) return false;
    value.bytes.assign(reinterpret_cast<const char*>(data), bytes);
    return true;
  }
};

}  // namespace hawser::codec
