#include "os/secret_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/descriptor.h"
#include "base/log_output.h"

namespace hawser {
namespace {

// Waits until a pipe has bytes, or its writers have ended. False after a stop, or after that time.
bool wait_for_writer(int pipe, const std::stop_token& stop, std::chrono::steady_clock::time_point end) noexcept {
  constexpr int slice_ms = 20;
  for (;;) {
    pollfd waited{pipe, POLLIN, 0};
    if (::poll(&waited, 1, slice_ms) > 0) return true;
    if (stop.stop_requested() || std::chrono::steady_clock::now() >= end) return false;
  }
}

}  // namespace

Result<SecretVector<char>> read_secret_file(const std::string& path, std::size_t bytes_max, const std::stop_token& stop,
                                            Duration pipe_time) {
  const auto failed = [&] {
    return fail(ErrorCode::invalid_argument, "cannot read " + path + ": " + std::strerror(errno));
  };
  const auto silent = [&] {
    const auto limit_ms = std::chrono::duration_cast<std::chrono::milliseconds>(pipe_time).count();
    return fail(ErrorCode::unavailable, "cannot read " + path + ": it is a pipe whose writer did not end within " +
                                            std::to_string(limit_ms) + " ms: use a file, or a writer that ends");
  };
  // A pipe that nobody writes would hold the thread for ever, also at the end of its server.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return failed();
  struct stat facts{};
  if (::fstat(file.get(), &facts) != 0) return failed();
  const auto end = std::chrono::steady_clock::now() + pipe_time;
  if (S_ISFIFO(facts.st_mode) && !wait_for_writer(file.get(), stop, end)) return silent();
  constexpr std::size_t first_bytes = 16 * 1024;
  SecretVector<char> bytes;
  std::size_t got = 0;
  for (;;) {
    if (got == bytes.size()) {
      SecretVector<char> larger(std::max(first_bytes, 2 * got));
      if (got != 0) std::memcpy(larger.data(), bytes.data(), got);
      bytes.swap(larger);
    }
    const ssize_t size = ::read(file.get(), bytes.data() + got, bytes.size() - got);
    if (size == 0) break;
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) {
      if (!wait_for_writer(file.get(), stop, end)) return silent();
      continue;
    }
    if (size < 0) return failed();
    got += static_cast<std::size_t>(size);
    if (got > bytes_max) {
      return fail(ErrorCode::limit_exceeded, path + " is longer than " + std::to_string(bytes_max) + " bytes");
    }
  }
  bytes.resize(got);
  return bytes;
}

bool write_private_file(const std::string& path, std::string_view bytes) noexcept {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  return file.valid() && ::fchmod(file.get(), 0600) == 0 && write_ready(file.get(), bytes) == bytes.size();
}

Result<bool> make_secret_file(const std::string& path, std::string_view content) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) {
    if (errno == EEXIST) return false;
    return fail(ErrorCode::invalid_argument, std::string("it cannot be made: ") + std::strerror(errno));
  }
  if (write_ready(file.get(), content) == content.size()) return true;
  const int reason = errno;
  ::unlink(path.c_str());
  return fail(ErrorCode::unavailable, std::string("it cannot be written: ") + std::strerror(reason));
}

bool others_may_use(const std::string& path) noexcept {
  struct stat facts{};
  return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && (facts.st_mode & 077U) != 0;
}

bool is_own_user_or_root(std::uint32_t user) noexcept { return user == ::geteuid() || user == 0; }

}  // namespace hawser
