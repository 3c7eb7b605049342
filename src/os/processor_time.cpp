#include "os/processor_time.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <ctime>
#include <string_view>
#include <system_error>

#include "os/contents_of_file.h"

namespace hawser {
namespace {

std::string text_of(const std::string& path) {
  const auto text = contents_of_file(path);
  return text && *text ? **text : std::string();
}

// Lines are "0::/group" for version 2, and others for version 1. Empty: there is none.
std::string group_of(std::string_view lines) {
  constexpr std::string_view label = "0::";
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    if (lines.starts_with(label)) return std::string(lines.substr(label.size(), end - label.size()));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return {};
}

// "150000 100000": time in each period; or "max 100000".
std::optional<double> quota_of(std::string_view text) {
  std::int64_t time = 0;
  std::int64_t period = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, time);
  if (first.ec != std::errc() || first.ptr == end || time <= 0) return std::nullopt;
  if (std::from_chars(first.ptr + 1, end, period).ec != std::errc() || period <= 0) return std::nullopt;
  return static_cast<double>(time) / static_cast<double>(period);
}

}  // namespace

std::chrono::nanoseconds processor_time_used() noexcept {
  timespec time = {};
  if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Other threads may be bound to one processor each.
double processors_of_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = ::sched_getaffinity(::getpid(), sizeof set, &set) == 0;
  const double processors = known ? std::max(CPU_COUNT(&set), 1) : 1;
  return std::min(processors, processor_quota().value_or(processors));
}

std::optional<double> processor_quota(const std::string& own, const std::string& root) {
  std::string group = group_of(text_of(own));
  std::optional<double> least;
  while (!group.empty()) {
    const std::optional<double> quota = quota_of(text_of(root + (group == "/" ? "" : group) + "/cpu.max"));
    if (quota && (!least || *quota < *least)) least = quota;
    const std::size_t end = group.rfind('/');
    group.resize(group == "/" || end == std::string::npos ? 0 : std::max<std::size_t>(end, 1));
  }
  return least;
}

}  // namespace hawser
