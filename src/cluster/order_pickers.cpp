#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "cluster/picker.h"

// Pickers that follow an order.
namespace hawser::cluster {
namespace {

class PickFirst final : public Picker {
 public:
  std::unique_ptr<Picker> copy() const override { return std::make_unique<PickFirst>(*this); }
  void assign(std::vector<Backend*> backends) override { backends_ = std::move(backends); }
  Backend* pick(const PickQuery& query) noexcept override { return first_admitted(backends_, 0, query); }
  bool spreads() const noexcept override { return false; }

 private:
  std::vector<Backend*> backends_;
};

class RoundRobin final : public Picker {
 public:
  explicit RoundRobin(std::uint64_t seed) : next_(Random(seed).next() >> 1) {}
  std::unique_ptr<Picker> copy() const override { return std::make_unique<RoundRobin>(*this); }
  void assign(std::vector<Backend*> backends) override { backends_ = std::move(backends); }
  Backend* pick(const PickQuery& query) noexcept override {
    for (std::size_t i = 0; i < backends_.size(); ++i) {
      Backend* const backend = backends_[next_++ % backends_.size()];
      if (query.admits(*backend)) return backend;
    }
    return nullptr;
  }

 private:
  std::uint64_t next_;
  std::vector<Backend*> backends_;
};

// Earliest deadline first: the deadlines of a backend are 1/weight apart, and the backend with the earliest one is
// chosen. So the choices of a backend are spread evenly. A weight that changes counts from the next turn of the backend
// on.
class WeightedRoundRobin final : public Picker {
 public:
  explicit WeightedRoundRobin(std::uint64_t seed) : random_(seed) {}
  std::unique_ptr<Picker> copy() const override { return std::make_unique<WeightedRoundRobin>(*this); }
  void assign(std::vector<Backend*> backends) override {
    backends_ = std::move(backends);
    turns_.clear();
    for (std::uint32_t i = 0; i < backends_.size(); ++i) turns_.push_back({random_.below(period(i)), i});
    std::ranges::make_heap(turns_, later);
  }
  Backend* pick(const PickQuery& query) noexcept override {
    for (unsigned i = 0; i < tries_max; ++i) {
      Backend* const backend = backends_[turns_.front().index];
      postpone_first();
      if (query.admits(*backend)) return backend;
    }
    return first_admitted(backends_, query.random.below(backends_.size()), query);
  }

 private:
  struct Turn {
    std::uint64_t deadline;  // May wrap around. Deadlines differ by at most one period.
    std::uint32_t index;
  };
  static bool later(const Turn& a, const Turn& b) noexcept {
    return static_cast<std::int64_t>(a.deadline - b.deadline) > 0;
  }
  std::uint64_t period(std::uint32_t index) const noexcept {
    return static_cast<std::uint64_t>(0x1p40 / backends_[index]->weight());
  }
  // Gives the first turn its next deadline, and moves it down the heap.
  void postpone_first() noexcept {
    Turn turn = turns_.front();
    turn.deadline += period(turn.index);
    std::size_t at = 0;
    for (std::size_t child = 1; child < turns_.size(); child = 2 * at + 1) {
      if (child + 1 < turns_.size() && later(turns_[child], turns_[child + 1])) ++child;
      if (!later(turn, turns_[child])) break;
      turns_[at] = turns_[child];
      at = child;
    }
    turns_[at] = turn;
  }

  Random random_;
  std::vector<Backend*> backends_;
  std::vector<Turn> turns_;  // A heap; the earliest deadline is first.
};

}  // namespace

std::unique_ptr<Picker> make_order_picker(Balancing kind, std::uint64_t seed) {
  switch (kind) {
    case Balancing::weighted_round_robin: return std::make_unique<WeightedRoundRobin>(seed);
    case Balancing::pick_first: return std::make_unique<PickFirst>();
    default: return std::make_unique<RoundRobin>(seed);
  }
}

std::unique_ptr<Picker> make_picker(const BalancingOptions& options, std::uint64_t seed) {
  switch (options.kind) {
    case Balancing::p2c:
    case Balancing::least_request:
    case Balancing::random: return make_choice_picker(options);
    case Balancing::round_robin:
    case Balancing::weighted_round_robin:
    case Balancing::pick_first: return make_order_picker(options.kind, seed);
    case Balancing::ring_hash:
    case Balancing::maglev: break;
  }
  return make_hash_picker(options);
}

}  // namespace hawser::cluster
