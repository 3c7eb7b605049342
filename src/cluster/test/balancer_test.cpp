#include "cluster/balancer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hawser::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A balancer and its virtual time.
struct Bench {
  explicit Bench(BalancingOptions options, std::size_t count = 0, std::uint64_t seed = 1)
      : balancer(options, seed, [] { return std::make_shared<Backend>(); }) {
    for (std::size_t i = 0; i < count; ++i) list.push_back({.address = "s" + std::to_string(i) + ":1"});
    if (count != 0) update();
  }
  void update() { balancer.update(list); }
  std::vector<std::shared_ptr<Backend>> take_left() {
    std::vector<std::shared_ptr<Backend>> left;
    balancer.take_left([&left](std::shared_ptr<Backend> backend) { left.push_back(std::move(backend)); });
    return left;
  }
  void all_ready() {
    for (const auto& backend : balancer.backends()) balancer.set_reach(*backend, Reach::ready, now);
  }
  Backend& at(std::size_t index) { return *balancer.backends()[index]; }
  void call(Backend& backend, Judgement judgement, Duration latency = milliseconds(1)) {
    balancer.begin_call(backend, now);
    balancer.end_call(backend, judgement, latency, now);
  }

  Time now = Time(std::chrono::hours(1));
  std::vector<Endpoint> list;
  Balancer balancer;
};

TEST(Balancer, AskForConnectionsOfIdleBackendsWhileOthersServe) {
  Bench bench({.kind = Balancing::pick_first}, 2);
  Balancer::Choice choice = bench.balancer.choose(bench.now, 0);
  EXPECT_EQ(choice.ready, nullptr);
  EXPECT_EQ(choice.idle, &bench.at(0));
  bench.balancer.set_reach(bench.at(1), Reach::ready, bench.now);
  choice = bench.balancer.choose(bench.now, 0);
  EXPECT_EQ(choice.ready, &bench.at(1));
  EXPECT_EQ(choice.idle, &bench.at(0));
  bench.balancer.set_reach(bench.at(0), Reach::failed, bench.now);
  choice = bench.balancer.choose(bench.now, 0);
  EXPECT_EQ(choice.ready, &bench.at(1));
  EXPECT_EQ(choice.idle, nullptr);
}

TEST(Balancer, ALowerPriorityServesOnlyIfNoHigherOneCan) {
  Bench bench({.kind = Balancing::round_robin});
  bench.list = {{.address = "far:1", .priority = 9}, {.address = "near:1"}};
  bench.update();
  Backend& far = bench.at(0);
  Backend& near = bench.at(1);
  EXPECT_EQ(bench.balancer.choose(bench.now, 0).idle, &near);
  bench.balancer.set_reach(near, Reach::connecting, bench.now);
  EXPECT_EQ(bench.balancer.choose(bench.now, 0).idle, nullptr) << "the higher priority may still serve";
  bench.balancer.set_reach(near, Reach::failed, bench.now);
  EXPECT_EQ(bench.balancer.choose(bench.now, 0).idle, &far);
  bench.balancer.set_reach(far, Reach::ready, bench.now);
  EXPECT_EQ(bench.balancer.choose(bench.now, 0).ready, &far);
  bench.balancer.set_reach(near, Reach::ready, bench.now);
  EXPECT_EQ(bench.balancer.choose(bench.now, 0).ready, &near);
}

TEST(Balancer, AnUpdateKeepsWhatIsKnownOfAddressesThatStay) {
  Bench bench({}, 3);
  bench.all_ready();
  Backend* const stays = &bench.at(1);
  bench.balancer.begin_call(bench.at(0), bench.now);
  bench.balancer.begin_call(*stays, bench.now);
  bench.list = {{.address = "new:1"}, {.address = "s1:1", .weight = 7, .priority = 1}};
  const std::vector<std::shared_ptr<Backend>> left = bench.balancer.update(bench.list);
  EXPECT_EQ(left.size(), 2U);
  EXPECT_EQ(&bench.at(1), stays);
  EXPECT_EQ(stays->endpoint.weight, 7U);
  EXPECT_EQ(bench.balancer.count(Reach::ready), 1U);
  EXPECT_EQ(bench.balancer.count(Reach::idle), 1U);
  bench.balancer.end_call(*stays, Judgement::success, milliseconds(1), bench.now);
  for (const auto& one : left) {
    EXPECT_FALSE(bench.balancer.listed(*one));
    if (one->in_flight != 0) bench.balancer.end_call(*one, Judgement::success, milliseconds(1), bench.now);
    bench.balancer.set_reach(*one, Reach::idle, bench.now);
  }
  EXPECT_EQ(bench.balancer.count(Reach::ready), 1U) << "backends that left are not counted";
}

