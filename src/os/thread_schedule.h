#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace hawser {

// The counts of the kernel for a thread since it began (/proc/.../schedstat).
struct ThreadSchedule {
  std::uint64_t busy_ns = 0;   // On a processor.
  std::uint64_t ready_ns = 0;  // Ready, without a processor.
  std::uint64_t runs = 0;      // How often the thread has got a processor.
};

// Parses "BUSY READY RUNS". Nothing for anything else.
inline std::optional<ThreadSchedule> parse_thread_schedule(std::string_view line) {
  ThreadSchedule found;
  const char* at = line.data();
  const char* const end = line.data() + line.size();
  for (std::uint64_t* const value : {&found.busy_ns, &found.ready_ns, &found.runs}) {
    while (at != end && *at == ' ') ++at;
    const auto [next, error] = std::from_chars(at, end, *value);
    if (error != std::errc()) return std::nullopt;
    at = next;
  }
  return found;
}

// The time in which one thread was ready, from the first of its readings to the last one.
class ReadyTime {
 public:
  // Returns false, and changes nothing, if the reading is of another thread than those before. The kernel gives the
  // number of a thread that has ended to another one, whose counts begin again.
  bool add(const ThreadSchedule& now) noexcept {
    if (last_ && (now.runs < last_->runs || now.ready_ns < last_->ready_ns)) return false;
    if (!last_) begin_ns_ = now.ready_ns;
    last_ = now;
    return true;
  }
  std::uint64_t nanoseconds() const noexcept { return last_ ? last_->ready_ns - begin_ns_ : 0; }

 private:
  std::optional<ThreadSchedule> last_;
  std::uint64_t begin_ns_ = 0;
};

}  // namespace hawser
