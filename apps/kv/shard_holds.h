#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hawser/loop.h"

namespace hawser::kv {

class StoreSite;

// Work on shards of several loops during which nothing else is executed on them.
class HeldWork {
 public:
  virtual ~HeldWork() = default;
  // Called on the loop of one of the shards, while the threads of the others wait. Uses the shards of all of them.
  virtual void execute() = 0;
  // Called once for each shard on its own loop, after execute().
  virtual void released(StoreSite& site) = 0;
  // The shards could not be held, and execute() is not called. Any thread.
  virtual void refused(const std::string& why) = 0;
};

// Holds shards for work, one work after another in the order of start(). The loops of the shards block: each waits
// until all have arrived, and until the last one has executed the work. Work of shards on one loop is executed by this
// loop at once or in a task of it. Any thread. See decision 60.
class ShardHolds {
 public:
  // A loop that waits for another one longer gives up, and refuses this work and all that waits: the other loop has
  // ended, or waits for its disk.
  static constexpr std::chrono::seconds patience{5};

  ShardHolds() = default;
  ShardHolds(const ShardHolds&) = delete;
  ShardHolds& operator=(const ShardHolds&) = delete;

  // `sites` are different, and not empty.
  void start(std::shared_ptr<HeldWork> work, const std::vector<StoreSite*>& sites);
  // Refuses all work of several loops from now on, and what waits, so that no loop waits for one that has ended. What
  // is being executed completes. Any thread.
  void end();

 private:
  enum class State : std::uint8_t { gathering, running, done, refused };
  struct Hold {
    std::shared_ptr<HeldWork> work;
    struct Part {
      Loop* loop;
      std::vector<StoreSite*> sites;
    };
    std::vector<Part> parts;
    std::size_t arrived = 0;
    State state = State::gathering;
    std::condition_variable changed = {};
  };

  void launch(const std::shared_ptr<Hold>& hold);
  void arrive(Hold& hold, const Hold::Part& part);
  void refuse_all(std::unique_lock<std::mutex> lock, const std::string& why);

  std::mutex mutex_;
  bool ended_ = false;
  std::deque<std::shared_ptr<Hold>> waiting_;  // The first one is in progress.
};

}  // namespace hawser::kv
