#include "os/cpu_latency.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace hawser {
namespace {

constexpr std::chrono::microseconds longest = std::chrono::seconds(2000);  // The kernel's limit is a positive s32.

}  // namespace

Result<CpuLatency> CpuLatency::hold(std::chrono::microseconds most, const std::string& path) {
  if (most.count() < 0 || most > longest) {
    return fail(ErrorCode::invalid_argument, "cpu_latency_max is " + std::to_string(most.count()) + " us: give 0 to " +
                                                 std::to_string(longest.count()) + " us");
  }
  const auto failed = [&](const char* what) {
    const int error = errno;
    return fail(ErrorCode::unavailable,
                std::string("cannot ") + what + " " + path + " to hold a latency of " + std::to_string(most.count()) +
                    " us: " + std::strerror(error) +
                    ": run as root or be given the right to write it, or leave cpu_latency_max unset");
  };
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return failed("open");
  const auto value = static_cast<std::int32_t>(most.count());
  if (::write(file.get(), &value, sizeof value) != sizeof value) return failed("write");
  return CpuLatency(std::move(file));
}

}  // namespace hawser
