#include "base/line_trace.h"

#include <utility>

#include "hawser/structured_log.h"

namespace hawser {
namespace {

thread_local const TraceContext* line_trace = nullptr;

}  // namespace

LineTrace::LineTrace(const TraceContext* trace) noexcept : before_(std::exchange(line_trace, trace)) {}
LineTrace::~LineTrace() { line_trace = before_; }

const TraceContext* trace_of_line() noexcept { return line_trace; }

}  // namespace hawser
