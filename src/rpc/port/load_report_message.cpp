#include "rpc/port/load_report_message.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace hawser::rpc {
namespace {

// Wire types of Protocol Buffers.
constexpr unsigned varint_type = 0;
constexpr unsigned fixed64_type = 1;
constexpr unsigned bytes_type = 2;
constexpr unsigned fixed32_type = 5;

constexpr std::int64_t nanoseconds_per_second = 1'000'000'000;
constexpr std::int64_t interval_seconds_max = 86'400;

// Reads a message from its begin. Each function is false where the message is malformed.
class MessageInput {
 public:
  explicit MessageInput(std::string_view message) noexcept : rest_(message) {}
  bool ended() const noexcept { return rest_.empty(); }
  bool varint(std::uint64_t& value) noexcept {
    value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }
  bool bytes(std::uint64_t count, std::string_view& value) noexcept {
    if (count > rest_.size()) return false;
    value = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return true;
  }
  // A field of any type. `value` is the value of a varint, or the bytes of a fixed64.
  struct Field {
    std::uint64_t number = 0;
    unsigned type = 0;
    std::uint64_t value = 0;
    std::string_view bytes = {};
  };
  bool field(Field& field) noexcept {
    std::uint64_t tag = 0;
    if (!varint(tag)) return false;
    field = {.number = tag >> 3, .type = static_cast<unsigned>(tag & 7)};
    std::uint64_t size = 0;
    switch (field.type) {
      case varint_type: return varint(field.value);
      case fixed64_type: size = 8; break;
      case bytes_type:
        if (!varint(size)) return false;
        break;
      case fixed32_type: size = 4; break;
      default: return false;
    }
    if (!bytes(size, field.bytes)) return false;
    for (unsigned i = 0; field.type == fixed64_type && i < 8; ++i) {
      field.value |= std::uint64_t{static_cast<unsigned char>(field.bytes[i])} << (8 * i);
    }
    return true;
  }

 private:
  std::string_view rest_;
};

struct NumberField {
  unsigned number;
  double LoadReport::* value;
};
constexpr NumberField number_fields[] = {{1, &LoadReport::cpu_utilization},
                                         {2, &LoadReport::memory_utilization},
                                         {6, &LoadReport::calls_per_second},
                                         {7, &LoadReport::errors_per_second},
                                         {9, &LoadReport::application_utilization}};

void add_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

}  // namespace

std::string load_report_message(const LoadReport& report) {
  std::string message;
  for (const NumberField& field : number_fields) {
    const double value = report.*field.value;
    if (value == 0) continue;
    message += static_cast<char>(field.number << 3 | fixed64_type);
    const auto bits = std::bit_cast<std::uint64_t>(value);
    for (unsigned i = 0; i < 8; ++i) message += static_cast<char>(bits >> (8 * i));
  }
  return message;
}

std::optional<LoadReport> read_load_report(std::string_view message) {
  LoadReport report;
  MessageInput input(message);
  while (!input.ended()) {
    MessageInput::Field field;
    if (!input.field(field)) return std::nullopt;
    for (const NumberField& known : number_fields) {
      if (known.number != field.number || field.type != fixed64_type) continue;
      const auto value = std::bit_cast<double>(field.value);
      if (!std::isfinite(value) || value < 0) return std::nullopt;
      report.*known.value = value;
    }
  }
  return report;
}

std::string load_report_request(Duration interval) {
  const auto count = std::max<std::int64_t>(interval.count(), 0);
  std::string duration;
  duration += static_cast<char>(1 << 3 | varint_type);
  add_varint(duration, static_cast<std::uint64_t>(count / nanoseconds_per_second));
  duration += static_cast<char>(2 << 3 | varint_type);
  add_varint(duration, static_cast<std::uint64_t>(count % nanoseconds_per_second));
  std::string message;
  message += static_cast<char>(1 << 3 | bytes_type);
  add_varint(message, duration.size());
  return message + duration;
}

Duration read_load_report_request(std::string_view message) {
  std::string_view duration;
  MessageInput::Field field;
  for (MessageInput input(message); !input.ended();) {
    if (!input.field(field)) return {};
    if (field.number == 1 && field.type == bytes_type) duration = field.bytes;
  }
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;
  for (MessageInput input(duration); !input.ended();) {
    if (!input.field(field)) return {};
    if (field.type != varint_type) continue;
    if (field.number == 1) seconds = static_cast<std::int64_t>(field.value);
    if (field.number == 2) nanoseconds = static_cast<std::int64_t>(field.value);
  }
  if (seconds < 0 || nanoseconds < 0 || nanoseconds >= nanoseconds_per_second) return {};
  return std::chrono::seconds(std::min(seconds, interval_seconds_max)) + std::chrono::nanoseconds(nanoseconds);
}

}  // namespace hawser::rpc
