#include <algorithm>
#include <utility>

#include "lab/executor.h"
#include "transport/sim/rdma/sim_fabric.h"

namespace hawser::lab {
namespace {

class VirtualProcessor final : public Processor {
 public:
  VirtualProcessor(const transport::SimParameters& costs, double start_ns, std::vector<Role*> of)
      : roles(std::move(of)), costs_(costs) {
    state.now_ns = start_ns;
  }
  double now_ns() override { return state.now_ns; }
  void did(CpuTask cpu_task, std::size_t times) override {
    state.now_ns += cost_ns(cpu_task) * static_cast<double>(times);
  }

  transport::SimProcessor state;
  std::vector<Role*> roles;
  bool looked_in_vain = false;

 private:
  double cost_ns(CpuTask cpu_task) const noexcept {
    switch (cpu_task) {
      case CpuTask::allocate: return costs_.allocation_ns;
      case CpuTask::log_line: return costs_.log_line_ns;
      case CpuTask::fill_byte: return costs_.fill_byte_ns;
      case CpuTask::handover: return costs_.handover_ns;
    }
    return 0;
  }
  const transport::SimParameters& costs_;
};

class SimExecutor final : public Executor {
 public:
  explicit SimExecutor(std::shared_ptr<transport::SimFabric> fabric) : fabric_(std::move(fabric)) {}
  ~SimExecutor() override { fabric_->set_processor(nullptr); }
  bool simulated() const noexcept override { return true; }

  Result<void> run(std::span<const std::vector<Role*>> threads) override {
    std::vector<std::unique_ptr<VirtualProcessor>> processors;
    for (const std::vector<Role*>& roles : threads) {
      processors.push_back(std::make_unique<VirtualProcessor>(fabric_->parameters(), fabric_->now_ns(), roles));
    }
    Result<void> result;
    while (result && !processors.empty()) {
      // Selects the processor whose clock is earliest; the first one if several are equal.
      const auto first = std::min_element(processors.begin(), processors.end(), [](const auto& a, const auto& b) {
        return a->state.now_ns < b->state.now_ns;
      });
      VirtualProcessor& processor = **first;
      fabric_->advance(processor.state.now_ns);
      fabric_->set_processor(&processor.state);
      bool progress = false;
      for (Role* const role : processor.roles) {
        Result<bool> stepped = role->step(processor);
        if (!stepped) {
          result = fail(std::move(stepped.error()));
          break;
        }
        progress = progress || *stepped;
      }
      if (std::erase_if(processor.roles, [](const Role* role) { return role->done(); }) > 0) progress = true;
      if (processor.roles.empty()) {
        retired_.push_back(std::move(*first));  // Queues may still refer to it.
        processors.erase(first);
      }
      if (progress) {
        for (const auto& each : processors) each->looked_in_vain = false;
        continue;
      }
      processor.looked_in_vain = true;
      const double wake_ns = next_change_ns(processors);
      if (wake_ns == transport::never_ns) {
        result = fail(Error::of_connection(ErrorCode::internal, "the simulated system stands still"));
      } else {
        processor.state.now_ns = std::max(processor.state.now_ns, wake_ns);
      }
    }
    fabric_->set_processor(nullptr);
    for (auto& processor : processors) retired_.push_back(std::move(processor));
    return result;
  }

 private:
  // Returns the time at which an idle processor can see something new: the next event, a completion that becomes
  // visible, or the next step of a processor that has not polled in vain since the last change. Returns never_ns if
  // nothing will change.
  double next_change_ns(const std::vector<std::unique_ptr<VirtualProcessor>>& processors) const {
    double ns = fabric_->next_change_ns();
    for (const auto& processor : processors) {
      if (!processor->looked_in_vain) ns = std::min(ns, processor->state.now_ns);
    }
    return ns;
  }

  const std::shared_ptr<transport::SimFabric> fabric_;
  std::vector<std::unique_ptr<VirtualProcessor>> retired_;
};

}  // namespace

std::unique_ptr<Executor> make_sim_executor(std::shared_ptr<transport::SimFabric> fabric) {
  return std::make_unique<SimExecutor>(std::move(fabric));
}

}  // namespace hawser::lab
