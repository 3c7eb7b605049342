#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exec/sim_poller.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/service.h"
#include "transport/sim/sim_network.h"

namespace hawser::simulation {

// Result of a run.
struct Outcome {
  std::uint64_t seed = 0;
  std::uint64_t trace = 0;
  std::uint64_t events = 0;
  Duration time{};
  Checker::Counts counts;
  std::vector<std::string> violations;
};

// Performs a whole run: a network, servers, clients and pools on one loop in virtual time. The seed determines
// everything.
Outcome simulate(const Profile& profile, std::uint64_t seed);

// The poller of a simulation, which also checks that the simulation comes to rest.
class RestPoller final : public exec::Poller {
 public:
  explicit RestPoller(std::uint64_t seed) noexcept : inner_(seed) {}

  struct AtRest {};       // Thrown when no event can occur any more and the simulation waits for this.
  struct StillAtWork {};  // Thrown when events still occur long after the end.

  std::string_view name() const noexcept override { return "simulated"; }
  Time now() const noexcept override { return inner_.now(); }
  std::size_t wait(Duration timeout, Time& now) override {
    if (until_ && timeout == forever) throw AtRest();
    if (until_ && inner_.now() > *until_) throw StillAtWork();
    return inner_.wait(timeout, now);
  }
  void wake() noexcept override {}
  void watch(int fd, exec::Watcher& watcher) override { inner_.watch(fd, watcher); }
  void unwatch(int, exec::Watcher&) noexcept override {}
  bool real_time() const noexcept override { return false; }
  std::optional<std::uint64_t> seed() const noexcept override { return inner_.seed(); }

  void wait_for_rest(Duration at_most) { until_ = inner_.now() + at_most; }

 private:
  exec::SimPoller inner_;
  std::optional<Time> until_;
};

// State that the actors of a run share.
struct World {
  World(const Profile& profile, std::uint64_t seed);

  Random random;
  const Plan plan;
  Checker checker;
  RestPoller* poller;  // Owned by the loop.
  Loop loop;
  const std::shared_ptr<transport::SimNetwork> network;
  Service service;
  unsigned actors = 0;  // Clients and pools that have not finished.

  // Return a random number in [0, bound), or a random duration.
  std::uint64_t below(std::uint64_t bound) noexcept { return random.below(bound); }
  Duration up_to(Duration most) noexcept {
    return Duration(static_cast<Duration::rep>(random.below(static_cast<std::uint64_t>(most.count()) + 1)));
  }
  auto pause(Duration most) { return loop.sleep(up_to(most)); }
};

}  // namespace hawser::simulation
