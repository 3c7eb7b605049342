#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "hawser/background_loops.h"
#include "hawser/client_pool.h"
#include "hawser/detail/thread_call.h"
#include "hawser/scope.h"
#include "hawser/transport/poller.h"

namespace hawser::detail {

// The part of a BlockingClient on one loop: a pool, and the calls that wait for a connection. Loop's thread only,
// except for loop().
class BlockingSite final : exec::TickEnd {
 public:
  BlockingSite(BlockingState& state, Loop& loop) : state_(state), loop_(loop) {}
  BlockingSite(const BlockingSite&) = delete;
  BlockingSite& operator=(const BlockingSite&) = delete;
  ~BlockingSite() = default;

  Loop& loop() const noexcept { return loop_; }
  bool closed() const noexcept { return closed_; }

  void begin(ThreadCall& call);
  void begin(ThreadTask& task);
  // Queues the call until there is a connection for it.
  void wait(ThreadCall& call);
  void leave(ThreadCall& call) noexcept;
  void cancel_waiting(std::uint64_t id) noexcept;
  // The work has ended: its thread is notified at the end of the tick.
  void end(ThreadWork& work) noexcept;
  void close() noexcept;

 private:
  ClientPool& pool();
  Task<void> pump();
  Task<Result<CallChannel*>> acquire();
  Task<void> run_task(ThreadTask& task);
  void on_tick_end() override;

  BlockingState& state_;
  Loop& loop_;
  std::shared_ptr<ClientPool> pool_;  // Null before the first call and after close().
  std::list<ThreadCall*> waiting_;    // In order of arrival.
  std::uint64_t next_id_ = 0;
  bool pumping_ = false;  // pump() runs in the scope.
  bool closed_ = false;
  ThreadWork* first_ended_ = nullptr;
  ThreadWork* last_ended_ = nullptr;
  Scope scope_;
};

// The state that a BlockingClient shares with its calls. Each call keeps it, so the loops run until the last call has
// ended.
struct BlockingState : std::enable_shared_from_this<BlockingState> {
  // The site that serves the calling thread.
  BlockingSite& site() noexcept;

  std::shared_ptr<BackgroundLoops> loops;
  std::string address;
  PoolOptions pool;
  std::vector<std::unique_ptr<BlockingSite>> sites;
};

}  // namespace hawser::detail
