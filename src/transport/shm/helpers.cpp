#include "transport/shm/helpers.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace hawser::transport::shm {
namespace {

// Starts a thread that nobody joins and that no signal reaches. False if the system has no more threads.
template <class F>
bool run_apart(F work) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread(std::move(work)).detach();
  } catch (const std::exception&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace

struct Helpers::State {
  struct Job {
    pid_t peer = 0;
    std::function<void()> work;
  };

  std::mutex mutex;  // Guards the members below.
  std::condition_variable changed;
  std::deque<Job> jobs;       // An idle thread exists for each job.
  std::vector<pid_t> served;  // The peers of all jobs that wait or run.
  std::size_t threads = 0;
  std::size_t idle = 0;
  bool ending = false;
  std::deque<Descriptor> disposals;  // The first is being closed while `disposing`.
  bool disposing = false;
};

Helpers::Helpers() : state_(std::make_shared<State>()) {}

Helpers::~Helpers() {
  // In a child the threads do not exist, and the lock may be held forever. The objects are not destroyed there.
  if (!mark_.is_ours()) {
    static_cast<void>(new std::shared_ptr<State>(std::move(state_)));
    return;
  }
  std::unique_lock lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
  state_->changed.wait(lock, [this] { return state_->idle == 0; });
}

bool Helpers::start(pid_t peer, std::function<void()> work) {
  if (!mark_.is_ours()) return false;
  const std::lock_guard lock(state_->mutex);
  State& state = *state_;
  if (std::count(state.served.begin(), state.served.end(), peer) >= static_cast<std::ptrdiff_t>(threads_of_peer_max)) {
    return false;
  }
  if (state.jobs.size() >= state.idle) {
    if (state.threads == threads_max || !run_apart([shared = state_] { serve(shared); })) return false;
    ++state.threads;
    ++state.idle;
  }
  state.served.push_back(peer);
  state.jobs.push_back({peer, std::move(work)});
  state.changed.notify_all();
  return true;
}

// The thread that started it has counted it as idle.
void Helpers::serve(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  for (;;) {
    const bool work = state->changed.wait_for(lock, std::chrono::seconds(idle_seconds),
                                              [&] { return state->ending || !state->jobs.empty(); });
    --state->idle;
    if (state->ending) state->changed.notify_all();
    if (state->jobs.empty() && (!work || state->ending)) break;
    State::Job job = std::move(state->jobs.front());
    state->jobs.pop_front();
    lock.unlock();
    job.work();
    job.work = nullptr;
    lock.lock();
    state->served.erase(std::find(state->served.begin(), state->served.end(), job.peer));
    ++state->idle;
  }
  --state->threads;
  state->changed.notify_all();
}

void Helpers::dispose(Descriptor descriptor) {
  if (!descriptor.valid() || !mark_.is_ours()) return;
  const std::lock_guard lock(state_->mutex);
  state_->disposals.push_back(std::move(descriptor));
  if (!state_->disposing) state_->disposing = run_apart([shared = state_] { close_all(shared); });
}

void Helpers::dispose_socket(Descriptor socket) {
  // A child shares the socket with its parent, which continues to use it.
  if (!socket.valid() || !mark_.is_ours()) return;
  // Nothing arrives from now on. The socket contains only bytes, unless the peer is hostile.
  shutdown(socket.get(), SHUT_RD);
  std::array<char, 1024> bytes;
  for (int i = 0; i < 16; ++i) {
    iovec space{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &space;
    message.msg_iovlen = 1;
    const ssize_t seen = recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_PEEK);
    if (seen == 0 && (message.msg_flags & MSG_CTRUNC) == 0) return;
    if (seen <= 0 || (message.msg_flags & MSG_CTRUNC) != 0) break;
    if (recv(socket.get(), bytes.data(), static_cast<std::size_t>(seen), MSG_DONTWAIT) <= 0) break;
  }
  dispose(std::move(socket));
}

void Helpers::close_all(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (!state->disposals.empty()) {
    {
      const Descriptor closed(std::move(state->disposals.front()));
      lock.unlock();
    }
    lock.lock();
    state->disposals.pop_front();
  }
  state->disposing = false;
}

bool Helpers::may_receive() const {
  if (!mark_.is_ours()) return false;
  const std::lock_guard lock(state_->mutex);
  return state_->disposals.size() < disposals_max;
}

}  // namespace hawser::transport::shm
