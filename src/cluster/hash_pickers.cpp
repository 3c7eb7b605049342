#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cluster/picker.h"
#include "cluster/xxh64.h"

// Pickers that choose by a key.
namespace hawser::cluster {
namespace {

// Bounded loads (Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads", 2016): true if a further
// call would exceed load_max times the mean.
class LoadBound {
 public:
  explicit LoadBound(double load_max) : load_max_(load_max) {}
  void assign(const std::vector<Backend*>& backends) {
    weights_ = 0;
    for (const Backend* const backend : backends) weights_ += backend->endpoint.weight;
  }
  bool exceeded(const Backend& backend, const PickQuery& query) const noexcept {
    if (load_max_ == 0) return false;
    const double mean = (static_cast<double>(query.in_flight) + 1) * backend.endpoint.weight / weights_;
    return backend.in_flight + 1.0 > std::ceil(load_max_ * mean);
  }

 private:
  const double load_max_;
  double weights_ = 0;
};

// Each backend has several points on a ring of hashes. The first point behind the key decides. With
// ring_points_each 0, as for names of xDS, the points are those of gRPC (gRFC A42), which are those of Envoy, so that a
// key has the same backend for all clients.
class RingHash final : public Picker {
 public:
  explicit RingHash(const BalancingOptions& options)
      : points_min_(options.ring_points_min),
        points_max_(options.ring_points_max),
        points_each_(options.ring_points_each),
        bound_(options.load_max) {}

  std::unique_ptr<Picker> copy() const override { return std::make_unique<RingHash>(*this); }
  void assign(std::vector<Backend*> backends) override {
    backends_ = std::move(backends);
    bound_.assign(backends_);
    sort(place_points());
  }

  Backend* pick(const PickQuery& query) noexcept override {
    const std::size_t part = query.key >> shift_;
    const auto first = ring_.begin() + starts_[part];
    const auto last = ring_.begin() + starts_[part + 1];
    auto at =
        static_cast<std::size_t>(std::ranges::lower_bound(first, last, query.key, {}, &Point::hash) - ring_.begin());
    Backend* admitted = nullptr;  // The first one; its load may exceed the bound.
    for (std::size_t i = 0; i < ring_.size(); ++i, ++at) {
      if (at >= ring_.size()) at = 0;
      Backend* const backend = backends_[ring_[at].index];
      if (!query.admits(*backend)) continue;
      if (!bound_.exceeded(*backend, query)) return backend;
      if (admitted == nullptr) admitted = backend;
    }
    return admitted;
  }
  bool spreads() const noexcept override { return false; }

 private:
  struct Point {
    std::uint64_t hash;
    std::uint32_t index;
  };

  std::vector<Point> place_points() const {
    std::vector<Point> points;
    double sum = 0;
    std::uint32_t least = std::numeric_limits<std::uint32_t>::max();
    for (const Backend* const backend : backends_) {
      sum += backend->endpoint.weight;
      least = std::min(least, backend->endpoint.weight);
    }
    std::vector<std::uint32_t> order(backends_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order, {}, [this](std::uint32_t i) -> const auto& { return backends_[i]->endpoint.address; });
    const std::size_t wanted = std::clamp(backends_.size() * points_each_, points_min_, points_max_);
    const double part = least / sum;  // The lightest backend has a whole number of points.
    const double whole =
        std::min(std::ceil(part * static_cast<double>(wanted)) / part, static_cast<double>(points_max_));
    double target = 0;
    double placed = 0;
    for (const std::uint32_t i : order) {
      const Endpoint& endpoint = backends_[i]->endpoint;
      target += whole * (endpoint.weight / sum);
      std::string name = endpoint.address + "_";
      const std::size_t name_size = name.size();
      for (std::size_t point = 0; point == 0 || placed < target; ++point, ++placed) {
        name.resize(name_size);
        name += std::to_string(point);
        points.push_back({xxh64(name), i});
      }
    }
    return points;
  }

  // Hashes are spread evenly, so that a sort by parts takes linear time. The ring of 4,096 points for 1,000 backends
  // takes about 0.2 ms.
  void sort(const std::vector<Point>& points) {
    shift_ = 64 - std::bit_width(points.size());
    starts_.assign((std::size_t{1} << (64 - shift_)) + 1, 0);
    for (const Point& point : points) ++starts_[(point.hash >> shift_) + 1];
    std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
    std::vector<std::uint32_t> places(starts_.begin(), starts_.end() - 1);
    ring_.resize(points.size());
    for (const Point& point : points) ring_[places[point.hash >> shift_]++] = point;
    for (std::size_t part = 0; part < places.size(); ++part) {
      std::ranges::sort(ring_.begin() + starts_[part], ring_.begin() + starts_[part + 1], {}, &Point::hash);
    }
  }

  const std::size_t points_min_;
  const std::size_t points_max_;
  const std::size_t points_each_;
  LoadBound bound_;
  std::vector<Backend*> backends_;
  std::vector<Point> ring_;
  // The ring is divided into parts of equal size by the first bits of a hash: a part has about one point, and begins at
  // starts_[part].
  std::vector<std::uint32_t> starts_;
  int shift_ = 0;
};

// Maglev (Eisenbud and others, NSDI 2016, section 3.4): backends fill a table in turns, each by its own permutation.
// That takes milliseconds, so that it is done in steps. The table before it serves until then. A table that is begun is
// finished even if the list changes meanwhile, so that frequent changes do not keep the first table for ever.
class Maglev final : public Picker {
 public:
  explicit Maglev(double load_max) : bound_(load_max) {}

