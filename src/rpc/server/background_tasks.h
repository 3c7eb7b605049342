#pragma once

#include <cstddef>
#include <memory>
#include <stop_token>

#include "hawser/loop.h"
#include "hawser/scope.h"
#include "hawser/server.h"

namespace hawser::rpc {

// The background work of a server on one loop (Server::spawn()). Loop's thread only.
class BackgroundTasks {
 public:
  class Owner {
   public:
    // A task has ended. It may have been the last one.
    virtual void on_background_end() = 0;

   protected:
    ~Owner() = default;
  };

  // `stopping` and `owner` outlive the tasks.
  BackgroundTasks(Loop& loop, const std::stop_source& stopping, Owner& owner) noexcept
      : loop_(loop), stopping_(stopping), owner_(owner) {}

  void begin(std::unique_ptr<detail::BackgroundWork> work);
  bool idle() const noexcept { return working_ == 0; }
  // The grace is over: requests all tasks to end.
  void cancel() noexcept { grace_over_.request_stop(); }
  // Destroys the tasks that have not ended.
  void clear() noexcept { tasks_.clear(); }

 private:
  Task<void> run(std::unique_ptr<detail::BackgroundWork> work);

  Loop& loop_;
  const std::stop_source& stopping_;
  Owner& owner_;
  std::stop_source grace_over_;
  std::size_t working_ = 0;  // Tasks that have not ended.
  Scope tasks_;              // Declared last, because its tasks use the other members.
};

}  // namespace hawser::rpc
