#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "transport/rdma/device/verbs.h"
#include "transport/sim/rdma/sim_parameters.h"

namespace hawser::transport {

class SimCompletionQueue;
class SimDevice;
class SimQueuePair;

inline constexpr double never_ns = std::numeric_limits<double>::infinity();

// A processor in virtual time: its work advances its own clock. It sees the fabric's events up to that clock.
struct SimProcessor {
  double now_ns = 0;
  std::size_t receives_kept = 0;  // Receives in all queues that it posts to: its caches must hold them.
};

// Two or more simulated devices on one switch, in virtual time: a discrete-event model. It uses one thread, and the
// same seed gives the same run. The driver lets processors act in the order of their clocks, and calls advance() to the
// clock of the acting one: see SimExecutor, FabricPoller.
class SimFabric final : public rdma::Verbs, public std::enable_shared_from_this<SimFabric> {
 public:
  struct Event {
    enum class Kind : std::uint8_t { arrive, acknowledge, refuse, resume, read_done, give_up, last_receive };
    double ns = 0;
    std::uint64_t order = 0;  // Order among events of the same time.
    Kind kind = Kind::arrive;
    std::uint32_t queue_pair = 0;  // Queue pair of the sender.
    std::uint32_t epoch = 0;       // The sender's epoch when the message was sent. A refusal begins a new epoch.
    std::uint64_t sequence = 0;

    bool operator>(const Event& other) const noexcept { return ns != other.ns ? ns > other.ns : order > other.order; }
  };

  static std::shared_ptr<SimFabric> create(const SimParameters& parameters, std::uint64_t seed, unsigned devices = 2);
  ~SimFabric() override;

  // The names are "sim0", "sim1" and so on. Opening a device that is open returns the same object.
  Result<std::vector<std::string>> devices() override;
  Result<std::shared_ptr<rdma::Device>> open(const std::string& name) override;

  const SimParameters& parameters() const noexcept { return parameters_; }
  double now_ns() const noexcept { return now_ns_; }
  // Returns the time of the next event, or of the next completion that the host cannot see yet; never_ns if there is
  // none.
  double next_change_ns() noexcept;
  // Executes all events up to and including `ns`.
  void advance(double ns);

  // The acting processor, or `own` if there is none, is busy for `ns`.
  SimProcessor& charge(SimProcessor& own, double ns) noexcept {
    SimProcessor& processor = processor_ != nullptr ? *processor_ : own;
    processor.now_ns = (processor.now_ns < now_ns_ ? now_ns_ : processor.now_ns) + ns;
    return processor;
  }
  // Sets the acting processor, which pays for its requests to the devices. While it is null, devices charge a processor
  // of their own.
  void set_processor(SimProcessor* processor) noexcept { processor_ = processor; }
  SimProcessor* processor() const noexcept { return processor_; }

  // ---- For devices
  void schedule(Event event);
  std::uint32_t add(SimQueuePair& queue_pair);
  void remove(std::uint32_t number) noexcept { queue_pairs_.erase(number); }
  SimQueuePair* find(std::uint32_t number) const noexcept;
  std::uint32_t next_key() noexcept { return ++last_key_; }
  // For completion queues with watchers: the time of the next notification, and a function that sends all that are due
  // and returns their number.
  double next_notice_ns() const noexcept;
  std::size_t deliver_notices();
  void add(SimCompletionQueue& queue) { queues_.push_back(&queue); }
  void remove(SimCompletionQueue& queue) noexcept { std::erase(queues_, &queue); }
  // The host will see a completion at `ns`.
  void will_show(double ns) { shows_.push(ns); }
  // True if the message that is being delivered is the one to be corrupted.
  bool corrupts() noexcept { return ++delivered_ == parameters_.corrupt_message; }
  // Returns the latency of the link for one message.
  double link_ns();

 private:
  SimFabric(const SimParameters& parameters, std::uint64_t seed) : parameters_(parameters), random_(seed) {}

  const SimParameters parameters_;
  Random random_;
  double now_ns_ = 0;
  SimProcessor* processor_ = nullptr;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::priority_queue<double, std::vector<double>, std::greater<>> shows_;
  std::uint64_t last_order_ = 0;
  std::uint64_t delivered_ = 0;
  std::uint32_t last_number_ = 16;
  std::uint32_t last_key_ = 0;
  std::unordered_map<std::uint32_t, SimQueuePair*> queue_pairs_;
  std::vector<std::string> names_;
  std::vector<std::weak_ptr<SimDevice>> open_;  // Sorted by name.
  std::vector<SimCompletionQueue*> queues_;
};

}  // namespace hawser::transport
