#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/alive.h"
#include "hawser/error.h"
#include "transport/rdma/connection/rdma_worker.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::transport::rdma {

// Makes and connects the queue pair of one connection on the helper thread, because the kernel may block. The loop gets
// the results, unless this has been destroyed. Loop's thread only.
class QueuePairSetUp {
 public:
  using Made = std::function<void(Result<std::unique_ptr<QueuePair>>)>;
  using Connected = std::function<void(Result<void>)>;

  // `worker` outlives this.
  explicit QueuePairSetUp(RdmaWorker& worker) noexcept : worker_(worker) {}

  struct Needs {
    unsigned sends = 0;
    unsigned receives = 0;
    std::vector<std::size_t> memory = {};  // Sizes of the pieces of memory that the connection acquires then.
  };
  // The loop calls `made` later, which may destroy this. False: too_much_work(), and nothing has begun.
  [[nodiscard]] bool make(Needs needs, Made made);
  // `pair` must not be destroyed while the result points to true. Null: too_much_work(), and nothing has begun.
  // `connected` is called as `made` is.
  std::shared_ptr<const bool> connect(QueuePair& pair, const QueuePairRoute& route, Connected connected);
  static std::unexpected<Error> too_much_work();
  // The helper thread skips work that has not begun.
  void cancel() noexcept { cancelled_->store(true, std::memory_order_relaxed); }

 private:
  static Result<void> connect_pair(RdmaWorker& worker, QueuePair& pair, const QueuePairRoute& route);

  RdmaWorker& worker_;
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  const Alive<QueuePairSetUp> alive_{*this};
};

}  // namespace hawser::transport::rdma
