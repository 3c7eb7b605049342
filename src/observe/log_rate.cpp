// Limits how many lines of a log are written.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/line_trace.h"
#include "hawser/structured_log.h"

namespace hawser {
namespace {

constexpr std::size_t places_max = 128;
constexpr std::size_t beginning_bytes_max = 48;
constexpr std::size_t place_component_bytes_max = 64;

std::string_view beginning_of(std::string_view text) noexcept {
  return text.substr(0, std::min(text.find_first_of("0123456789\"'"), beginning_bytes_max));
}

class Limiter {
 public:
  Limiter(LogSink next, LogRateLimit limit) : next_(std::move(next)), limit_(std::move(limit)) {}
  Limiter(const Limiter&) = delete;
  Limiter& operator=(const Limiter&) = delete;
  ~Limiter() {
    try {
      report(take_suppressed());
    } catch (...) {  // Out of memory.
    }
  }

  void write(LogLevel level, std::string_view component, std::string_view text) {
    const auto second = std::chrono::floor<std::chrono::seconds>(limit_.now());
    std::vector<Suppressed> reports;
    bool passes = false;
    {
      const std::lock_guard guard(lock_);
      if (second != second_) {
        reports = take_suppressed();
        for (Place& place : places_) place.written = 0;
        written_ = 0;
        second_ = second;
      }
      const std::string_view beginning = beginning_of(text);
      const std::size_t hash = std::hash<std::string_view>()(component) * 31 +
                               std::hash<std::string_view>()(beginning) + static_cast<std::size_t>(level);
      Place& place = places_[hash % places_max];
      passes = place.written < limit_.lines_per_place && written_ < limit_.lines;
      if (passes) {
        ++place.written;
        ++written_;
      } else {
        if (place.suppressed++ == 0) {
          place.level = level;
          place.component = component.substr(0, place_component_bytes_max);
          place.beginning = beginning;
        }
        place.level = std::max(place.level, level);
      }
    }
    report(reports);
    if (passes) next_(level, component, text);
  }

 private:
  struct Place {
    unsigned written = 0;  // In `second_`.
    // Since the last report, with the first of them.
    std::uint64_t suppressed = 0;
    LogLevel level = LogLevel::debug;
    std::string component = {};
    std::string beginning = {};
  };
  struct Suppressed {
    std::uint64_t lines;
    LogLevel level;
    std::string component;
    std::string beginning;
  };

  std::vector<Suppressed> take_suppressed() {
    std::vector<Suppressed> all;
    for (Place& place : places_) {
      if (place.suppressed == 0) continue;
      all.push_back(
          {std::exchange(place.suppressed, 0), place.level, std::move(place.component), std::move(place.beginning)});
    }
    return all;
  }

  // These lines belong to no call.
  void report(const std::vector<Suppressed>& all) const {
    const LineTrace none(nullptr);
    for (const Suppressed& one : all) {
      const std::string text = std::to_string(one.lines) + " more suppressed: \"" + one.beginning + "...\"";
      next_(one.level, one.component, text);
    }
  }

  const LogSink next_;
  const LogRateLimit limit_;
  std::mutex lock_;  // Guards what follows.
  std::chrono::time_point<std::chrono::steady_clock, std::chrono::seconds> second_{};
  unsigned written_ = 0;
  std::array<Place, places_max> places_{};
};

}  // namespace

LogSink rate_limited(LogSink next, LogRateLimit limit) {
  if (limit.lines_per_place == 0 || limit.lines == 0) {
    throw std::invalid_argument("hawser: LogRateLimit::lines_per_place is " + std::to_string(limit.lines_per_place) +
                                ", lines is " + std::to_string(limit.lines) +
                                ", and both must be at least 1; no_log() writes nothing");
  }
  return [limiter = std::make_shared<Limiter>(std::move(next), std::move(limit))](
             LogLevel level, std::string_view component, std::string_view text) {
    limiter->write(level, component, text);
  };
}

}  // namespace hawser
