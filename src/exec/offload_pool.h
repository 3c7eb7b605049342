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

namespace hawser::exec {

// Threads for work that blocks. Started one by one as work waits, up to a bound; joined by the destructor, which
// lets the work at hand end and drops what still waits.
//
// Work comes from clients, such as connections, which are told apart by an address that is not used otherwise. Clients
// with waiting work take turns. The client null stands for the application itself.
class OffloadPool {
 public:
  using Ticket = std::uint64_t;  // Of a piece of work; never 0.

  // `owner`: what owner_of_this_thread() gives on the pool's threads.
  OffloadPool(unsigned threads_max, std::size_t queue_max, Loop* owner) noexcept
      : threads_max_(threads_max), queue_max_(queue_max), owner_(owner) {}
  OffloadPool(const OffloadPool&) = delete;
  OffloadPool& operator=(const OffloadPool&) = delete;
  ~OffloadPool();

  // 0, and `work` is dropped, if queue_max pieces wait already, if as many of `client` wait as there are free places,
  // or if no thread could be started. So one client gets half of the places, and the next still finds some.
  Ticket submit(const void* client, std::unique_ptr<detail::Posted> work);
  // Drops the work of that ticket if it still waits. False: it runs or has run, and its end is its own matter.
  bool withdraw(const void* client, Ticket ticket) noexcept;

  static Loop* owner_of_this_thread() noexcept;

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
  void serve();
  std::unique_ptr<detail::Posted> take();
  void remove(Clients::iterator client) noexcept;

  const unsigned threads_max_;
  const std::size_t queue_max_;
  Loop* const owner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Clients clients_;  // Whose turn it is first. Guarded by mutex_, as are the rest.
  std::unordered_map<const void*, Clients::iterator> by_key_;
  std::size_t waiting_ = 0;
  std::size_t idle_ = 0;
  Ticket last_ticket_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hawser::exec
