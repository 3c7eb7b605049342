#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "hawser/loop.h"

namespace hawser::exec {

// Threads for work that blocks. Started one by one as work waits, up to a bound; joined by the destructor, which
// lets the work at hand end and drops what still waits.
class OffloadPool {
 public:
  OffloadPool(unsigned threads_max, std::size_t queue_max) noexcept
      : threads_max_(threads_max), queue_max_(queue_max) {}
  OffloadPool(const OffloadPool&) = delete;
  OffloadPool& operator=(const OffloadPool&) = delete;
  ~OffloadPool();

  // False, and `work` is dropped, if queue_max pieces wait already or no thread could be started.
  bool submit(std::unique_ptr<detail::Posted> work);

 private:
  bool enough_threads();
  void serve();

  const unsigned threads_max_;
  const std::size_t queue_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  detail::Posted* first_ = nullptr;  // Guarded by mutex_, as are the rest.
  detail::Posted** last_ = &first_;
  std::size_t waiting_ = 0;
  std::size_t idle_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hawser::exec
