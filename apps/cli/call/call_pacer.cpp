#include "cli/call/call_pacer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/decimal_text.h"

namespace hawser::cli {

Task<Permit> CallPacer::admit(Time at) {
  // Replies are read between the calls of a burst.
  constexpr std::uint64_t burst_calls_max = 64;
  const bool pause = ++calls_ % burst_calls_max == 0;
  if (const Time now = loop_.now(); at > now || pause) co_await loop_.sleep(std::max(at - now, Duration::zero()));
  Permit permit = co_await free_.acquire();
  if (loop_.now() > at + std::chrono::milliseconds(1)) ++late_;
  co_return permit;
}

std::string CallPacer::late_line() const {
  if (late_ == 0) return {};
  return fmt::format("{} sent more than 1 ms late; the latency counts from the intended time\n",
                     count_text(late_, "call") + (late_ == 1 ? " was" : " were"));
}

}  // namespace hawser::cli