  std::unique_ptr<Picker> copy() const override { return std::make_unique<Maglev>(*this); }
  void assign(std::vector<Backend*> backends) override {
    rename(backends);
    backends_ = std::move(backends);
    bound_.assign(backends_);
    stale_ = true;
    if (fillings_.empty()) next_ = {};  // It has the size for another list.
  }
  bool whole() const noexcept override { return served_.slots != nullptr; }

  bool work() override {
    if (next_.slots == nullptr) {
      if (stale_) size_table();
      return stale_;
    }
    if (fillings_.empty()) {
      begin_filling();
      return true;
    }
    fill(effort_max);
    if (filled_ < next_.slots->size()) return true;
    served_ = std::exchange(next_, {});
    fillings_ = {};
    turns_ = {};
    return stale_;
  }

  Backend* pick(const PickQuery& query) noexcept override {
    const std::vector<std::uint32_t>& slots = *served_.slots;
    Backend* admitted = nullptr;  // The first one; its load may exceed the bound.
    std::uint64_t key = query.key;
    for (unsigned i = 0; i < tries_max; ++i, key = Random(key).next()) {
      const std::uint32_t index = served_.indices[slots[key % slots.size()]];
      if (index == unused) continue;
      Backend* const backend = backends_[index];
      if (!query.admits(*backend)) continue;
      if (!bound_.exceeded(*backend, query)) return backend;
      if (admitted == nullptr) admitted = backend;
    }
    return admitted != nullptr ? admitted : first_admitted(backends_, query.key % backends_.size(), query);
  }
  bool spreads() const noexcept override { return false; }

 private:
  static constexpr std::uint32_t unused = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t slots_of_each = 100;
  // Bound of one work(), in steps of a permutation: about 0.1 ms.
  static constexpr std::size_t effort_max = 16'384;
  static constexpr std::size_t effort_of_slot = 32;  // A turn costs as much.
  static constexpr std::array<std::uint32_t, 5> primes = {65'537, 131'101, 262'147, 524'309, 1'048'583};

  // The list for which it is made may be older than backends_.
  struct Table {
    // Places in that list; `unused`: free. Null: there is no table. Copies of a picker share it.
    std::shared_ptr<std::vector<std::uint32_t>> slots;
    std::vector<std::uint32_t> indices;  // Indices of backends_, by those places; `unused`: the backend has left.
  };
  // A backend may leave while it fills slots.
  struct Filling {
    std::uint64_t place;
    std::uint64_t step;
    double interval;  // Between its turns.
  };
  // Slots go to the backends by turns that are 1/weight apart, which are the turns of the paper if weights are equal.
  struct Turn {
    double due;
    std::uint32_t index;
    bool operator>(const Turn& other) const noexcept {
      return due != other.due ? due > other.due : index > other.index;
    }
  };
  using Turns = std::priority_queue<Turn, std::vector<Turn>, std::greater<>>;

  // Changes the tables' indices to those of `backends`.
  void rename(const std::vector<Backend*>& backends) {
    std::unordered_map<const Backend*, std::uint32_t> places;
    for (std::uint32_t i = 0; i < backends.size(); ++i) places.emplace(backends[i], i);
    for (Table* const table : {&served_, &next_}) {
      for (std::uint32_t& index : table->indices) {
        const auto found = index == unused ? places.end() : places.find(backends_[index]);
        index = found == places.end() ? unused : found->second;
      }
    }
  }

  void size_table() {
    const std::size_t least = backends_.size() * slots_of_each;
    const auto found = std::ranges::find_if(primes, [&](std::uint32_t prime) { return prime >= least; });
    next_.slots = std::make_shared<std::vector<std::uint32_t>>(found == primes.end() ? primes.back() : *found, unused);
  }

  void begin_filling() {
    const std::uint64_t size = next_.slots->size();
    std::vector<std::uint32_t> indices(backends_.size());
    std::iota(indices.begin(), indices.end(), 0U);
    std::vector<Filling> fillings;
    Turns turns;
    for (const std::uint32_t index : indices) {
      const Endpoint& endpoint = backends_[index]->endpoint;
      const double interval = 1.0 / endpoint.weight;
      fillings.push_back({.place = xxh64(endpoint.address) % size,
                          .step = xxh64(endpoint.address, 1) % (size - 1) + 1,
                          .interval = interval});
      turns.push({interval, index});
    }
    next_.indices = std::move(indices);
    fillings_ = std::move(fillings);
    turns_ = std::move(turns);
    filled_ = 0;
    stale_ = false;
  }

  // The last free slots are found by many steps of a permutation, so that these are counted, too.
  void fill(std::size_t effort) {
    std::vector<std::uint32_t>& slots = *next_.slots;
    while (filled_ < slots.size()) {
      const Turn turn = turns_.top();
      Filling& filling = fillings_[turn.index];
      for (; slots[filling.place] != unused; --effort) {
        if (effort == 0) return;
        filling.place += filling.step;
        if (filling.place >= slots.size()) filling.place -= slots.size();
      }
      if (effort < effort_of_slot) return;
      effort -= effort_of_slot;
      slots[filling.place] = turn.index;
      ++filled_;
      turns_.pop();
      turns_.push({turn.due + filling.interval, turn.index});
    }
  }

  LoadBound bound_;
  std::vector<Backend*> backends_;
  Table served_;        // The newest one that is filled.
  bool stale_ = false;  // backends_ is newer than the list of the newest table.
  Table next_;          // Is being filled, with the following fields. Without slots: it is not begun.
  std::size_t filled_ = 0;
  std::vector<Filling> fillings_;  // Empty: next_ has slots at most, and no list.
  Turns turns_;
};

}  // namespace

std::unique_ptr<Picker> make_hash_picker(const BalancingOptions& options) {
  if (options.kind == Balancing::maglev) return std::make_unique<Maglev>(options.load_max);
  return std::make_unique<RingHash>(options);
}

}  // namespace hawser::cluster
