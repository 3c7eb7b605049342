#pragma once

#include <functional>
#include <memory>

#include "exec/offload_pool.h"
#include "hawser/loop.h"

namespace hawser::transport::rdma {

// What one loop has done on its device's helper thread, since the kernel may block it: making, connecting and
// destroying queue pairs. In order, one after the other; loops take turns.
class SideWork {
 public:
  // Called on the loop.
  using After = std::move_only_function<void()>;
  // Called on the helper thread.
  using Work = std::move_only_function<After()>;

  // `helper` may block; null for devices that belong to the loop's thread: their work is done there, by a later tick.
  SideWork(Loop& loop, std::shared_ptr<exec::OffloadPool> helper);
  SideWork(const SideWork&) = delete;
  SideWork& operator=(const SideWork&) = delete;
  ~SideWork() { close(); }

  // Does `work`, and then what it returns. Work may use what outlives close(). False, and nothing is done, if too much
  // waits.
  [[nodiscard]] bool run(Work work);
  // What has not begun is dropped, and what has begun is waited for. Nothing is called afterwards. Loop's thread.
  void close() noexcept;

 private:
  struct State;
  struct Job;

  Loop& loop_;
  const std::shared_ptr<exec::OffloadPool> helper_;
  const std::shared_ptr<State> state_;
};

}  // namespace hawser::transport::rdma
