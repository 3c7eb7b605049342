#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "hawser/loop.h"
#include "heap/idle_memory.h"

namespace hawser::exec {

// Threads for blocking work. They are started one by one when work waits, up to a limit. The destructor drops the work
// that waits, waits for the work that runs, and joins the threads.
//
// Work belongs to clients, such as connections. An address that has no other use identifies a client. Clients with
// waiting work take turns. Null identifies the application itself.
class OffloadPool {
 public:
  using Ticket = std::uint64_t;  // Identifies a piece of work; never 0.

  // owner_of_this_thread() returns `owner` on the threads of the pool. They return memory that their caches have not
  // used for `idle_period`.
  OffloadPool(unsigned threads_max, std::size_t queue_max, Loop* owner,
              Duration idle_period = idle_memory_period) noexcept
      : threads_max_(threads_max), queue_max_(queue_max), owner_(owner), idle_period_(idle_period) {}
  OffloadPool(const OffloadPool&) = delete;
  OffloadPool& operator=(const OffloadPool&) = delete;
  ~OffloadPool();

  // Destroys a pool, except in a child process made by fork(). The threads do not exist there, and one of them may have
  // held the lock: the destructor would wait for ever.
  struct Deleter {
    void operator()(OffloadPool* pool) const noexcept;
  };

  // Returns 0 and drops `work` if queue_max pieces wait already, if as many pieces of `client` wait as there are free
  // places, or if no thread could be started. So one client uses at most half of the places, and another client still
  // finds free ones.
  Ticket submit(const void* client, std::unique_ptr<detail::Posted> work);
  // Drops the work of that ticket if it still waits. Returns false if the work runs or has run; it then ends by itself.
  bool withdraw(const void* client, Ticket ticket) noexcept;

  static Loop* owner_of_this_thread() noexcept;

  // The memory that the caches of its threads keep.
  struct Caches {
    std::size_t threads = 0;
    CachedMemory bytes;
  };
  Caches caches() const;  // Any thread.

 private:
  struct QueuedJob {
    std::unique_ptr<detail::Posted> work;
    Ticket ticket;
  };
  struct Client {
    const void* key;
    std::list<QueuedJob> queue;  // Never empty.
  };
  using Clients = std::list<Client>;

  bool enough_threads();
  void serve(ThreadCaches& caches);
  void serve_until_end(std::unique_lock<std::mutex>& lock);
  void wait_for_work(std::unique_lock<std::mutex>& lock, IdleMemory& memory);
  std::unique_ptr<detail::Posted> take();
  void remove(Clients::iterator client) noexcept;

  const unsigned threads_max_;
  const std::size_t queue_max_;
  Loop* const owner_;
  const Duration idle_period_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Clients clients_;  // The next client in turn is the first. Guarded by mutex_, like the following members.
  std::unordered_map<const void*, Clients::iterator> by_key_;
  std::size_t waiting_ = 0;
  std::size_t idle_ = 0;
  Ticket last_ticket_ = 0;
  bool ending_ = false;
  int process_ = 0;  // Process of the threads; 0 before the first one.
  std::vector<std::thread> threads_;
  std::list<ThreadCaches> caches_;  // One for each thread that serves.
};

}  // namespace hawser::exec
