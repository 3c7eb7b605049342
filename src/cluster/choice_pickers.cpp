#include <algorithm>
#include <memory>
#include <vector>

#include "cluster/picker.h"

// Pickers that compare some random backends.
namespace hawser::cluster {
namespace {

// Any admitted backend other than `other`, all with the same probability unless most backends are not admitted.
Backend* any_other(std::span<Backend* const> backends, const PickQuery& query, const Backend* other) noexcept {
  for (unsigned i = 0; i < tries_max; ++i) {
    Backend* const backend = backends[query.random.below(backends.size())];
    if (backend != other && query.admits(*backend)) return backend;
  }
  const std::size_t begin = query.random.below(backends.size());
  Backend* const first = first_admitted(backends, begin, query);
  if (first != other || first == nullptr) return first;
  for (std::size_t i = 0; i < backends.size(); ++i) {
    Backend* const backend = backends[(begin + i) % backends.size()];
    if (backend != other && query.admits(*backend)) return backend;
  }
  return nullptr;
}

class TwoChoices final : public Picker {
 public:
  explicit TwoChoices(Duration decay) : decay_(decay) {}
  std::unique_ptr<Picker> copy() const override { return std::make_unique<TwoChoices>(*this); }
  void assign(std::vector<Backend*> backends) override { backends_ = std::move(backends); }
  Backend* pick(const PickQuery& query) noexcept override {
    Backend* const one = any_other(backends_, query, nullptr);
    if (one == nullptr || backends_.size() == 1) return one;
    Backend* const two = any_other(backends_, query, one);
    if (two == nullptr) return one;
    return cost(*two, query.now) < cost(*one, query.now) ? two : one;
  }

 private:
  // The expected time until a further call would have ended. A backend without a measurement is tried by one call,
  // and gets no more of them before that call has ended.
  double cost(const Backend& backend, Time now) const noexcept {
    static constexpr double unmeasured = 1e9;
    const double latency = backend.latency.measured() ? backend.latency.value(now, decay_)
                           : backend.in_flight == 0   ? 0
                                                      : unmeasured;
    return latency * (backend.in_flight + 1.0) / backend.endpoint.weight;
  }

  const Duration decay_;
  std::vector<Backend*> backends_;
};

class LeastRequest final : public Picker {
 public:
  explicit LeastRequest(unsigned choices) : choices_(std::clamp(choices, 2U, 10U)) {}
  std::unique_ptr<Picker> copy() const override { return std::make_unique<LeastRequest>(*this); }
  void assign(std::vector<Backend*> backends) override { backends_ = std::move(backends); }
  Backend* pick(const PickQuery& query) noexcept override {
    Backend* best = nullptr;
    for (unsigned i = 0; i < choices_; ++i) {
      Backend* const backend = any_other(backends_, query, best);
      if (backend == nullptr) break;
      if (best == nullptr || load(*backend) < load(*best)) best = backend;
    }
    return best;
  }

 private:
  static double load(const Backend& backend) noexcept { return (backend.in_flight + 1.0) / backend.endpoint.weight; }

  const unsigned choices_;
  std::vector<Backend*> backends_;
};

// Draws by Walker's alias method, as Vose builds its table ("A linear algorithm for generating random numbers with a
// given distribution", 1991): one of two backends for each column.
class WeightedRandom final : public Picker {
 public:
  std::unique_ptr<Picker> copy() const override { return std::make_unique<WeightedRandom>(*this); }
  void assign(std::vector<Backend*> backends) override {
    backends_ = std::move(backends);
    double sum = 0;
    for (const Backend* const backend : backends_) sum += backend->endpoint.weight;
    std::vector<double> height;  // 1 is the mean.
    std::vector<std::uint32_t> low;
    std::vector<std::uint32_t> high;
    columns_.assign(backends_.size(), Column());
    for (std::uint32_t i = 0; i < backends_.size(); ++i) {
      height.push_back(backends_[i]->endpoint.weight / sum * static_cast<double>(backends_.size()));
      (height[i] < 1 ? low : high).push_back(i);
    }
    while (!low.empty() && !high.empty()) {
      const std::uint32_t from = low.back();
      const std::uint32_t filler = high.back();
      low.pop_back();
      columns_[from] = {.own = height[from], .alias = filler};
      height[filler] -= 1 - height[from];
      if (height[filler] >= 1) continue;
      high.pop_back();
      low.push_back(filler);
    }
  }
  Backend* pick(const PickQuery& query) noexcept override {
    for (unsigned i = 0; i < tries_max; ++i) {
      const std::size_t at = query.random.below(columns_.size());
      Backend* const backend = backends_[query.random.chance(columns_[at].own) ? at : columns_[at].alias];
      if (query.admits(*backend)) return backend;
    }
    return first_admitted(backends_, query.random.below(backends_.size()), query);
  }

 private:
  struct Column {
    double own = 1;  // Probability of the backend of this index. Else `alias`.
    std::uint32_t alias = 0;
  };

  std::vector<Backend*> backends_;
  std::vector<Column> columns_;
};

}  // namespace

std::unique_ptr<Picker> make_choice_picker(const BalancingOptions& options) {
  switch (options.kind) {
    case Balancing::least_request: return std::make_unique<LeastRequest>(options.choices);
    case Balancing::random: return std::make_unique<WeightedRandom>();
    default: return std::make_unique<TwoChoices>(options.latency_decay);
  }
}

}  // namespace hawser::cluster
