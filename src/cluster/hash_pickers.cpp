#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <string>
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

// Each backend has several points on a ring of hashes. The first point behind the key decides.
class RingHash final : public Picker {
 public:
  explicit RingHash(double load_max) : bound_(load_max) {}

  void assign(std::vector<Backend*> backends) override {
    backends_ = std::move(backends);
    bound_.assign(backends_);
    ring_.clear();
    double sum = 0;
    for (const Backend* const backend : backends_) sum += backend->endpoint.weight;
    const auto points = static_cast<double>(std::clamp(backends_.size() * points_of_each, points_min, points_max));
    for (std::uint32_t i = 0; i < backends_.size(); ++i) {
      const Endpoint& endpoint = backends_[i]->endpoint;
      const auto count = static_cast<std::uint64_t>(std::max(1.0, std::round(points * endpoint.weight / sum)));
      for (std::uint64_t point = 0; point < count; ++point) {
        ring_.push_back({xxh64(endpoint.address + "_" + std::to_string(point)), i});
      }
    }
    std::ranges::sort(ring_, {}, &Point::hash);
  }

  Backend* pick(const PickQuery& query) noexcept override {
    const auto behind = std::ranges::lower_bound(ring_, query.key, {}, &Point::hash);
    const auto begin = static_cast<std::size_t>(behind - ring_.begin());
    Backend* admitted = nullptr;  // The first one; its load may exceed the bound.
    for (std::size_t i = 0; i < ring_.size(); ++i) {
      Backend* const backend = backends_[ring_[(begin + i) % ring_.size()].index];
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
  static constexpr std::size_t points_of_each = 64;
  static constexpr std::size_t points_min = 1024;
  static constexpr std::size_t points_max = 4096;  // More if there are more backends: each has one.

  LoadBound bound_;
  std::vector<Backend*> backends_;
  std::vector<Point> ring_;
};

// Maglev (Eisenbud and others, NSDI 2016, section 3.4): backends fill a table in turns, each by its own permutation.
class Maglev final : public Picker {
 public:
  explicit Maglev(double load_max) : bound_(load_max) {}

  void assign(std::vector<Backend*> backends) override {
    backends_ = std::move(backends);
    bound_.assign(backends_);
    const std::size_t least = backends_.size() * slots_of_each;
    const auto size = std::ranges::find_if(primes, [&](std::uint32_t prime) { return prime >= least; });
    table_.assign(size == primes.end() ? primes.back() : *size, unused);
    fill();
  }

  Backend* pick(const PickQuery& query) noexcept override {
    Backend* admitted = nullptr;  // The first one; its load may exceed the bound.
    std::uint64_t key = query.key;
    for (unsigned i = 0; i < tries_max; ++i, key = Random(key).next()) {
      Backend* const backend = backends_[table_[key % table_.size()]];
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
  static constexpr std::array<std::uint32_t, 5> primes = {65'537, 131'101, 262'147, 524'309, 1'048'583};

  struct Filling {
    std::uint64_t place;
    std::uint64_t step;
  };
  // Slots go to the backends by turns that are 1/weight apart, which are the turns of the paper if weights are equal.
  struct Turn {
    double due;
    std::uint32_t index;
    bool operator>(const Turn& other) const noexcept {
      return due != other.due ? due > other.due : index > other.index;
    }
  };

  void fill() {
    const std::uint64_t size = table_.size();
    std::vector<Filling> fillings;
    std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
    for (std::uint32_t i = 0; i < backends_.size(); ++i) {
      const Endpoint& endpoint = backends_[i]->endpoint;
      fillings.push_back(
          {.place = xxh64(endpoint.address) % size, .step = xxh64(endpoint.address, 1) % (size - 1) + 1});
      turns.push({1.0 / endpoint.weight, i});
    }
    for (std::uint64_t used = 0; used < size; ++used) {
      const Turn turn = turns.top();
      turns.pop();
      turns.push({turn.due + 1.0 / backends_[turn.index]->endpoint.weight, turn.index});
      Filling& filling = fillings[turn.index];
      while (table_[filling.place] != unused) {
        filling.place += filling.step;
        if (filling.place >= size) filling.place -= size;
      }
      table_[filling.place] = turn.index;
    }
  }

  LoadBound bound_;
  std::vector<Backend*> backends_;
  std::vector<std::uint32_t> table_;  // Indices of backends.
};

}  // namespace

std::unique_ptr<Picker> make_hash_picker(Balancing kind, double load_max) {
  if (kind == Balancing::maglev) return std::make_unique<Maglev>(load_max);
  return std::make_unique<RingHash>(load_max);
}

}  // namespace hawser::cluster
