// Linked into every test program: reports the name of a case that hangs and a backtrace of each of its threads, long
// before ctest ends the program without output. HAWSER_TEST_CASE_SECONDS_MAX replaces the limit of a case; 0 is no
// limit.
#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace hawser {
namespace {

#ifdef HAWSER_SANITIZED
constexpr unsigned seconds_by_default = 900;  // ctest's limit is 1,200 s.
#else
constexpr unsigned seconds_by_default = 450;  // ctest's limit is 600 s.
#endif

unsigned seconds_max = seconds_by_default;
std::array<char, 256> current{};  // "Suite.Case"
std::atomic<bool> answered{false};

void print(std::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

// Prints one file below /proc/self/task/<thread>/, if it can be read.
void print_file(const char* thread, const char* name) {
  std::array<char, 128> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/task/%s/%s", thread, name);
  const int file = open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  std::array<char, 160> text{};
  const ssize_t got = read(file, text.data(), text.size());
  close(file);
  if (got > 0) print({text.data(), static_cast<std::size_t>(got)});
}

// Signal handler: runs on a thread whose backtrace is requested.
void on_question(int) {
  std::array<void*, 48> frames{};
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), frames.size()), STDERR_FILENO);
  answered.store(true);
}

// The process ends here with status 124, so the risk of calls that are not async-signal-safe is accepted.
void on_alarm(int) {
  std::array<char, 400> line{};
  std::snprintf(line.data(), line.size(), "\nwatchdog: %s has run for %u s, its limit. Its threads are at:\n",
                current.data(), seconds_max);
  print(line.data());
  signal(SIGUSR2, on_question);
  DIR* const threads = opendir("/proc/self/task");
  while (const dirent* const entry = threads == nullptr ? nullptr : readdir(threads)) {
    if (entry->d_name[0] == '.') continue;
    print("-- thread ");
    print(entry->d_name);
    print(" ");
    print_file(entry->d_name, "comm");
    answered.store(false);
    const long id = std::strtol(entry->d_name, nullptr, 10);
    if (id == syscall(SYS_gettid)) {
      on_question(0);
      continue;
    }
    syscall(SYS_tgkill, getpid(), id, SIGUSR2);
    for (int i = 0; i < 100 && !answered.load(); ++i) usleep(10'000);
  }
  _exit(124);
}

class Watchdog final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    std::snprintf(current.data(), current.size(), "%s.%s", test.test_suite_name(), test.name());
    alarm(seconds_max);
  }
  void OnTestEnd(const testing::TestInfo&) override { alarm(0); }
};

const bool installed = [] {
  if (const char* const given = std::getenv("HAWSER_TEST_CASE_SECONDS_MAX")) {
    seconds_max = static_cast<unsigned>(std::strtoul(given, nullptr, 10));
  }
  std::array<void*, 1> frame{};
  backtrace(frame.data(), 1);  // Loads the libraries that backtraces need, which must not happen in the handler.
  signal(SIGALRM, on_alarm);
  testing::UnitTest::GetInstance()->listeners().Append(new Watchdog);
  return true;
}();

}  // namespace
}  // namespace hawser
