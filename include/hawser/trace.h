#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/metadata.h"
#include "hawser/reply.h"

namespace hawser {

// The position of a call in a distributed trace, in the form of W3C Trace Context (traceparent and tracestate). Every
// protocol carries it as metadata: docs/tracing.md.
struct TraceContext {
  // Members of tracestate beyond these limits are not accepted, and the whole of it is dropped.
  static constexpr std::size_t state_bytes_max = 512;
  static constexpr std::size_t state_members_max = 32;

  std::array<std::uint8_t, 16> trace_id{};
  std::array<std::uint8_t, 8> span_id{};
  bool sampled = false;    // The caller records this trace.
  std::string state = {};  // tracestate, as it came.

  // Parses the header fields. Empty if `traceparent` is invalid: a number of another form, upper case, or a zero id. A
  // tracestate that is invalid is dropped.
  static std::optional<TraceContext> parse(std::string_view traceparent, std::string_view tracestate = {});
  // A new trace with random ids.
  static TraceContext begin(bool sampled);
  // Another span of this trace, with a random id. Its parent is this one.
  TraceContext child() const;

  // "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
  std::string traceparent() const;
  std::string trace_id_text() const;
  std::string span_id_text() const;
  // Adds the fields to a call that continues this trace, in place of fields that are there: call it with child().
  void add_to(CallOptions& options) const;

  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

// The trace of a received call, from Context::metadata() or IncomingCall::metadata(): traceparent and tracestate, or
// the trace and span ids of baidu_std. Empty if there is none, if it is invalid, or if there are two.
std::optional<TraceContext> trace_of(MetadataView metadata);

}  // namespace hawser
