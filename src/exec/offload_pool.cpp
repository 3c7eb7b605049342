#include "exec/offload_pool.h"

#include <system_error>
#include <utility>

namespace hawser::exec {

OffloadPool::~OffloadPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  while (first_ != nullptr) delete std::exchange(first_, first_->next);
}

bool OffloadPool::submit(std::unique_ptr<detail::Posted> work) {
  const std::lock_guard lock(mutex_);
  if (waiting_ >= queue_max_ || !enough_threads()) return false;
  work->next = nullptr;
  *last_ = work.get();
  last_ = &work.release()->next;
  ++waiting_;
  changed_.notify_one();
  return true;
}

// Starts a thread if one more piece of work needs it. False if there is none at all.
bool OffloadPool::enough_threads() {
  if (waiting_ >= idle_ && threads_.size() < threads_max_) {
    try {
      threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {
      // The system has no more: the threads there are take the work one after the other.
    }
  }
  return !threads_.empty();
}

void OffloadPool::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return ending_ || first_ != nullptr; });
    --idle_;
    if (ending_) return;
    std::unique_ptr<detail::Posted> work(first_);
    first_ = work->next;
    if (first_ == nullptr) last_ = &first_;
    --waiting_;
    lock.unlock();
    work->run();
    work.reset();
    lock.lock();
  }
}

}  // namespace hawser::exec
