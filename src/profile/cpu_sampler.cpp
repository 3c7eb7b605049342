#include "profile/cpu_sampler.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>
#include <thread>

#include "base/at_fork.h"

namespace hawser {

struct CpuSampler::Ring {
  std::atomic<std::size_t> claimed{0};
  std::vector<Sample> samples = std::vector<Sample>(samples_max);
};

namespace {

// Frames of the signal handler and of the kernel's trampoline, which every stack begins with.
constexpr int handler_frames = 2;

// The data of the signal handler. A handler that finds no ring does nothing, so it stays installed: a signal may be
// pending when a sampler ends, and would end the process otherwise.
struct Target {
  std::atomic<std::atomic<std::size_t>*> claimed{nullptr};
  std::atomic<CpuSampler::Sample*> samples{nullptr};
  std::atomic<int> handlers{0};  // Running now.
  std::mutex lock;               // Guards the next two members.
  bool used = false;
  bool installed = false;
};

Target& target() noexcept {
  static Target one;
  return one;
}

// Only async-signal-safe functions, after backtrace() has run once: then it neither allocates nor takes a lock.
void on_sigprof(int, siginfo_t*, void*) {
  const int saved = errno;
  Target& to = target();
  to.handlers.fetch_add(1);
  if (std::atomic<std::size_t>* const claimed = to.claimed.load()) {
    const std::size_t at = claimed->fetch_add(1, std::memory_order_relaxed);
    if (at < CpuSampler::samples_max) {
      std::array<void*, CpuSampler::frames_max + handler_frames> frames;
      const int depth = backtrace(frames.data(), static_cast<int>(frames.size()));
      CpuSampler::Sample& sample = to.samples.load()[at];
      sample.thread = static_cast<std::int32_t>(syscall(SYS_gettid));
      const int kept = std::max(depth - handler_frames, 0);
      for (int i = 0; i < kept; ++i) {
        sample.frames[static_cast<std::size_t>(i)] = frames[static_cast<std::size_t>(i + handler_frames)];
      }
      sample.depth = static_cast<std::uint32_t>(kept);
    }
  }
  to.handlers.fetch_sub(1);
  errno = saved;
}

Error unavailable(std::string why) { return Error::of_call(ErrorCode::unavailable, std::move(why)); }

// Installs the handler once for the life of the process. False if the application has one.
bool install(Target& to) {
  if (to.installed) return true;
  struct sigaction before{};
  if (sigaction(SIGPROF, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return false;
  std::array<void*, 2> unused;
  backtrace(unused.data(), static_cast<int>(unused.size()));  // Loads the unwinder.
  struct sigaction action{};
  action.sa_sigaction = on_sigprof;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  to.installed = sigaction(SIGPROF, &action, nullptr) == 0;
  // A child process has neither the timers nor the threads of its parent, so that no sampler runs there.
  if (to.installed) {
    at_fork([] { target().lock.lock(); }, [] { target().lock.unlock(); },
            [] {
              Target& child = target();
              child.claimed.store(nullptr);
              child.handlers.store(0);
              child.used = false;
              child.lock.unlock();
            });
  }
  return to.installed;
}

// The first threads_max threads of the process, the oldest first; the others are counted in `beyond`.
std::vector<std::int32_t> thread_ids(std::size_t& beyond) {
  std::vector<std::int32_t> ids;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    const std::string name = entry.path().filename();
    std::int32_t id = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), id).ec != std::errc()) continue;
    if (ids.size() < CpuSampler::threads_max) {
      ids.push_back(id);
    } else {
      ++beyond;
    }
  }
  return ids;
}

// The clock of a thread's processor time, as the kernel encodes it (linux/posix-timers.h).
clockid_t clock_of(std::int32_t thread) noexcept {
  constexpr unsigned per_thread = 4;
  constexpr unsigned sched = 2;
  return static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | per_thread | sched);
}

}  // namespace

CpuSampler::CpuSampler() : ring_(std::make_unique<Ring>()) {}

Result<std::unique_ptr<CpuSampler>> CpuSampler::begin(unsigned hertz) {
  std::unique_ptr<CpuSampler> sampler(new CpuSampler);
  Target& to = target();
  {
    const std::lock_guard guard(to.lock);
    if (to.used)
      return fail(ErrorCode::overloaded, "a profile of this process is being taken: wait until it has ended");
    if (!install(to)) return fail(unavailable("the application handles SIGPROF itself"));
    to.used = true;
  }
  sampler->running_ = true;  // From now on its destructor ends it.
  sampler->process_ = ::getpid();
  to.samples.store(sampler->ring_->samples.data());
  to.claimed.store(&sampler->ring_->claimed);
  const long period_ns = 1'000'000'000L / static_cast<long>(std::clamp(hertz, 1U, 1000U));
  const itimerspec period{{period_ns / 1'000'000'000L, period_ns % 1'000'000'000L},
                          {period_ns / 1'000'000'000L, period_ns % 1'000'000'000L}};
  for (const std::int32_t thread : thread_ids(sampler->left_out_)) {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGPROF;
    event._sigev_un._tid = thread;
    timer_t timer = nullptr;
    if (timer_create(clock_of(thread), &event, &timer) != 0) {
      // Otherwise the thread has ended meanwhile.
      if (errno == EAGAIN || errno == ENOMEM) ++sampler->left_out_;
      continue;
    }
    sampler->timers_.push_back(timer);
    timer_settime(timer, 0, &period, nullptr);
  }
  if (sampler->timers_.empty()) return fail(unavailable("the kernel gives no timers of processor time"));
  return sampler;
}

CpuSampler::~CpuSampler() { stop(); }

void CpuSampler::end() noexcept {
  if (running_ && process_ == ::getpid()) target().claimed.store(nullptr);
}

void CpuSampler::stop() noexcept {
  if (!running_) return;
  running_ = false;
  if (process_ != ::getpid()) return;  // The copy of a sampler in a child process.
  for (void* const timer : timers_) timer_delete(timer);
  Target& to = target();
  to.claimed.store(nullptr);
  while (to.handlers.load() != 0) std::this_thread::yield();
  const std::lock_guard guard(to.lock);
  to.used = false;
}

std::span<const CpuSampler::Sample> CpuSampler::samples() const noexcept {
  return std::span(ring_->samples).first(std::min(ring_->claimed.load(), samples_max));
}

std::uint64_t CpuSampler::lost() const noexcept {
  const std::size_t claimed = ring_->claimed.load();
  return claimed > samples_max ? claimed - samples_max : 0;
}

std::string thread_name(std::int32_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/comm");
  std::string name;
  return std::getline(file, name) && !name.empty() ? name : "thread " + std::to_string(thread);
}

}  // namespace hawser
