#include "hawser/trace.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <utility>

#include "base/kernel_random.h"
#include "wire/metadata.h"

namespace hawser {
namespace {

constexpr std::string_view parent_key = "traceparent";
constexpr std::string_view state_key = "tracestate";
// The names of the protocol baidu_std.
constexpr std::string_view baidu_trace_key = "x-bd-trace-id";
constexpr std::string_view baidu_span_key = "x-bd-span-id";

// Places within a traceparent of version 00.
constexpr std::size_t trace_at = 3;
constexpr std::size_t span_at = 36;
constexpr std::size_t flags_at = 53;
constexpr std::size_t parent_bytes = 55;

int digit_of(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool read_hex(std::string_view text, std::span<std::uint8_t> to) noexcept {
  for (std::size_t i = 0; i < to.size(); ++i) {
    const int high = digit_of(text[2 * i]);
    const int low = digit_of(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    to[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

std::string hex(std::span<const std::uint8_t> bytes) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

bool is_zero(std::span<const std::uint8_t> bytes) noexcept {
  return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; });
}

template <std::size_t size>
void fill_with_random(std::array<std::uint8_t, size>& id) {
  do {
    fill_random(std::as_writable_bytes(std::span(id)));
  } while (is_zero(id));
}

bool sound_state(std::string_view state) noexcept {
  if (state.size() > TraceContext::state_bytes_max) return false;
  const auto members = static_cast<std::size_t>(std::ranges::count(state, ',')) + 1;
  return members <= TraceContext::state_members_max &&
         std::ranges::all_of(state, [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\t'; }) &&
         (state.empty() || state.contains('='));
}

// A number of baidu_std as the last eight bytes of an id.
bool read_number(std::string_view text, std::span<std::uint8_t> id) noexcept {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size() || number == 0) return false;
  auto rest = static_cast<std::uint64_t>(number);
  for (std::size_t i = id.size(); i-- > id.size() - 8; rest >>= 8) id[i] = static_cast<std::uint8_t>(rest);
  return true;
}

}  // namespace

std::optional<TraceContext> TraceContext::parse(std::string_view traceparent, std::string_view tracestate) {
  // A later version may have more behind the flags.
  if (traceparent.size() < parent_bytes || traceparent[2] != '-' || traceparent[span_at - 1] != '-' ||
      traceparent[flags_at - 1] != '-') {
    return std::nullopt;
  }
  std::array<std::uint8_t, 1> version{};
  std::array<std::uint8_t, 1> flags{};
  TraceContext context;
  if (!read_hex(traceparent, version) || !read_hex(traceparent.substr(trace_at), context.trace_id) ||
      !read_hex(traceparent.substr(span_at), context.span_id) || !read_hex(traceparent.substr(flags_at), flags) ||
      version[0] == 0xff || is_zero(context.trace_id) || is_zero(context.span_id)) {
    return std::nullopt;
  }
  if (traceparent.size() > parent_bytes && (version[0] == 0 || traceparent[parent_bytes] != '-')) return std::nullopt;
  context.sampled = (flags[0] & 1) != 0;
  if (sound_state(tracestate)) context.state = tracestate;
  return context;
}

TraceContext TraceContext::begin(bool sampled) {
  TraceContext context;
  fill_with_random(context.trace_id);
  fill_with_random(context.span_id);
  context.sampled = sampled;
  return context;
}

TraceContext TraceContext::child() const {
  TraceContext context = *this;
  fill_with_random(context.span_id);
  return context;
}

std::string TraceContext::traceparent() const {
  return "00-" + trace_id_text() + "-" + span_id_text() + (sampled ? "-01" : "-00");
}
std::string TraceContext::trace_id_text() const { return hex(trace_id); }
std::string TraceContext::span_id_text() const { return hex(span_id); }

void TraceContext::add_to(CallOptions& options) const {
  std::erase_if(options.metadata,
                [](const auto& entry) { return entry.first == parent_key || entry.first == state_key; });
  options.metadata.emplace_back(parent_key, traceparent());
  if (!state.empty()) options.metadata.emplace_back(state_key, state);
}

std::optional<TraceContext> trace_of(MetadataView metadata) {
  std::optional<std::string_view> parent;
  std::optional<std::string_view> baidu_trace;
  std::string state;
  std::string_view baidu_span;
  std::string_view key;
  std::string_view value;
  for (wire::MetadataReader reader(metadata.bytes()); reader.next(key, value);) {
    if (key == parent_key) {
      if (parent) return std::nullopt;
      parent = value;
    } else if (key == state_key) {
      // Several fields are one list (RFC 9110, 5.3). A longer one is dropped.
      if (state.size() <= TraceContext::state_bytes_max) state.append(state.empty() ? "" : ",").append(value);
    } else if (key == baidu_trace_key) {
      baidu_trace = value;
    } else if (key == baidu_span_key) {
      baidu_span = value;
    }
  }
  if (parent) return TraceContext::parse(*parent, state);
  if (!baidu_trace) return std::nullopt;
  TraceContext context;
  if (!read_number(*baidu_trace, context.trace_id) || !read_number(baidu_span, context.span_id)) return std::nullopt;
  context.sampled = true;  // Clients of bRPC send ids of sampled calls only.
  return context;
}

}  // namespace hawser
