#include "profile/wait_sampler.h"

#include <dirent.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "base/at_fork.h"
#include "base/descriptor.h"
#include "base/processor.h"
#include "base/random.h"
#include "os/thread_schedule.h"
#include "profile/allocation_sampler.h"
#include "profile/cpu_sampler.h"
#include "profile/sleeping_stack.h"

namespace hawser {
namespace {

using Clock = std::chrono::steady_clock;

// The process whose sampler exists. A child process has another number, and so no sampler.
std::atomic<int> process_of_sampler{0};

// Held while a sample is taken, and by fork(). A child process would get the locks that the thread holds then, those
// of the dynamic linker among them, and nobody would release them there.
constinit std::mutex pass_mutex;

void prepare_forks() {
  static const bool done = [] {
    // The handlers that are registered last run first. The sampler's thread allocates during a sample, so that
    // fork() must wait for the sample before it takes the lock of allocations.
    AllocationSampler::prepare_forks();
    at_fork([] { pass_mutex.lock(); }, [] { pass_mutex.unlock(); }, [] { pass_mutex.unlock(); });
    return true;
  }();
  static_cast<void>(done);
}

struct OpenFolder {
  explicit OpenFolder(const char* path)
      : OpenFolder(above_standard(::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC))) {}
  explicit OpenFolder(int file) noexcept : stream(file < 0 ? nullptr : ::fdopendir(file)) {
    if (file >= 0 && stream == nullptr) ::close(file);
  }
  OpenFolder(const OpenFolder&) = delete;
  OpenFolder& operator=(const OpenFolder&) = delete;
  ~OpenFolder() {
    if (stream != nullptr) ::closedir(stream);
  }
  DIR* const stream;
};

// True if the last call failed because of a limit on open files.
bool lacks_descriptors() noexcept { return errno == EMFILE || errno == ENFILE; }

// The first line of a small file below `folder`; empty if it cannot be read. errno says why.
std::string_view read_line(int folder, std::int32_t thread, const char* name, std::span<char> to) {
  std::array<char, 48> path{};
  std::snprintf(path.data(), path.size(), "%d/%s", static_cast<int>(thread), name);
  const Descriptor file(::openat(folder, path.data(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return {};
  const ssize_t size = ::read(file.get(), to.data(), to.size());
  return {to.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

// A wait of a thread: two waits of a thread are the same one if the thread has not run in between.
struct SampledWait {
  std::int64_t call = 0;
  std::uintptr_t stack = 0;
  std::uintptr_t instruction = 0;
  std::uint64_t runs = 0;  // How often the thread has got a processor.
  bool operator==(const SampledWait&) const = default;
};

// Parses "NUMBER ARGUMENT... STACK INSTRUCTION"; without arguments if the thread waits outside of a system call.
// Nothing for "running".
std::optional<SampledWait> parse_call(std::string_view line) {
  SampledWait wait;
  const char* const end = line.data() + line.size();
  const char* at = std::from_chars(line.data(), end, wait.call).ptr;
  if (at == line.data()) return std::nullopt;
  std::uint64_t before = 0;
  std::uint64_t last = 0;
  std::size_t count = 0;
  while (at != end) {
    if (*at == ' ' || *at == '\n') {
      ++at;
      continue;
    }
    if (end - at > 2 && at[0] == '0' && at[1] == 'x') at += 2;
    before = last;
    const auto [next, error] = std::from_chars(at, end, last, 16);
    if (error != std::errc()) return std::nullopt;
    at = next;
    ++count;
  }
  if (count < 2) return std::nullopt;
  wait.stack = before;
  wait.instruction = last;
  return wait;
}

Error no_profile(std::string why) { return Error::of_call(ErrorCode::unavailable, std::move(why)); }

}  // namespace

struct WaitSampler::State {
  using Key = std::tuple<std::string, std::int64_t, bool, std::vector<const void*>>;
  struct Thread {
    std::string name;
    std::optional<SampledWait> wait = {};  // At the last pass.
    std::size_t stack = none;              // The stack of that wait.
    ReadyTime ready = {};
    std::uint64_t seen = 0;  // The pass.
  };
  static constexpr std::size_t none = ~std::size_t{0};

  void run();
  void pass();
  void look_at(int folder, std::int32_t id, std::uint64_t passed_ns);
  std::optional<SampledWait> wait_of(int folder, std::int32_t id, std::optional<ThreadSchedule>& schedule);
  std::size_t walk(int folder, std::int32_t id, const std::string& name, SampledWait wait);
  void end_thread(const Thread& thread);
  void add_ready_times();

  const int process = ::getpid();
  std::chrono::nanoseconds period{};
  std::vector<const void*> idle;
  OwnMemory memory;
  std::mutex mutex;
  std::condition_variable changed;
  bool ending = false;  // Guarded by mutex.
  // The thread of the sampler uses the following until it has ended.
  std::int32_t own = 0;
  Clock::time_point last = Clock::now();
  std::map<std::int32_t, Thread> threads;            // The threads of the last pass.
  std::map<std::string, std::uint64_t> ready_times;  // Ended threads have it by name; threads_max names.
  std::map<Key, std::size_t> known;
  std::vector<Stack> stacks;
  std::uint64_t lost_ns = 0;
  std::uint64_t passes = 0;
  std::uint64_t failed_passes = 0;
  bool failed = false;  // This pass.
  std::uint64_t threads_seen = 0;
  std::size_t left_out = 0;
  // Last, because it uses the others. A child process has no such thread and forgets it.
  std::unique_ptr<std::thread> worker;
};

void WaitSampler::State::run() {
  own = static_cast<std::int32_t>(::syscall(SYS_gettid));
  ::pthread_setname_np(::pthread_self(), "wait-sampler");
  Random random(static_cast<std::uint64_t>(own));
  std::unique_lock lock(mutex);
  std::chrono::nanoseconds pause = period;
  while (!changed.wait_for(lock, pause, [this] { return ending; })) {
    lock.unlock();
    const Clock::time_point begin = Clock::now();
    pass();
    const std::chrono::nanoseconds taken = Clock::now() - begin;
    // The period varies by half, so that it is not in step with work that is done at regular times.
    const auto varied = period / 2 + std::chrono::nanoseconds(random.below(static_cast<std::uint64_t>(period.count())));
    pause = std::max(varied - taken, 9 * taken);
    lock.lock();
  }
  lock.unlock();
  pass();
  add_ready_times();
}

// Files stay loaded during a call of dl_iterate_phdr().
void WaitSampler::State::pass() {
  const auto body = [](dl_phdr_info*, std::size_t, void* context) {
    auto& self = *static_cast<State*>(context);
    const OpenFolder tasks("/proc/self/task");
    if (tasks.stream == nullptr) {
      // The next sample has the time of this one too.
      ++self.failed_passes;
      return 1;
    }
    const Clock::time_point now = Clock::now();
    const auto passed = static_cast<std::uint64_t>(std::chrono::nanoseconds(now - self.last).count());
    self.last = now;
    self.failed = false;
    ++self.passes;
    std::size_t count = 0;
    while (const dirent* const entry = ::readdir(tasks.stream)) {
      const std::string_view name = entry->d_name;
      std::int32_t id = 0;
      if (std::from_chars(name.data(), name.data() + name.size(), id).ec != std::errc() || id == self.own) continue;
      if (++count <= threads_max) self.look_at(::dirfd(tasks.stream), id, passed);
    }
    if (count > threads_max) self.left_out = std::max(self.left_out, count - threads_max);
    if (self.failed) ++self.failed_passes;
    std::erase_if(self.threads, [&self](const auto& entry) {
      if (entry.second.seen == self.passes) return false;
      self.end_thread(entry.second);
      return true;
    });
    return 1;
  };
  const std::lock_guard lock(pass_mutex);
  ::dl_iterate_phdr(body, this);
}

std::optional<SampledWait> WaitSampler::State::wait_of(int folder, std::int32_t id,
                                                       std::optional<ThreadSchedule>& schedule) {
  std::array<char, 256> line{};
  // The number of runs is read first: if the thread runs after that, the next reading differs.
  errno = 0;
  schedule = parse_thread_schedule(read_line(folder, id, "schedstat", line));
  failed = failed || (!schedule && lacks_descriptors());
  errno = 0;
  std::optional<SampledWait> wait = parse_call(read_line(folder, id, "syscall", line));
  failed = failed || (!wait && lacks_descriptors());
  if (wait && schedule) wait->runs = schedule->runs;
  return wait;
}

void WaitSampler::State::look_at(int folder, std::int32_t id, std::uint64_t passed_ns) {
  std::optional<ThreadSchedule> schedule;
  const std::optional<SampledWait> wait = wait_of(folder, id, schedule);
  Thread& thread = threads[id];
  if (schedule && !thread.ready.add(*schedule)) {  // Another thread has the number now.
    end_thread(thread);
    thread = {};
    thread.ready.add(*schedule);
  }
  if (thread.seen == 0) {
    ++threads_seen;
    thread.name = thread_name(id);
  }
  const bool at_last_pass = thread.seen + 1 == passes;
  thread.seen = passes;
  if (!wait) {
    thread.wait.reset();
    return;
  }
  // Without schedstat it is not known whether the thread has run.
  const bool same = schedule && at_last_pass && thread.wait == wait;
  if (!same) thread.stack = walk(folder, id, thread.name, *wait);
  thread.wait = wait;
  if (thread.stack == none) {
    thread.wait.reset();
  } else if (thread.stack < stacks.size()) {
    ++stacks[thread.stack].samples;
    stacks[thread.stack].nanoseconds += passed_ns;
  } else {
    lost_ns += passed_ns;
  }
}

// The number of the thread's stack; that behind the last one if there is no room; `none` if the thread ran meanwhile,
// so that it does not wait for long.
std::size_t WaitSampler::State::walk(int folder, std::int32_t id, const std::string& name, SampledWait wait) {
  memory.forget();
  const SleepingStack walked = walk_sleeping(memory, wait.instruction, wait.stack, idle);
  std::optional<ThreadSchedule> schedule;
  if (wait_of(folder, id, schedule) != wait) return none;
  Stack stack{.thread = name, .call = wait.call, .idle = walked.found, .complete = walked.complete};
  stack.frames.assign(walked.frames.begin(), walked.frames.begin() + static_cast<std::ptrdiff_t>(walked.depth));
  Key key{name, stack.call, stack.idle, stack.frames};
  if (const auto at = known.find(key); at != known.end()) return at->second;
  if (stacks.size() == stacks_max) return stacks_max;
  known.emplace(std::move(key), stacks.size());
  stacks.push_back(std::move(stack));
  return stacks.size() - 1;
}

// The kernel measures the time in which a thread is ready; it needs no samples.
void WaitSampler::State::end_thread(const Thread& thread) {
  const std::uint64_t time = thread.ready.nanoseconds();
  if (time == 0) return;
  if (ready_times.size() < threads_max || ready_times.contains(thread.name)) {
    ready_times[thread.name] += time;
  } else {
    lost_ns += time;
  }
}

void WaitSampler::State::add_ready_times() {
  for (const auto& [id, thread] : threads) end_thread(thread);
  for (const auto& [name, time] : ready_times) {
    stacks.push_back({.thread = name, .call = no_processor, .complete = true, .samples = 1, .nanoseconds = time});
  }
}

WaitSampler::WaitSampler() : state_(std::make_unique<State>()) {}

Result<std::unique_ptr<WaitSampler>> WaitSampler::begin(unsigned hertz, std::span<const void* const> idle) {
  if (!walks_sleeping_stacks) return fail(no_profile("profiles of waits need an x86-64 processor"));
  const int process = ::getpid();
  int before = process_of_sampler.load();
  while (before != process && !process_of_sampler.compare_exchange_weak(before, process)) {
  }
  if (before == process) {
    return fail(ErrorCode::overloaded, "a profile of waits of this process is being taken: wait until it has ended");
  }
  prepare_forks();
  std::unique_ptr<WaitSampler> sampler(new WaitSampler);  // From now on its destructor releases the process.
  State& sampling = *sampler->state_;
  sampling.period = std::chrono::nanoseconds(1'000'000'000) / std::clamp(hertz, 1U, 1000U);
  sampling.idle.assign(idle.begin(), idle.end());
  const OpenFolder tasks("/proc/self/task");
  std::array<char, 256> line{};
  const bool shown = tasks.stream != nullptr && !read_line(::dirfd(tasks.stream), ::getpid(), "syscall", line).empty();
  if (!shown || !sampling.memory.usable()) {
    return fail(no_profile("/proc/self/task/" + std::to_string(process) +
                           "/syscall or /proc/self/mem cannot be read: the kernel or a sandbox does not "
                           "show where threads wait"));
  }
  // Handlers of signals run on the threads of the application, and not on this one, which holds locks.
  sigset_t all;
  sigset_t mask;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &mask);
  try {
    sampling.worker = std::make_unique<std::thread>([&sampling] { sampling.run(); });
  } catch (const std::system_error& error) {
    ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    return fail(no_profile(std::string("the system gives no thread for the profile: ") + error.what()));
  }
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  return sampler;
}

WaitSampler::~WaitSampler() {
  if (state_->process != ::getpid()) {
    // The copy in a child process, in which the thread does not exist. Its mutex may be locked for ever.
    static_cast<void>(state_.release());
    return;
  }
  stop();
  process_of_sampler.store(0);
}

void WaitSampler::end() noexcept {
  if (state_->process != ::getpid() || state_->worker == nullptr) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->changed.notify_all();
}

void WaitSampler::stop() noexcept {
  if (state_->process != ::getpid() || state_->worker == nullptr) return;
  end();
  state_->worker->join();
  state_->worker.reset();
}

const std::vector<WaitSampler::Stack>& WaitSampler::stacks() const noexcept { return state_->stacks; }
std::uint64_t WaitSampler::lost_nanoseconds() const noexcept { return state_->lost_ns; }
std::uint64_t WaitSampler::passes() const noexcept { return state_->passes; }
std::uint64_t WaitSampler::failed_passes() const noexcept { return state_->failed_passes; }
std::uint64_t WaitSampler::threads() const noexcept { return state_->threads_seen; }
std::size_t WaitSampler::threads_left_out() const noexcept { return state_->left_out; }

}  // namespace hawser
