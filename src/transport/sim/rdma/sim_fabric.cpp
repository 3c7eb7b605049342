#include "transport/sim/rdma/sim_fabric.h"

#include <algorithm>

#include "transport/sim/rdma/sim_device.h"
#include "transport/sim/rdma/sim_queue_pair.h"

namespace hawser::transport {

std::shared_ptr<SimFabric> SimFabric::create(const SimParameters& parameters, std::uint64_t seed, unsigned devices) {
  std::shared_ptr<SimFabric> fabric(new SimFabric(parameters, seed));
  for (unsigned i = 0; i < devices; ++i) fabric->names_.push_back("sim" + std::to_string(i));
  fabric->open_.resize(devices);
  return fabric;
}

SimFabric::~SimFabric() = default;

Result<std::vector<std::string>> SimFabric::devices() { return names_; }

Result<std::shared_ptr<rdma::Device>> SimFabric::open(const std::string& name) {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    return fail(ErrorCode::unavailable, "there is no simulated device " + name + ": they are sim0 and following");
  }
  const auto index = static_cast<std::size_t>(found - names_.begin());
  std::shared_ptr<SimDevice> device = open_[index].lock();
  if (device == nullptr) {
    device = std::make_shared<SimDevice>(shared_from_this(), name, static_cast<unsigned>(index));
    open_[index] = device;
  }
  return device;
}

void SimFabric::schedule(Event event) {
  event.order = ++last_order_;
  events_.push(event);
}

void SimFabric::advance(double ns) {
  while (!events_.empty() && events_.top().ns <= ns) {
    const Event event = events_.top();
    events_.pop();
    now_ns_ = std::max(now_ns_, event.ns);
    // Events of destroyed queue pairs are dropped.
    if (SimQueuePair* const queue_pair = find(event.queue_pair)) queue_pair->on_event(event);
  }
  now_ns_ = std::max(now_ns_, ns);
}

double SimFabric::next_notice_ns() const noexcept {
  double ns = never_ns;
  for (const SimCompletionQueue* const queue : queues_) ns = std::min(ns, queue->notice_ns());
  return ns;
}

std::size_t SimFabric::deliver_notices() {
  std::size_t delivered = 0;
  for (std::size_t i = 0; i < queues_.size(); ++i) delivered += queues_[i]->deliver(now_ns_) ? 1 : 0;
  return delivered;
}

double SimFabric::next_change_ns() noexcept {
  while (!shows_.empty() && shows_.top() <= now_ns_) shows_.pop();
  const double event_ns = events_.empty() ? never_ns : events_.top().ns;
  return shows_.empty() ? event_ns : std::min(event_ns, shows_.top());
}

std::uint32_t SimFabric::add(SimQueuePair& queue_pair) {
  queue_pairs_.emplace(++last_number_, &queue_pair);
  return last_number_;
}

SimQueuePair* SimFabric::find(std::uint32_t number) const noexcept {
  const auto found = queue_pairs_.find(number);
  return found == queue_pairs_.end() ? nullptr : found->second;
}

double SimFabric::link_ns() {
  if (parameters_.jitter <= 0) return parameters_.link_ns;
  const double part = static_cast<double>(random_.next() >> 11) * 0x1.0p-53;
  return parameters_.link_ns * (1 + parameters_.jitter * (2 * part - 1));
}

}  // namespace hawser::transport
