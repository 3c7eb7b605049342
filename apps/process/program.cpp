#include "process/program.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <thread>

#include "base/descriptor.h"

namespace hawser::process {
namespace {

void write_or_lose(int descriptor, std::string_view rest) noexcept {
  const int before = errno;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor, rest.data(), rest.size());
    if (written > 0) {
      rest.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0 || errno != EINTR) {
      break;
    }
  }
  errno = before;
}

ssize_t write_to_stderr(void*, const char* bytes, std::size_t size) {
  write_or_lose(STDERR_FILENO, {bytes, size});
  return static_cast<ssize_t>(size);
}

// Standard error takes everything then, and what its descriptor does not take is lost. Otherwise fmt::print() throws
// when a disk is full or a reader has gone.
void make_stderr_total() noexcept {
  cookie_io_functions_t functions{};
  functions.write = write_to_stderr;
  if (FILE* const total = ::fopencookie(nullptr, "w", functions)) {
    // Each message is one write, as with the stream of the C library.
    std::setvbuf(total, nullptr, _IOLBF, 4096);
    stderr = total;
  }
}

// Threads get stacks of the limit's size, and the first thread has no more. The programs need more than some limits.
constexpr rlim_t stack_bytes_least = 1 << 20;
constexpr std::size_t stack_bytes = 8 << 20;

bool stacks_are_too_small() noexcept {
  rlimit limit{};
  return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < stack_bytes_least;
}

// The first thread takes no signals during the life of this object.
class NoSignals {
 public:
  NoSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask_);
  }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &mask_, nullptr); }
  // The mask of the time before. Its signals are taken by the thread that calls this.
  void leave_to_this_thread() const noexcept { pthread_sigmask(SIG_SETMASK, &mask_, nullptr); }
  // From now on, the first thread will have the mask of the thread that calls this.
  void keep_mask_of_this_thread() noexcept { pthread_sigmask(SIG_SETMASK, nullptr, &mask_); }

 private:
  sigset_t mask_{};
};

// Runs `body` in a thread with a larger stack, and gives later threads such stacks. A signal that `body` blocks, in
// order to wait for it, would end the process if the first thread took it.
void run_with_larger_stacks(const std::function<void()>& body) {
  NoSignals first_thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
  std::thread([&] {
    first_thread.leave_to_this_thread();
    body();
    first_thread.keep_mask_of_this_thread();
  }).join();
}

int fail(const char* program, const char* what, const char* why) noexcept {
  std::fprintf(stderr, "%s: %s%s\n", program, what, why);
  std::fflush(stderr);
  return failed_status;
}

}  // namespace

int run(const char* program, const std::function<int()>& body) noexcept {
  open_standard_descriptors();
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
  make_stderr_total();
  int status = failed_status;
  const auto run_body = [&] {
    try {
      status = body();
    } catch (const std::bad_alloc&) {
      status =
          fail(program, "not enough memory: give it less to hold, or raise ulimit -v or the memory of its cgroup", "");
    } catch (const std::exception& error) {
      if (!output_lost()) status = fail(program, "", error.what());
    }
  };
  try {
    if (stacks_are_too_small()) {
      run_with_larger_stacks(run_body);
    } else {
      run_body();
    }
  } catch (const std::exception& error) {
    return fail(program, "no thread could be started: ", error.what());
  }
  errno = 0;
  if (std::fflush(stdout) != 0 || output_lost()) {
    const int error = errno;
    // A reader that wants no more, such as head(1), is not a fault to report.
    pollfd reader{STDOUT_FILENO, POLLOUT, 0};
    if (error == EPIPE || (::poll(&reader, 1, 0) > 0 && (reader.revents & POLLERR) != 0)) return failed_status;
    return fail(program,
                "standard output could not be written: ", error != 0 ? std::strerror(error) : "a write failed");
  }
  return status;
}

sigset_t ending_signals() noexcept {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  struct sigaction hangup{};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

void discard_output() noexcept {
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (::dup2(nowhere.get(), fd) < 0) ::_exit(127);
  }
}

void announce(std::string_view line) noexcept { write_or_lose(STDOUT_FILENO, line); }

void raise_descriptor_limit(std::uint64_t descriptors) noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= descriptors) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, descriptors);
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));
}

bool output_lost() noexcept { return std::ferror(stdout) != 0; }

}  // namespace hawser::process
