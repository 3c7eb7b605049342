#pragma once

#include "hawser/trace.h"

namespace hawser::observe {

// Sets trace_of_line() of this thread for its lifetime, which contains no suspension: so no other call sees it.
class LineTrace {
 public:
  explicit LineTrace(const TraceContext* trace) noexcept;
  LineTrace(const LineTrace&) = delete;
  LineTrace& operator=(const LineTrace&) = delete;
  ~LineTrace();

 private:
  const TraceContext* const before_;
};

}  // namespace hawser::observe
