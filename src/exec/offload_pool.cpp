#include "exec/offload_pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "exec/idle_functions.h"
#include "os/process_id.h"

namespace hawser::exec {
namespace {

thread_local Loop* owner_here = nullptr;

Time clock_now() noexcept { return Time(std::chrono::steady_clock::now().time_since_epoch()); }

}  // namespace

Loop* OffloadPool::owner_of_this_thread() noexcept { return owner_here; }

OffloadPool::~OffloadPool() {
  {
    Clients dropped;  // Destroyed without the lock, because a destructor may run any code.
    const std::lock_guard lock(mutex_);
    ending_ = true;
    waiting_ = 0;
    by_key_.clear();
    dropped.swap(clients_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void OffloadPool::Deleter::operator()(OffloadPool* pool) const noexcept {
  if (pool->process_ == 0 || pool->process_ == process_id()) delete pool;
}

OffloadPool::Ticket OffloadPool::submit(const void* client, std::unique_ptr<detail::Posted> work) {
  const std::lock_guard lock(mutex_);
  if (waiting_ >= queue_max_) return 0;
  const auto known = by_key_.find(client);
  const bool waits = known != by_key_.end();
  if (client != nullptr && waits && known->second->queue.size() >= queue_max_ - waiting_) return 0;
  if (!enough_threads()) return 0;
  std::list<QueuedJob> one;
  one.push_back({std::move(work), last_ticket_ + 1});
  if (waits) {
    known->second->queue.splice(known->second->queue.end(), one);
  } else {
    clients_.push_back({client, std::move(one)});
    try {
      by_key_.emplace(client, std::prev(clients_.end()));
    } catch (...) {
      clients_.pop_back();
      throw;
    }
  }
  ++waiting_;
  changed_.notify_one();
  return ++last_ticket_;
}

bool OffloadPool::withdraw(const void* client, Ticket ticket) noexcept {
  std::list<QueuedJob> dropped;  // Destroyed without the lock, because its destructor may run any code.
  const std::lock_guard lock(mutex_);
  const auto known = by_key_.find(client);
  if (known == by_key_.end()) return false;
  const Clients::iterator from = known->second;
  const auto found =
      std::find_if(from->queue.begin(), from->queue.end(), [&](const QueuedJob& one) { return one.ticket == ticket; });
  if (found == from->queue.end()) return false;
  dropped.splice(dropped.end(), from->queue, found);
  --waiting_;
  if (from->queue.empty()) remove(from);
  return true;
}

void OffloadPool::remove(Clients::iterator client) noexcept {
  by_key_.erase(client->key);
  clients_.erase(client);
}

// Returns the oldest work of the client whose turn it is. That client then gets the last turn.
std::unique_ptr<detail::Posted> OffloadPool::take() {
  const Clients::iterator client = clients_.begin();
  std::unique_ptr<detail::Posted> work = std::move(client->queue.front().work);
  client->queue.pop_front();
  --waiting_;
  if (client->queue.empty()) {
    remove(client);
  } else {
    clients_.splice(clients_.end(), clients_, client);
  }
  return work;
}

// Starts a thread if one more piece of work needs it. Returns false if the pool has no thread at all.
bool OffloadPool::enough_threads() {
  if (waiting_ >= idle_ && threads_.size() < threads_max_) {
    // Made here, since the thread itself could not report that there is no memory.
    const auto place = caches_.emplace(caches_.end());
    try {
      threads_.emplace_back([this, place] { serve(*place); });
      process_ = process_id();
    } catch (const std::system_error&) {
      // The system provides no more threads: the existing threads do the work one piece after the other.
      caches_.erase(place);
    } catch (...) {
      caches_.erase(place);
      throw;
    }
  }
  return !threads_.empty();
}

OffloadPool::Caches OffloadPool::caches() const {
  const std::lock_guard lock(mutex_);
  Caches all{.threads = threads_.size(), .bytes = {}};
  for (const ThreadCaches& one : caches_) all.bytes += one.read();
  return all;
}

void OffloadPool::serve(ThreadCaches& caches) {
  owner_here = owner_;
  std::unique_lock lock(mutex_);
  caches = ThreadCaches::local();
  serve_until_end(lock);
  caches = {};  // They end with this thread.
}

// A thread that waits returns what its caches have not used. It sleeps without a limit when they keep nothing.
// Meanwhile it does not count as idle, so that work which arrives gets another thread.
void OffloadPool::wait_for_work(std::unique_lock<std::mutex>& lock, IdleMemory& memory) {
  const ThreadCaches caches = ThreadCaches::local();
  while (!ending_ && waiting_ == 0) {
    if (!memory.needed(caches)) {
      sleep_until_work(changed_, lock, forever);
      continue;
    }
    if (const Duration left = memory.due() - clock_now(); left > Duration::zero()) {
      sleep_until_work(changed_, lock, left);
      continue;
    }
    --idle_;
    lock.unlock();
    if (memory.release(clock_now()) == IdleMemory::Released::all_trim_due) AllocatorTrim::of_process().run();
    lock.lock();
    ++idle_;
  }
}

void OffloadPool::serve_until_end(std::unique_lock<std::mutex>& lock) {
  IdleMemory memory(clock_now(), idle_period_);
  for (;;) {
    ++idle_;
    wait_for_work(lock, memory);
    --idle_;
    if (ending_) return;
    std::unique_ptr<detail::Posted> work = take();
    lock.unlock();
    work->run();
    work.reset();
    lock.lock();
  }
}

}  // namespace hawser::exec

namespace hawser::detail {

const char* offload_refusal(bool of_no_client) noexcept {
  return of_no_client
             ? "offload_queue_max blocking calls are waiting for a thread already: raise "
               "LoopOptions::offload_threads_max or offload_queue_max, or send less"
             : "too many blocking calls are waiting for a thread, in all or of this connection, which may have "
               "half of the free places of offload_queue_max: raise LoopOptions::offload_threads_max or "
               "offload_queue_max, or send less";
}

}  // namespace hawser::detail
