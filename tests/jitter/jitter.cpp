// A library that is preloaded into a test program. It delays the calls in which threads meet, at random places and for
// random times, so that orders of threads and pauses of a busy machine occur that are rare otherwise. JITTER_SEED is
// the seed: seed % 4 chooses the kind of delays. docs/tests.md, "Delays".
#include <dlfcn.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <new>
#include <string_view>

namespace {

using Microseconds = std::uint64_t;

// One of `one_in` calls is delayed by `least` to `most`.
struct Delay {
  std::uint64_t one_in;
  Microseconds least;
  Microseconds most;
};
constexpr Delay short_delay{200, 0, 3'000};
constexpr Delay rare_delay{5'000, 0, 60'000};
constexpr Delay frequent_delay{20, 0, 3'000};
constexpr Delay published_delay{4, 2'000, 15'000};
// Longer than LoopOptions::blocked_max.
constexpr Delay long_delay{150, 110'000, 400'000};
constexpr Delay close_delay{2, 100, 20'000};
constexpr Delay start_delay{3, 0, 60'000};
// A thread sleeps half of its time at most, and a little at its start.
constexpr Microseconds free_sleep = 500'000;

// The effect of the call for other threads.
enum class Moment : std::uint8_t { any, published, closing, starting };

struct ThreadState {
  std::uint64_t random = 0;
  Microseconds begun = 0;
  Microseconds slept = 0;
  bool inside = false;  // The delay itself makes calls that are wrapped.
};
constinit thread_local ThreadState state;
constinit std::atomic<std::uint64_t> threads{0};

Microseconds clock_us() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<Microseconds>(now.tv_sec) * 1'000'000 + static_cast<Microseconds>(now.tv_nsec) / 1'000;
}

std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31U);
}

// 0 if this program is not a test program, such as a child of one.
std::uint64_t read_seed() {
  const char* const text = std::getenv("JITTER_SEED");
  const bool test = std::string_view(program_invocation_short_name).ends_with("_test");
  return text != nullptr && test ? std::strtoull(text, nullptr, 10) : 0;
}
std::uint64_t seed() {
  static constinit std::atomic<std::uint64_t> known{UINT64_MAX};
  std::uint64_t value = known.load(std::memory_order_relaxed);
  if (value == UINT64_MAX) known.store(value = read_seed(), std::memory_order_relaxed);
  return value;
}

void sleep_us(Microseconds duration) {
  const Microseconds now = clock_us();
  if (state.slept > (now - state.begun) / 2 + free_sleep) return;
  state.slept += duration;
  const timespec time{static_cast<time_t>(duration / 1'000'000), static_cast<long>(duration % 1'000'000) * 1'000};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
}

void maybe(const Delay& delay) {
  const std::uint64_t random = mixed(++state.random);
  if (random % delay.one_in == 0) sleep_us(delay.least + (random >> 32U) % (delay.most - delay.least));
}

void delay(Moment moment) {
  if (state.inside || seed() == 0) return;
  state.inside = true;
  const int error = errno;
  if (state.begun == 0) {
    state.begun = clock_us();
    state.random = mixed(seed() << 20U ^ ++threads);
  }
  const std::uint64_t kind = seed() % 4;
  maybe(rare_delay);
  maybe(kind == 2 ? frequent_delay : short_delay);
  if (kind == 0) maybe(long_delay);
  if (kind == 1 && moment == Moment::published) maybe(published_delay);
  if (kind == 3 && moment == Moment::closing) maybe(close_delay);
  if (kind == 3 && moment == Moment::starting) maybe(start_delay);
  errno = error;
  state.inside = false;
}

// Calls the function that `wrapper` hides.
template <auto wrapper, class... Arguments>
auto around(const char* name, Moment moment, Arguments... arguments) {
  static constinit std::atomic<void*> real{nullptr};
  if (real.load(std::memory_order_relaxed) == nullptr) {
    state.inside = true;
    real.store(dlsym(RTLD_NEXT, name), std::memory_order_relaxed);
    state.inside = false;
  }
  delay(moment == Moment::published ? Moment::any : moment);
  const auto result = reinterpret_cast<decltype(wrapper)>(real.load(std::memory_order_relaxed))(arguments...);
  delay(moment);
  return result;
}

struct Start {
  void* (*function)(void*);
  void* argument;
};
void* begin_thread(void* given) {
  const Start start = *static_cast<Start*>(given);
  std::free(given);
  delay(Moment::starting);
  return start.function(start.argument);
}

}  // namespace

extern "C" {

ssize_t read(int fd, void* to, size_t bytes) { return around<&read>("read", Moment::any, fd, to, bytes); }
ssize_t write(int fd, const void* from, size_t bytes) {
  return around<&write>("write", Moment::published, fd, from, bytes);
}
ssize_t recv(int fd, void* to, size_t bytes, int flags) {
  return around<&recv>("recv", Moment::any, fd, to, bytes, flags);
}
ssize_t send(int fd, const void* from, size_t bytes, int flags) {
  return around<&send>("send", Moment::published, fd, from, bytes, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return around<&recvmsg>("recvmsg", Moment::any, fd, message, flags);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return around<&sendmsg>("sendmsg", Moment::published, fd, message, flags);
}
int connect(int fd, const sockaddr* to, socklen_t bytes) {
  return around<&connect>("connect", Moment::published, fd, to, bytes);
}
int accept4(int fd, sockaddr* from, socklen_t* bytes, int flags) {
  return around<&accept4>("accept4", Moment::any, fd, from, bytes, flags);
}
int close(int fd) { return around<&close>("close", Moment::closing, fd); }
int shutdown(int fd, int how) noexcept { return around<&shutdown>("shutdown", Moment::closing, fd, how); }
int poll(pollfd* all, nfds_t count, int timeout) { return around<&poll>("poll", Moment::any, all, count, timeout); }
int epoll_ctl(int poller, int operation, int fd, epoll_event* event) noexcept {
  return around<&epoll_ctl>("epoll_ctl", Moment::any, poller, operation, fd, event);
}
int epoll_wait(int poller, epoll_event* events, int count, int timeout) {
  return around<&epoll_wait>("epoll_wait", Moment::any, poller, events, count, timeout);
}
int epoll_pwait2(int poller, epoll_event* events, int count, const timespec* timeout, const sigset_t* signals) {
  return around<&epoll_pwait2>("epoll_pwait2", Moment::any, poller, events, count, timeout, signals);
}
int eventfd_read(int fd, eventfd_t* value) { return around<&eventfd_read>("eventfd_read", Moment::any, fd, value); }
int eventfd_write(int fd, eventfd_t value) {
  return around<&eventfd_write>("eventfd_write", Moment::published, fd, value);
}
int sched_yield() noexcept { return around<&sched_yield>("sched_yield", Moment::any); }
int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  return around<&pthread_mutex_lock>("pthread_mutex_lock", Moment::any, mutex);
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  return around<&pthread_mutex_unlock>("pthread_mutex_unlock", Moment::any, mutex);
}
int pthread_join(pthread_t thread, void** result) {
  return around<&pthread_join>("pthread_join", Moment::any, thread, result);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                   void* argument) noexcept {
  auto* const start = static_cast<Start*>(std::malloc(sizeof(Start)));
  if (start == nullptr) return EAGAIN;
  *start = {function, argument};
  const int failed = around<&pthread_create>("pthread_create", Moment::starting, thread, attributes, &begin_thread,
                                             static_cast<void*>(start));
  if (failed != 0) std::free(start);
  return failed;
}
// The library waits for futexes by it.
long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  std::array<long, 6> all{};
  for (long& one : all) one = va_arg(list, long);
  va_end(list);
  const bool wakes = number == SYS_futex && (all[1] & FUTEX_CMD_MASK) == FUTEX_WAKE;
  return around<&syscall>("syscall", wakes ? Moment::published : Moment::any, number, all[0], all[1], all[2], all[3],
                          all[4], all[5]);
}

}  // extern "C"
