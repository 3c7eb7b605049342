#pragma once

#include <functional>
#include <memory>

#include "exec/offload_pool.h"
#include "hawser/loop.h"

namespace hawser::transport::rdma {

// Runs operations of one loop on the device's helper thread, because the kernel may block in them: making, connecting
// and destroying queue pairs. They run in order, one at a time. Loops take turns.
class SideWork {
 public:
  // Runs on the loop.
  using After = std::function<void()>;
  // Runs on the helper thread.
  using Work = std::function<After()>;

  // `helper` may block. It is null for devices that belong to the loop's thread: their work runs there, in a later
  // tick.
  SideWork(Loop& loop, std::shared_ptr<exec::OffloadPool> helper);
  SideWork(const SideWork&) = delete;
  SideWork& operator=(const SideWork&) = delete;
  ~SideWork() { close(); }

  // Runs `work` on the helper thread and then its result on the loop. `work` may only use objects that outlive close().
  // False if too much work waits; then nothing runs.
  [[nodiscard]] bool run(Work work);
  // Drops work that has not begun, and waits for work that has begun. Nothing runs afterwards. Called on the loop's
  // thread.
  void close() noexcept;

 private:
  struct State;
  struct Job;

  Loop& loop_;
  const std::shared_ptr<exec::OffloadPool> helper_;
  const std::shared_ptr<State> state_;
};

}  // namespace hawser::transport::rdma
