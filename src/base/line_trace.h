#pragma once

namespace hawser {

struct TraceContext;

// Sets trace_of_line() of this thread for its lifetime, which contains no suspension: so no other call sees it.
class LineTrace {
 public:
  // Null: the lines belong to no call.
  explicit LineTrace(const TraceContext* trace) noexcept;
  LineTrace(const LineTrace&) = delete;
  LineTrace& operator=(const LineTrace&) = delete;
  ~LineTrace();

 private:
  const TraceContext* const before_;
};

}  // namespace hawser
