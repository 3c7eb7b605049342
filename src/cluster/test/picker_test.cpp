#include "cluster/picker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "cluster/xxh64.h"

namespace hawser::cluster {
namespace {

constexpr Time start = Time(std::chrono::hours(1));
constexpr std::size_t none = static_cast<std::size_t>(-1);

TEST(Xxh64, HasTheValuesOfTheSpecification) {
  EXPECT_EQ(xxh64(""), 0xEF46DB3751D8E999U);
  EXPECT_EQ(xxh64("a"), 0xD24EC4F1A98C6E5BU);
  EXPECT_EQ(xxh64("abc"), 0x44BC2CF5AD770999U);
  EXPECT_EQ(xxh64("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1U);
}

// Ready backends and a picker of them.
struct Field {
  explicit Field(BalancingOptions with, const std::vector<std::uint32_t>& weights) : options(with), random(1) {
    for (const std::uint32_t weight : weights) {
      backends.push_back(std::make_unique<Backend>());
      backends.back()->endpoint = {.address = "server-" + std::to_string(backends.size()) + ":1", .weight = weight};
      backends.back()->reach = Reach::ready;
    }
    picker = make_picker(options, 1);
    assign();
  }
  Field(Balancing kind, std::size_t count) : Field({.kind = kind}, std::vector<std::uint32_t>(count, 1)) {}

  void assign() {
    begin_assign();
    while (picker->work()) {
    }
  }
  void begin_assign() {
    std::vector<Backend*> all;
    indices.clear();
    for (const auto& one : backends) {
      indices[one.get()] = all.size();
      all.push_back(one.get());
    }
    picker->assign(all);
    while (!picker->whole()) picker->work();
  }
  Backend* pick(std::uint64_t key = 0, std::vector<const Backend*> avoided = {}) {
    return picker->pick({.now = start,
                         .key = key,
                         .random = random,
                         .ready_only = true,
                         .ejected_too = false,
                         .in_flight = in_flight,
                         .avoided = avoided});
  }
  std::size_t index_of(const Backend* backend) const {
    const auto place = indices.find(backend);
    return place == indices.end() ? none : place->second;
  }
  // How often each backend is chosen in `count` choices with random keys.
  std::vector<double> shares(std::size_t count) {
    std::vector<double> chosen(backends.size());
    for (std::size_t i = 0; i < count; ++i) chosen[index_of(pick(random.next()))] += 1.0 / static_cast<double>(count);
    return chosen;
  }

  BalancingOptions options;
  Random random;
  std::vector<std::unique_ptr<Backend>> backends;
  std::unordered_map<const Backend*, std::size_t> indices;
  std::unique_ptr<Picker> picker;
  std::uint64_t in_flight = 0;
};

const Balancing all_kinds[] = {Balancing::p2c,    Balancing::least_request, Balancing::round_robin,
                               Balancing::random, Balancing::ring_hash,     Balancing::weighted_round_robin,
                               Balancing::maglev, Balancing::pick_first};

class AllPickers : public ::testing::TestWithParam<Balancing> {};
INSTANTIATE_TEST_SUITE_P(Kinds, AllPickers, ::testing::ValuesIn(all_kinds));

TEST_P(AllPickers, ChooseAmongAdmittedBackendsOnly) {
  Field field(GetParam(), 50);
  for (std::size_t i = 0; i < 50; ++i) {
    if (i != 7 && i != 31) field.backends[i]->reach = i % 3 == 0 ? Reach::failed : Reach::idle;
  }
  std::set<std::size_t> chosen;
  for (std::uint64_t i = 0; i < 1000; ++i) chosen.insert(field.index_of(field.pick(field.random.next())));
  EXPECT_TRUE(std::ranges::includes(std::set<std::size_t>{7, 31}, chosen));
  EXPECT_EQ(field.index_of(field.pick(1, {field.backends[7].get()})), 31U);
  field.backends[31]->ejected_until = start + std::chrono::seconds(1);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(field.index_of(field.pick(i)), 7U);
  EXPECT_EQ(field.pick(1, {field.backends[7].get()}), nullptr);
}

TEST_P(AllPickers, AcceptOneBackendAndAnotherList) {
  Field field(GetParam(), 1);
  EXPECT_EQ(field.index_of(field.pick(5)), 0U);
  field.backends[0]->reach = Reach::failed;
  EXPECT_EQ(field.pick(5), nullptr);
  for (int i = 0; i < 3; ++i) {
    field.backends.push_back(std::make_unique<Backend>());
    field.backends.back()->endpoint.address = "other-" + std::to_string(i) + ":1";
    field.backends.back()->reach = Reach::ready;
  }
  field.assign();
  EXPECT_NE(field.index_of(field.pick(5)), 0U);
}

// The standard deviation of a share p after n draws is sqrt(p(1-p)/n): 0.001 here, so that 0.006 is never reached by
// chance. The draws follow from the seed anyway.
TEST(Pickers, RandomFollowsTheWeights) {
  Field field({.kind = Balancing::random}, {1, 2, 3, 4, 10});
  const std::vector<double> shares = field.shares(200'000);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(shares[i], field.backends[i]->endpoint.weight / 20.0, 0.006) << i;
}

TEST(Pickers, RoundRobinChoosesEachOnceInARound) {
  Field field({.kind = Balancing::round_robin}, {1, 1, 5, 1});
  for (int round = 0; round < 3; ++round) {
    std::set<Backend*> chosen;
    for (int i = 0; i < 4; ++i) chosen.insert(field.pick());
    EXPECT_EQ(chosen.size(), 4U);
  }
}

TEST(Pickers, WeightedRoundRobinIsExactAndEven) {
  Field field({.kind = Balancing::weighted_round_robin}, {1, 2, 5});
  std::vector<std::size_t> chosen;
  for (int i = 0; i < 800; ++i) chosen.push_back(field.index_of(field.pick()));
  EXPECT_NEAR(static_cast<double>(std::ranges::count(chosen, 0U)), 100, 1);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(chosen, 1U)), 200, 1);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(chosen, 2U)), 500, 1);
  // The heavy backend is never chosen more than twice in a row: its turns are spread.
  for (std::size_t i = 0; i + 3 < chosen.size(); ++i) {
    EXPECT_FALSE(chosen[i] == 2 && chosen[i + 1] == 2 && chosen[i + 2] == 2 && chosen[i + 3] == 2) << i;
  }
}

TEST(Pickers, WeightedRoundRobinGoesOnWhenDeadlinesWrapAround) {
  Field field({.kind = Balancing::weighted_round_robin}, {1});
  EXPECT_NE(field.pick(), nullptr);
  Field extreme({.kind = Balancing::weighted_round_robin}, {EndpointLimits::weight_max, 1});
  std::size_t heavy = 0;
  for (int i = 0; i < 100'000; ++i) heavy += extreme.index_of(extreme.pick()) == 0 ? 1 : 0;
  EXPECT_GE(heavy, 99'998U);
}

TEST(Pickers, LeastRequestPrefersTheBackendWithFewerCalls) {
  Field field({.kind = Balancing::least_request, .choices = 2}, {1, 1});
  field.backends[0]->in_flight = 3;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(field.index_of(field.pick()), 1U);
  field.backends[0]->endpoint.weight = 10;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(field.index_of(field.pick()), 0U) << "4/10 is less than 1/1";
}

TEST(Pickers, PickFirstKeepsTheOrder) {
  Field field(Balancing::pick_first, 3);
  EXPECT_EQ(field.index_of(field.pick()), 0U);
  field.backends[0]->reach = Reach::failed;
  EXPECT_EQ(field.index_of(field.pick()), 1U);
}

TEST(Pickers, P2cTriesAnUnmeasuredBackendOnce) {
  Field field(Balancing::p2c, 2);
  field.backends[0]->latency.observe(std::chrono::milliseconds(1), start, field.options.latency_decay);
  EXPECT_EQ(field.index_of(field.pick()), 1U);
  field.backends[1]->in_flight = 1;
  EXPECT_EQ(field.index_of(field.pick()), 0U) << "the call that measures has not ended";
}

TEST(PeakEwma, TakesPeaksAtOnceAndFallsWithTime) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  const Duration decay = seconds(10);
  PeakEwma latency;
  EXPECT_FALSE(latency.measured());
  latency.observe(milliseconds(1), start, decay);
  EXPECT_DOUBLE_EQ(latency.value(start, decay), 1e6);
  latency.observe(milliseconds(100), start + milliseconds(1), decay);
  EXPECT_DOUBLE_EQ(latency.value(start + milliseconds(1), decay), 1e8);
  EXPECT_NEAR(latency.value(start + milliseconds(1) + seconds(10), decay), 1e8 / std::exp(1), 1e3);
  for (int i = 1; i <= 60'000; ++i) latency.observe(milliseconds(1), start + milliseconds(1 + i), decay);
  EXPECT_NEAR(latency.value(start + seconds(60), decay), 1e6, 0.5e6);
}

class HashPickers : public ::testing::TestWithParam<Balancing> {};
INSTANTIATE_TEST_SUITE_P(Kinds, HashPickers, ::testing::Values(Balancing::ring_hash, Balancing::maglev));

TEST_P(HashPickers, AKeyStaysAndFewKeysMove) {
  Field field(GetParam(), 20);
  std::map<std::uint64_t, std::size_t> before;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const std::uint64_t key = xxh64(std::to_string(i));
    before[key] = field.index_of(field.pick(key));
    ASSERT_EQ(field.index_of(field.pick(key)), before[key]);
  }
  field.backends.push_back(std::make_unique<Backend>());
  field.backends.back()->endpoint.address = "new:1";
  field.backends.back()->reach = Reach::ready;
  field.assign();
  std::size_t moved_to_new = 0;
  std::size_t moved_between = 0;
  for (const auto& [key, index] : before) {
    const std::size_t now = field.index_of(field.pick(key));
    moved_to_new += now == 20 ? 1 : 0;
    moved_between += now != 20 && now != index ? 1 : 0;
  }
  EXPECT_GT(moved_to_new, 20'000 / 21 / 2);
  EXPECT_LT(moved_to_new, 20'000 / 21 * 2);
  // A ring moves no other key; Maglev's table moves few (section 5.3 of the paper).
  EXPECT_LE(moved_between, GetParam() == Balancing::ring_hash ? 0U : 1'000U);
}

TEST_P(HashPickers, SharesFollowTheWeights) {
  Field field({.kind = GetParam()}, {10, 10, 10, 10, 40});
  const std::vector<double> shares = field.shares(100'000);
  const double tolerance = GetParam() == Balancing::maglev ? 0.006 : 0.05;
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(shares[i], field.backends[i]->endpoint.weight / 80.0, tolerance) << i;
}

TEST_P(HashPickers, AHotKeyIsBounded) {
  Field field({.kind = GetParam(), .load_max = 1.25}, std::vector<std::uint32_t>(10, 1));
  for (int i = 0; i < 1000; ++i) {
    Backend* const backend = field.pick(42);
    ++backend->in_flight;
    ++field.in_flight;
  }
  for (const auto& backend : field.backends) EXPECT_LE(backend->in_flight, 126U);
}

// Backends leave in the steps of the table for the change before.
TEST(Pickers, MaglevsTableServesWhileTheNextOneIsMade) {
  Field field(Balancing::maglev, 1000);
  const auto keys = [&field] {
    std::map<std::uint64_t, const Backend*> chosen;
    for (std::uint64_t i = 0; i < 2000; ++i) chosen[xxh64(std::to_string(i))] = field.pick(xxh64(std::to_string(i)));
    return chosen;
  };
  const auto before = keys();
  for (int change = 0; change < 3; ++change) {
    field.backends.erase(field.backends.begin(), field.backends.begin() + 10);
    field.begin_assign();
    std::size_t left = 0;
    for (const auto& [key, backend] : keys()) {
      ASSERT_TRUE(field.indices.contains(backend)) << "no backend that has left is chosen";
      const bool stays = field.indices.contains(before.at(key));
      left += stays ? 0 : 1;
      if (stays) {
        EXPECT_EQ(backend, before.at(key));
      }
    }
    EXPECT_GT(left, 0U);
    for (int step = 0; step < 20; ++step) ASSERT_TRUE(field.picker->work()) << "the work is done in small parts";
  }
  int steps = 0;
  while (field.picker->work()) ++steps;
  EXPECT_GT(steps, 100);
  std::size_t moved = 0;
  for (const auto& [key, backend] : keys()) {
    moved += field.indices.contains(before.at(key)) && backend != before.at(key) ? 1 : 0;
  }
  EXPECT_LT(moved, 200U);
}

TEST(Pickers, MaglevsFirstListHasItsTableAtOnce) {
  Field field(Balancing::maglev, 3);
  std::map<std::uint64_t, const Backend*> chosen;
  for (std::uint64_t key = 0; key < 1000; ++key) chosen[key] = field.pick(key);
  field.picker = make_picker(field.options, 1);
  field.begin_assign();
  for (const auto& [key, backend] : chosen) EXPECT_EQ(field.pick(key), backend);
  EXPECT_FALSE(field.picker->work());
  EXPECT_NE(field.pick(42, {chosen[42]}), chosen[42]);
}

// A table of 1,000 backends takes more steps than there are between two changes.
TEST(Pickers, MaglevsTableFollowsAListThatChangesAllTheTime) {
  Field field(Balancing::maglev, 1000);
  std::vector<std::unique_ptr<Backend>> left;
  const auto chosen = [&field] {
    std::set<const Backend*> backends;
    for (std::uint64_t i = 0; i < 10'000; ++i) backends.insert(field.pick(xxh64(std::to_string(i))));
    return backends;
  };
  const auto change = [&] {
    left.push_back(std::move(field.backends.front()));
    field.backends.erase(field.backends.begin());
    field.backends.push_back(std::make_unique<Backend>());
    field.backends.back()->endpoint.address = "new-" + std::to_string(left.size()) + ":1";
    field.backends.back()->reach = Reach::ready;
    field.begin_assign();
    return field.backends.back().get();
  };
  const Backend* const first = change();
  ASSERT_FALSE(chosen().contains(first)) << "its table is not made yet";
  for (int i = 0; i < 15; ++i) {
    for (int step = 0; step < 100; ++step) ASSERT_TRUE(field.picker->work()) << "a change waits for the next table";
    change();
  }
  EXPECT_TRUE(chosen().contains(first));
  for (const Backend* const backend : chosen()) ASSERT_TRUE(field.indices.contains(backend)) << "it has left";
  const Backend* const last = field.backends.back().get();
  while (field.picker->work()) {
  }
  EXPECT_TRUE(chosen().contains(last));
}

// The choices were calculated by another program from gRFC A42.
TEST(Pickers, ARingIsThatOfGrpc) {
  for (const auto& [least, expected] : {std::pair{17U, "2211112122211212211212222212111221122122"},
                                        std::pair{100U, "0102222221220220222212212222021022221211"}}) {
    Field field({.kind = Balancing::ring_hash, .load_max = 0, .ring_points_min = least, .ring_points_each = 0},
                {1, 2, 4});
    std::string chosen;
    for (int i = 0; i < 40; ++i) {
      chosen += std::to_string(field.index_of(field.pick(xxh64("key-" + std::to_string(i)))));
    }
    EXPECT_EQ(chosen, expected);
  }
}

TEST(Pickers, ARingHasPlacesBehindItsLastPointAndBeforeItsFirst) {
  Field field(Balancing::ring_hash, 20);
  const Backend* const first = field.pick(0);
  EXPECT_EQ(field.pick(~std::uint64_t{0}), first) << "the ring is closed";
  for (std::uint64_t key = 1; key != 0; key <<= 1) EXPECT_NE(field.pick(key - 1), nullptr);
}

TEST(Pickers, MaglevSpreadsAThousandBackendsEvenly) {
  Field field(Balancing::maglev, 1000);
  const std::vector<double> shares = field.shares(200'000);
  EXPECT_GT(*std::ranges::min_element(shares), 0.0006);
  EXPECT_LT(*std::ranges::max_element(shares), 0.0014);
}

}  // namespace
}  // namespace hawser::cluster
