#include "hawser/admission.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "cluster/concurrency_limit.h"

namespace hawser {
namespace {

enum class Priority : std::uint8_t { critical, normal, sheddable };

Priority priority_of(std::string_view text) noexcept {
  if (text == "critical") return Priority::critical;
  return text == "sheddable" ? Priority::sheddable : Priority::normal;
}

}  // namespace

struct Admission::Shared {
  explicit Shared(AdmissionOptions with) : options(std::move(with)), estimate(options.limit, 1) {}

  double part(Priority priority) const noexcept {
    switch (priority) {
      case Priority::critical: return 1;
      case Priority::normal: return options.default_part;
      case Priority::sheddable: break;
    }
    return options.sheddable_part;
  }
  // A call always has a place while no other one is in flight.
  bool enter(Priority priority) noexcept {
    const unsigned before = in_flight.fetch_add(1, std::memory_order_relaxed);
    if (before < std::max(1.0, part(priority) * limit.load(std::memory_order_relaxed))) return true;
    leave();
    refused[static_cast<std::size_t>(priority)].fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  unsigned leave() noexcept { return in_flight.fetch_sub(1, std::memory_order_relaxed); }
  // A loop does not wait for another one: its measurement is lost then.
  void observe(Duration latency, unsigned calls, Time now) noexcept {
    const std::unique_lock lock(estimating, std::try_to_lock);
    if (!lock) return;
    estimate.observe(latency, calls, now);
    limit.store(estimate.limit(), std::memory_order_relaxed);
  }

  const AdmissionOptions options;
  std::atomic<unsigned> in_flight = 0;
  std::atomic<unsigned> limit = options.limit.initial;
  std::array<std::atomic<std::uint64_t>, 3> refused = {};  // By Priority.
  std::mutex estimating;
  cluster::ConcurrencyLimit estimate;  // Guarded by `estimating`.
};

// The place of a call, also if its coroutine is destroyed.
class Admission::Place {
 public:
  explicit Place(Shared& shared) noexcept : shared_(&shared) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    if (shared_ != nullptr) shared_->leave();
  }
  unsigned leave() noexcept { return std::exchange(shared_, nullptr)->leave(); }

 private:
  Shared* shared_;
};

Admission::Admission(AdmissionOptions options) {
  if (const Result<void> checked = cluster::ConcurrencyLimit::check(options.limit); !checked) {
    throw std::invalid_argument("hawser: Admission: " + checked.error().text);
  }
  if (!(options.default_part > 0 && options.default_part <= 1 && options.sheddable_part > 0 &&
        options.sheddable_part <= 1)) {
    throw std::invalid_argument("hawser: Admission: default_part and sheddable_part must be above 0 and at most 1");
  }
  shared_ = std::make_shared<Shared>(std::move(options));
}

Task<Result<void>> Admission::operator()(IncomingCall& call, Next next) const {
  const std::shared_ptr<Shared> shared = shared_;
  const Priority priority = priority_of(call.metadata().find(shared->options.priority_metadata).value_or(""));
  if (!shared->enter(priority)) {
    co_return fail(ErrorCode::overloaded, "the server has as many calls in flight as its limit (" +
                                              std::to_string(shared->limit.load(std::memory_order_relaxed)) +
                                              ") permits for this priority: try again later, or elsewhere");
  }
  Place place(*shared);
  Loop& loop = call.loop();
  const bool measured = !call.streams();
  const Time began = loop.now();
  Result<void> result = co_await next();
  const unsigned calls = place.leave();
  if (measured) shared->observe(loop.now() - began, calls, loop.now());
  co_return result;
}

AdmissionState Admission::state() const noexcept {
  AdmissionState now{.limit = shared_->limit.load(std::memory_order_relaxed),
                     .in_flight = shared_->in_flight.load(std::memory_order_relaxed),
                     .refused = {}};
  for (std::size_t i = 0; i < now.refused.size(); ++i) {
    now.refused[i] = shared_->refused[i].load(std::memory_order_relaxed);
  }
  return now;
}

}  // namespace hawser
