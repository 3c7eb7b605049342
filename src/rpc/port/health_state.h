#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/health.h"
#include "hawser/loop.h"
#include "hawser/sync.h"
#include "hawser/time.h"

namespace hawser::rpc {

// The health of a server: what the program has set, what its reporters say, and whether the server stops. Any thread.
class HealthState {
 public:
  // A request may name a service by so many bytes: a watcher keeps the name.
  static constexpr std::size_t service_bytes_max = 1024;
  // A watcher looks again after this time, if there are reporters. All watchers of a service share one look.
  static constexpr Duration watch_interval = std::chrono::seconds(1);

  // The result of one reporter.
  struct Line {
    std::string name;
    Result<void> outcome;
  };

  void set(std::string service, bool serving);
  void add(HealthReporter reporter);
  // The server begins to stop. Watchers find out by the token of their calls.
  void stop() noexcept { stopping_.store(true); }
  bool stopping() const noexcept { return stopping_.load(); }

  // Calls the reporters of the whole server and of the service. Adds their results to `lines`, if it is not null.
  HealthStatus status(std::string_view service, std::vector<Line>* lines = nullptr) const;
  // The same, at most watch_interval old, for those who ask again and again.
  HealthStatus recent_status(std::string_view service, Time now);
  // True if the status may change without set().
  bool has_reporters() const;
  // The names that have a health, the empty one first.
  std::vector<std::string> services() const;

  // Is notified of changes. On the loop of a call that watches, which outlives it.
  class Watcher {
   public:
    Watcher(std::shared_ptr<HealthState> state, std::string service, Loop& loop);
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;
    ~Watcher();
    const std::string& service() const noexcept { return service_; }
    Event& changed() noexcept { return *changed_; }

   private:
    friend class HealthState;
    const std::shared_ptr<HealthState> state_;
    const std::string service_;
    Loop& loop_;
    const std::shared_ptr<Event> changed_ = std::make_shared<Event>();
    std::list<Watcher*>::iterator entry_;
  };

 private:
  using Reporters = std::vector<std::shared_ptr<const HealthReporter>>;
  struct Service {
    bool set_serving = true;
    Reporters reporters = {};
    // The last result of the reporters for a watcher, and when it is too old.
    bool seen_good = true;
    Time seen_until{};
  };
  // ---- With `mutex_` locked ----
  // The whole server and the service; the second is null if it is the same, or unknown.
  std::pair<const Service*, const Service*> find(std::string_view service) const;
  static Reporters reporters_of(const std::pair<const Service*, const Service*>& found);
  // Empty: all services.
  void notify(const std::string& service);

  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;  // Guards the other members. Not locked while a reporter runs.
  std::map<std::string, Service, std::less<>> services_{{std::string(), Service()}};
  std::size_t reporters_ = 0;
  std::list<Watcher*> watchers_;
};

}  // namespace hawser::rpc