std::vector<Endpoint> numbered_endpoints(std::size_t from, std::size_t count) {
  std::vector<Endpoint> list;
  for (std::size_t i = from; i < from + count; ++i) list.push_back({.address = "s" + std::to_string(i) + ":1"});
  return list;
}

// A long list takes effect in steps. Until then, the one before serves. Afterwards its backends leave in steps, too.
TEST(Balancer, ALongListTakesEffectInSteps) {
  constexpr std::size_t count = 4000;
  constexpr std::size_t steps_min = count / ListUpdate::endpoints_of_step;
  Bench bench({.kind = Balancing::round_robin}, count);
  bench.all_ready();
  Backend* const stays = &bench.at(count - 1);
  bench.balancer.begin_call(*stays, bench.now);
  std::vector<Endpoint> next = numbered_endpoints(count - 1, count);
  next[0].weight = 7;
  bench.balancer.begin_update(next);
  std::size_t steps = 0;
  for (; bench.balancer.updates(); ++steps) {
    EXPECT_EQ(bench.balancer.backends().size(), count);
    EXPECT_EQ(bench.balancer.count(Reach::ready), count);
    EXPECT_NE(bench.balancer.choose(bench.now, 0).ready, nullptr);
    EXPECT_TRUE(bench.take_left().empty());
    bench.balancer.work();
  }
  EXPECT_GE(steps, steps_min);
  EXPECT_EQ(&bench.at(0), stays);
  EXPECT_EQ(stays->endpoint.weight, 7U);
  EXPECT_EQ(bench.balancer.count(Reach::ready), 1U);
  EXPECT_EQ(bench.balancer.count(Reach::idle), count - 1);
  std::size_t left = 0;
  for (steps = 0; bench.balancer.work(); ++steps) {
    const auto some = bench.take_left();
    EXPECT_LE(some.size(), ListUpdate::endpoints_of_step);
    for (const auto& one : some) EXPECT_FALSE(bench.balancer.listed(*one));
    left += some.size();
  }
  EXPECT_EQ(left, count - 1);
  EXPECT_GE(steps, steps_min);
  bench.balancer.end_call(*stays, Judgement::success, milliseconds(1), bench.now);
  EXPECT_EQ(bench.balancer.choose(bench.now, 0).ready, stays);
}

TEST(Balancer, AListThatComesMeanwhileTakesThePlaceOfTheOther) {
  Bench bench({.kind = Balancing::round_robin}, 2);
  bench.all_ready();
  const std::vector<Endpoint> second = numbered_endpoints(1, 1000);
  const std::vector<Endpoint> third = numbered_endpoints(1, 500);
  bench.balancer.begin_update(second);
  EXPECT_TRUE(bench.balancer.work());
  EXPECT_TRUE(bench.balancer.work());
  bench.balancer.begin_update(third);
  std::size_t left = 0;
  while (bench.balancer.work()) left += bench.take_left().size();
  EXPECT_EQ(bench.balancer.backends().size(), 500U);
  EXPECT_EQ(bench.balancer.count(Reach::ready), 1U) << "s1:1 stays";
  EXPECT_EQ(bench.balancer.count(Reach::idle), 499U);
  EXPECT_EQ(left, 512U) << "s0:1, and those that were made for the second list";
  const std::vector<Endpoint> fourth = numbered_endpoints(500, 1000);
  bench.balancer.begin_update(fourth);
  EXPECT_TRUE(bench.balancer.work());
  EXPECT_EQ(bench.balancer.update(third).size(), 255U) << "in one step: of the 256 of the fourth list, s500:1 stays";
  EXPECT_FALSE(bench.balancer.work());
}

