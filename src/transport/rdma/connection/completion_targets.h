#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "transport/rdma/device/device_event.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::transport::rdma {

class ReceiveChunk;

// Receives the completions of a queue pair. It may be removed from the worker within a call.
class CompletionTarget {
 public:
  virtual void on_completion(const Completion& completion) = 0;
  virtual void on_event(const DeviceEvent& event) = 0;
  // A receive that the queue pair had used up was posted again to the shared queue.
  virtual void on_posted(const ReceiveChunk& chunk) = 0;

 protected:
  ~CompletionTarget() = default;
};

// The targets of one completion queue, by the numbers of their queue pairs. Remembers the last one that was found,
// because completions of a queue pair come in groups.
class CompletionTargets {
 public:
  void set(std::uint32_t queue_pair, CompletionTarget& target) {
    targets_[queue_pair] = &target;
    last_ = nullptr;
  }
  // Does nothing if the queue pair has no target, as when its connection was never completed.
  void replace(std::uint32_t queue_pair, CompletionTarget& target) noexcept {
    if (const auto found = targets_.find(queue_pair); found != targets_.end()) found->second = &target;
    last_ = nullptr;
  }
  void remove(std::uint32_t queue_pair) noexcept {
    targets_.erase(queue_pair);
    last_ = nullptr;
  }
  // Null: the queue pair has none.
  CompletionTarget* find(std::uint32_t queue_pair) noexcept {
    if (last_ != nullptr && last_number_ == queue_pair) return last_;
    const auto found = targets_.find(queue_pair);
    if (found == targets_.end()) return nullptr;
    last_number_ = queue_pair;
    return last_ = found->second;
  }
  // The numbers of all, for a loop in which targets may come and go.
  std::vector<std::uint32_t> numbers() const {
    std::vector<std::uint32_t> all;
    all.reserve(targets_.size());
    for (const auto& [number, target] : targets_) all.push_back(number);
    return all;
  }
  std::size_t size() const noexcept { return targets_.size(); }

 private:
  std::unordered_map<std::uint32_t, CompletionTarget*> targets_;
  std::uint32_t last_number_ = 0;
  CompletionTarget* last_ = nullptr;  // With last_number_; null: unknown.
};

}  // namespace hawser::transport::rdma
