#include "kv/shard_holds.h"

#include <algorithm>
#include <utility>

#include "kv/store.h"

namespace hawser::kv {
namespace {

constexpr const char* server_stops = "the server stops";

}  // namespace

void ShardHolds::start(std::shared_ptr<HeldWork> work, const std::vector<StoreSite*>& sites) {
  const std::shared_ptr<Hold> hold = std::make_shared<Hold>();
  hold->work = std::move(work);
  for (StoreSite* const site : sites) {
    const auto part = std::find_if(hold->parts.begin(), hold->parts.end(),
                                   [&](const Hold::Part& known) { return known.loop == &site->loop(); });
    if (part != hold->parts.end()) {
      part->sites.push_back(site);
    } else {
      hold->parts.push_back({&site->loop(), {site}});
    }
  }
  if (hold->parts.size() == 1) {
    const auto run = [hold] {
      hold->work->execute();
      for (StoreSite* const site : hold->parts.front().sites) hold->work->released(*site);
    };
    Loop& loop = *hold->parts.front().loop;
    return Loop::current() == &loop ? run() : loop.post(run);
  }
  {
    std::unique_lock lock(mutex_);
    waiting_.push_back(hold);
    if (ended_) return refuse_all(std::move(lock), server_stops);
    if (waiting_.size() > 1) return;
  }
  launch(hold);
}

void ShardHolds::end() {
  std::unique_lock lock(mutex_);
  ended_ = true;
  refuse_all(std::move(lock), server_stops);
}

void ShardHolds::launch(const std::shared_ptr<Hold>& hold) {
  for (const Hold::Part& part : hold->parts) {
    part.loop->post([this, hold, &part] { arrive(*hold, part); });
  }
}

void ShardHolds::arrive(Hold& hold, const Hold::Part& part) {
  for (StoreSite* const site : part.sites) site->expect_changes();
  std::unique_lock lock(mutex_);
  if (hold.state != State::gathering) return;
  if (++hold.arrived < hold.parts.size()) {
    if (!hold.changed.wait_for(lock, patience, [&] { return hold.state != State::gathering; })) {
      return refuse_all(std::move(lock),
                        "a thread of the server did not answer within " + std::to_string(patience.count()) + " s");
    }
    hold.changed.wait(lock, [&] { return hold.state != State::running; });
    if (hold.state == State::refused) return;
    lock.unlock();
  } else {
    hold.state = State::running;
    lock.unlock();
    hold.work->execute();
    lock.lock();
    hold.state = State::done;
    hold.changed.notify_all();
    waiting_.pop_front();
    const std::shared_ptr<Hold> following = waiting_.empty() ? nullptr : waiting_.front();
    lock.unlock();
    if (following != nullptr) launch(following);
  }
  for (StoreSite* const site : part.sites) hold.work->released(*site);
}

// All but the one that is being executed.
void ShardHolds::refuse_all(std::unique_lock<std::mutex> lock, const std::string& why) {
  std::deque<std::shared_ptr<Hold>> refused = std::exchange(waiting_, {});
  if (!refused.empty() && refused.front()->state == State::running) {
    waiting_.push_back(refused.front());
    refused.pop_front();
  }
  for (const std::shared_ptr<Hold>& hold : refused) {
    hold->state = State::refused;
    hold->changed.notify_all();
  }
  lock.unlock();
  for (const std::shared_ptr<Hold>& hold : refused) hold->work->refused(why);
}

}  // namespace hawser::kv