TEST(Balancer, SlowStartGivesASmallShareFirst) {
  Bench bench({.kind = Balancing::round_robin, .slow_start = seconds(10)}, 10);
  bench.all_ready();
  bench.now += seconds(20);
  bench.balancer.set_reach(bench.at(3), Reach::failed, bench.now);
  bench.balancer.set_reach(bench.at(3), Reach::ready, bench.now);
  const auto share = [&] {
    int chosen = 0;
    for (int i = 0; i < 10'000; ++i) chosen += bench.balancer.choose(bench.now, 0).ready == &bench.at(3) ? 1 : 0;
    return chosen / 10'000.0;
  };
  EXPECT_NEAR(share(), 0.01, 0.005);
  bench.now += seconds(5);
  EXPECT_NEAR(share(), 0.05, 0.015);
  bench.now += seconds(5);
  EXPECT_NEAR(share(), 0.1, 0.001);
}

TEST(Balancer, SaysWhyABackendGetsCallsOrNone) {
  Bench bench({.kind = Balancing::round_robin, .zone = "z", .zone_endpoints_min = 2});
  bench.list = {
      {.address = "own:1", .zone = "z"}, {.address = "away:1", .zone = "y"}, {.address = "far:1", .priority = 1}};
  bench.update();
  Backend& own = bench.at(0);
  Backend& away = bench.at(1);
  Backend& far = bench.at(2);
  const auto standing = [&](const Backend& backend) { return bench.balancer.standing(backend, bench.now); };
  EXPECT_TRUE(standing(own).contains("no connection is needed yet"));
  bench.balancer.set_reach(own, Reach::connecting, bench.now);
  EXPECT_TRUE(standing(own).contains("being opened"));
  bench.all_ready();
  EXPECT_EQ(standing(own), "calls");
  EXPECT_TRUE(standing(away).contains("the zone of the client can serve"));
  EXPECT_TRUE(standing(far).contains("lower priority number"));
  for (int i = 0; i < 5; ++i) bench.call(own, Judgement::failure);
  EXPECT_TRUE(standing(own).contains("too few others")) << "it is the only one of its zone: " << standing(own);
  EXPECT_TRUE(standing(away).contains("cannot serve")) << standing(away);
  bench.balancer.set_reach(own, Reach::failed, bench.now);
  bench.balancer.set_reach(away, Reach::failed, bench.now);
  EXPECT_EQ(standing(far), "calls");
  EXPECT_TRUE(standing(own).contains("cannot be reached"));
  far.in_flight_max = 1;
  bench.balancer.begin_call(far, bench.now);
  EXPECT_TRUE(standing(far).contains("limit"));
  Bench many({.kind = Balancing::round_robin}, 4);
  many.all_ready();
  for (int i = 0; i < 5; ++i) many.call(many.at(0), Judgement::failure);
  const auto of_first = [&] { return many.balancer.standing(many.at(0), many.now); };
  EXPECT_TRUE(of_first().contains("its breaker is open"));
  many.now += seconds(2);
  EXPECT_TRUE(of_first().contains("its breaker tries it"));
  many.at(0).ejected_until = many.now + seconds(1);
  EXPECT_TRUE(of_first().contains("as an outlier"));
  Bench calm({.kind = Balancing::round_robin, .panic_threshold = 0}, 2);
  calm.all_ready();
  for (int i = 0; i < 5; ++i) {
    for (const std::size_t one : {0, 1}) calm.call(calm.at(one), Judgement::failure);
  }
  EXPECT_NE(calm.balancer.choose(calm.now, 0).ready, nullptr);
  EXPECT_TRUE(calm.balancer.standing(calm.at(0), calm.now).contains("too few others")) << "all are excluded";
}

// ---- Outliers ----

// Calls in one interval: backend 0 fails, and so do those before `failing`.
void run_interval(Bench& bench, std::size_t failing, double failure_rate = 1, int calls = 200) {
  for (std::size_t i = 0; i < bench.list.size(); ++i) {
    for (int call = 0; call < calls; ++call) {
      const bool fails = i < failing && call < calls * failure_rate;
      bench.call(bench.at(i), fails ? Judgement::failure : Judgement::success);
    }
  }
  bench.now += seconds(10);
  bench.call(bench.at(bench.list.size() - 1), Judgement::success);  // Ends the interval.
}

std::size_t ejected(Bench& bench) {
  return static_cast<std::size_t>(
      std::ranges::count_if(bench.balancer.backends(), [&](const auto& one) { return one->ejected(bench.now); }));
}

TEST(Outliers, ABackendThatFailsIsExcludedForAWhile) {
  Bench bench({.kind = Balancing::round_robin}, 20);
  bench.all_ready();
  run_interval(bench, 1);
  ASSERT_TRUE(bench.at(0).ejected(bench.now));
  for (int i = 0; i < 100; ++i) EXPECT_NE(bench.balancer.choose(bench.now, 0).ready, &bench.at(0));
  bench.now += seconds(31);
  EXPECT_FALSE(bench.at(0).ejected(bench.now));
  run_interval(bench, 1);
  EXPECT_TRUE(bench.at(0).ejected(bench.now + seconds(55))) << "the second exclusion is longer";
}

TEST(Outliers, AtMostATenthIsExcluded) {
  Bench bench({.kind = Balancing::round_robin}, 40);
  bench.all_ready();
  for (int i = 0; i < 5; ++i) {
    run_interval(bench, 20);
    EXPECT_LE(ejected(bench), 4U);
  }
  EXPECT_EQ(ejected(bench), 4U);
}

TEST(Outliers, ExclusionsAreCountedByTheirRule) {
  Bench bench({.kind = Balancing::round_robin}, 40);
  bench.all_ready();
  run_interval(bench, 20);
  EXPECT_EQ(bench.balancer.ejections(bench.at(0)).enforced, (std::array<std::size_t, 2>{0, 4}));
  EXPECT_EQ(bench.balancer.ejections(bench.at(0)).unenforced, (std::array<std::size_t, 2>{0, 16}));
  run_interval(bench, 0);
  EXPECT_EQ(bench.balancer.ejections(bench.at(0)).enforced, (std::array<std::size_t, 2>{0, 0}));
}

TEST(Outliers, ASmallDifferenceOfRatesIsFoundByTheDeviation) {
  Bench bench({.kind = Balancing::round_robin}, 20);
  bench.all_ready();
  run_interval(bench, 1, 0.2);
  EXPECT_TRUE(bench.at(0).ejected(bench.now));
  EXPECT_EQ(ejected(bench), 1U);
}

TEST(Outliers, FewCallsAndFewBackendsAreNotJudged) {
  Bench few_calls({.kind = Balancing::round_robin}, 20);
  few_calls.all_ready();
  run_interval(few_calls, 1, 1, 49);
  EXPECT_EQ(ejected(few_calls), 0U);
  Bench few_backends({.kind = Balancing::round_robin}, 4);
  few_backends.all_ready();
  run_interval(few_backends, 1);
  EXPECT_EQ(ejected(few_backends), 0U);
}

TEST(Outliers, ExclusionsAreIgnoredInAPanic) {
  Bench bench({.kind = Balancing::round_robin}, 10);
  bench.all_ready();
  run_interval(bench, 1);
  ASSERT_EQ(ejected(bench), 1U);
  for (std::size_t i = 1; i < 6; ++i) bench.balancer.set_reach(bench.at(i), Reach::failed, bench.now);
  bool chosen = false;  // 5 of 10 are reachable, one of them is excluded: less than half is left.
  for (int i = 0; i < 10; ++i) chosen |= bench.balancer.choose(bench.now, 0).ready == &bench.at(0);
  EXPECT_TRUE(chosen);
}

// Exclusions are ignored if they leave no backend, also without a panic threshold.
TEST(Outliers, NeverLeaveACallWithoutABackend) {
  Bench bench({.kind = Balancing::round_robin, .panic_threshold = 0}, 1);
  bench.all_ready();
  bench.at(0).ejected_until = bench.now + seconds(10);
  EXPECT_EQ(bench.balancer.choose(bench.now, 0).ready, &bench.at(0));
}

// ---- Breakers ----

TEST(Breakers, OpenAfterFailuresInARowAndAreClosedByOneCallThatSucceeds) {
  Bench bench({.kind = Balancing::pick_first}, 10);
  bench.all_ready();
  const auto chosen = [&] { return bench.balancer.choose(bench.now, 0).ready; };
  const auto fail = [&](int times) {
    for (int i = 0; i < times; ++i) bench.call(bench.at(0), Judgement::failure);
  };
  fail(4);
  bench.call(bench.at(0), Judgement::success);
  fail(4);
  bench.call(bench.at(0), Judgement::pushback);
  fail(4);
  EXPECT_EQ(chosen(), &bench.at(0)) << "never five in a row";
  fail(1);
  EXPECT_EQ(chosen(), &bench.at(1));
  bench.now += seconds(1);
  ASSERT_EQ(chosen(), &bench.at(0));
  bench.balancer.begin_call(bench.at(0), bench.now);
  EXPECT_EQ(chosen(), &bench.at(1)) << "one call at a time tries the backend";
  bench.now += milliseconds(3);
  bench.balancer.end_call(bench.at(0), Judgement::failure, milliseconds(3), bench.now);
  bench.now += milliseconds(1999);
  EXPECT_EQ(chosen(), &bench.at(1)) << "the second time is twice as long";
  bench.now += milliseconds(1);
  ASSERT_EQ(chosen(), &bench.at(0));
  bench.balancer.begin_call(bench.at(0), bench.now);
  bench.balancer.end_call(bench.at(0), Judgement::none, Duration::zero(), bench.now);
  ASSERT_EQ(chosen(), &bench.at(0)) << "a call that was cancelled decides nothing";
  bench.call(bench.at(0), Judgement::success, Duration::zero());
  EXPECT_EQ(chosen(), &bench.at(0));
  fail(4);
  EXPECT_EQ(chosen(), &bench.at(0));
}

TEST(Breakers, CallsFromBeforeDecideNothing) {
  Bench bench({.kind = Balancing::pick_first}, 10);
  bench.all_ready();
  for (int i = 0; i < 2; ++i) bench.balancer.begin_call(bench.at(0), bench.now);
  bench.now += seconds(10);
  for (int i = 0; i < 5; ++i) bench.call(bench.at(0), Judgement::failure, Duration::zero());
  bench.now += milliseconds(1);
  bench.balancer.end_call(bench.at(0), Judgement::success, seconds(10), bench.now);
  EXPECT_EQ(bench.balancer.choose(bench.now, 0).ready, &bench.at(1)) << "its success is older than the failures";
  bench.now += seconds(1);
  bench.balancer.begin_call(bench.at(0), bench.now);
  bench.balancer.end_call(bench.at(0), Judgement::failure, seconds(11), bench.now);
  bench.call(bench.at(0), Judgement::success, Duration::zero());
  EXPECT_EQ(bench.balancer.choose(bench.now, 0).ready, &bench.at(0));
}

TEST(Breakers, AreIgnoredWhenMostBackendsFail) {
  Bench bench({.kind = Balancing::round_robin}, 10);
  bench.all_ready();
  for (std::size_t backend = 0; backend < 10; ++backend) {
    for (int i = 0; i < 5; ++i) bench.call(bench.at(backend), Judgement::failure);
  }
  EXPECT_NE(bench.balancer.choose(bench.now, 0).ready, nullptr);
  // As soon as the servers are back, calls close the breakers.
  for (int i = 0; i < 40; ++i) {
    bench.now += milliseconds(50);
    bench.call(*bench.balancer.choose(bench.now, 0).ready, Judgement::success, Duration::zero());
  }
  for (const auto& one : bench.balancer.backends()) EXPECT_TRUE(one->breaker.closed());
}

// A backend that has crashed is not reachable. That its breaker is open, too, does not count again.
TEST(Breakers, OfBackendsThatCrashedAreNoPanic) {
  Bench bench({.kind = Balancing::round_robin}, 6);
  bench.all_ready();
  for (std::size_t backend = 0; backend < 3; ++backend) {
    for (int i = 0; i < 5; ++i) bench.call(bench.at(backend), Judgement::failure);
  }
  for (std::size_t backend = 1; backend < 3; ++backend) {
    bench.balancer.set_reach(bench.at(backend), Reach::failed, bench.now);
  }
  const auto first_is_chosen = [&] {
    bool chosen = false;
    for (int i = 0; i < 12; ++i) chosen |= bench.balancer.choose(bench.now, 0).ready == &bench.at(0);
    return chosen;
  };
  EXPECT_FALSE(first_is_chosen()) << "3 of 6 serve";
  bench.update();
  EXPECT_FALSE(first_is_chosen()) << "a new list does not change that";
  for (std::size_t backend = 1; backend < 3; ++backend) {
    bench.balancer.set_reach(bench.at(backend), Reach::ready, bench.now);
  }
  EXPECT_FALSE(first_is_chosen()) << "all can be reached, and 3 of 6 serve";
  bench.balancer.set_reach(bench.at(5), Reach::failed, bench.now);
  EXPECT_TRUE(first_is_chosen()) << "2 of 6 serve";
}

// ---- Limits of endpoints ----

TEST(EndpointLimits, AFullBackendGetsNoFurtherCall) {
  Bench bench({.kind = Balancing::pick_first, .endpoint_limit = LimitOptions{.initial = 2, .min = 1}}, 2);
  bench.all_ready();
  for (int i = 0; i < 2; ++i) bench.balancer.begin_call(bench.at(0), bench.now);
  EXPECT_EQ(bench.balancer.choose(bench.now, 0).ready, &bench.at(1));
  for (int i = 0; i < 2; ++i) bench.balancer.begin_call(bench.at(1), bench.now);
  EXPECT_EQ(bench.balancer.choose(bench.now, 0).ready, nullptr);
  bench.balancer.end_call(bench.at(1), Judgement::success, milliseconds(1), bench.now);
  EXPECT_EQ(bench.balancer.choose(bench.now, 0).ready, &bench.at(1));
}

// ---- Zones ----

// Endpoints s0 to s5 are in the zone of the client, s6 to s11 in another one.
struct ZoneBench : Bench {
  explicit ZoneBench(BalancingOptions options = {.kind = Balancing::round_robin, .zone = "here"}) : Bench(options) {
    for (int i = 0; i < 12; ++i) {
      list.push_back({.address = "s" + std::to_string(i) + ":1", .zone = i < 6 ? "here" : "there"});
    }
    update();
    all_ready();
  }
  double part_outside() {
    int outside = 0;
    for (int i = 0; i < 2000; ++i) outside += balancer.choose(now, 0).ready->endpoint.zone == "there" ? 1 : 0;
    return outside / 2000.0;
  }
};

TEST(Zones, CallsStayInTheZoneWhileItHasItsReserve) {
  ZoneBench bench;
  EXPECT_EQ(bench.part_outside(), 0);
  bench.balancer.set_reach(bench.at(0), Reach::failed, bench.now);
  EXPECT_EQ(bench.part_outside(), 0) << "5/6 x 1.4 is above 1";
  for (std::size_t i = 1; i < 3; ++i) bench.balancer.set_reach(bench.at(i), Reach::failed, bench.now);
  EXPECT_NEAR(bench.part_outside(), 0.3, 0.05) << "1 - 3/6 x 1.4";
  for (std::size_t i = 3; i < 6; ++i) bench.balancer.set_reach(bench.at(i), Reach::failed, bench.now);
  EXPECT_EQ(bench.part_outside(), 1);
  for (std::size_t i = 0; i < 12; ++i) {
    bench.balancer.set_reach(bench.at(i), i == 0 ? Reach::ready : Reach::failed, bench.now);
  }
  EXPECT_EQ(bench.part_outside(), 0) << "a call that would have left stays if no other zone can serve";
}

TEST(Zones, ABackendThatCrashedIsMissingOnce) {
  ZoneBench bench;
  for (int i = 0; i < 5; ++i) bench.call(bench.at(0), Judgement::failure);
  bench.balancer.set_reach(bench.at(0), Reach::failed, bench.now);
  EXPECT_EQ(bench.part_outside(), 0) << "5/6 x 1.4 is above 1";
}

TEST(Zones, ACallThatCannotLeaveItsZoneKeepsItsPriority) {
  ZoneBench bench;
  bench.list.push_back({.address = "s12:1", .priority = 1, .zone = "there"});
  bench.update();
  for (std::size_t i = 0; i < 12; ++i) {
    bench.balancer.set_reach(bench.at(i), i < 3 ? Reach::ready : Reach::failed, bench.now);
  }
  bench.balancer.set_reach(bench.at(12), Reach::ready, bench.now);
  EXPECT_EQ(bench.part_outside(), 0) << "no other zone of priority 0 can serve";
  bench.balancer.set_reach(bench.at(6), Reach::ready, bench.now);
  EXPECT_NEAR(bench.part_outside(), 0.3, 0.05);
  EXPECT_NE(bench.balancer.choose(bench.now, 0).ready, &bench.at(12));
}

TEST(Zones, AreIgnoredWithFewEndpointsAndWithoutAZone) {
  ZoneBench none({.kind = Balancing::round_robin});
  EXPECT_NEAR(none.part_outside(), 0.5, 0.01);
  ZoneBench few({.kind = Balancing::round_robin, .zone = "here", .zone_endpoints_min = 13});
  EXPECT_NEAR(few.part_outside(), 0.5, 0.01);
  ZoneBench unknown({.kind = Balancing::round_robin, .zone = "nowhere"});
  EXPECT_NEAR(unknown.part_outside(), 0.5, 0.01);
}

TEST(Zones, APriorityComesBeforeAZone) {
  ZoneBench bench;
  for (std::size_t i = 0; i < 6; ++i) bench.list[i].priority = 1;
  bench.update();
  EXPECT_EQ(bench.part_outside(), 1);
}

// ---- Subsets ----

std::vector<std::string> used(const Bench& bench) {
  std::vector<std::string> addresses;
  for (const auto& one : bench.balancer.backends()) addresses.push_back(one->endpoint.address);
  return addresses;
}

TEST(Subsets, ClientsUseDifferentOnesAndTogetherAll) {
  std::map<std::string, int> clients;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const Bench bench({.subset = 10}, 100, seed);
    const auto addresses = used(bench);
    EXPECT_EQ(addresses.size(), 10U);
    for (const std::string& one : addresses) ++clients[one];
  }
  EXPECT_GE(clients.size(), 98U);
  for (const auto& [address, count] : clients) EXPECT_LE(count, 25) << address;
}

TEST(Subsets, AChangeOfTheListChangesFewEndpoints) {
  Bench bench({.subset = 10}, 100);
  const auto before = used(bench);
  std::erase_if(bench.list, [&](const Endpoint& one) { return one.address == before[3]; });
  bench.update();
  const auto after = used(bench);
  EXPECT_EQ(std::ranges::count_if(after, [&](const auto& one) { return std::ranges::count(before, one) != 0; }), 9);
  std::ranges::reverse(bench.list);
  bench.update();
  EXPECT_TRUE(std::ranges::is_permutation(used(bench), after)) << "the order of the list does not count";
}

TEST(Subsets, EachPriorityAndZoneHasItsOwn) {
  ZoneBench bench({.zone = "here", .subset = 2});
  EXPECT_EQ(bench.balancer.backends().size(), 4U);
  EXPECT_EQ(bench.part_outside(), 0);
}

}  // namespace
}  // namespace hawser::cluster
