#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace hawser {
class Loop;
}

namespace hawser::tls {

class HeldMemory;

// The sums over all loops, for counters. Thread-safe.
struct HeldTotals {
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> ended{0};
};

// Something that holds memory which its peer makes it hold. Loop's thread only.
class MemoryHolder {
 public:
  MemoryHolder() = default;
  MemoryHolder(const MemoryHolder&) = delete;
  MemoryHolder& operator=(const MemoryHolder&) = delete;

 protected:
  ~MemoryHolder();
  // Sets how much it holds now. `progress`: it has waited from now on only. May call give_up() of this one and of
  // others.
  void hold(std::size_t bytes, bool progress);
  void join(std::shared_ptr<HeldMemory> memory) noexcept { memory_ = std::move(memory); }
  bool joined() const noexcept { return memory_ != nullptr; }

 private:
  friend class HeldMemory;
  // Frees what it holds, as soon as it can, and ends. Must not destroy a holder within the call.
  virtual void give_up() = 0;

  std::shared_ptr<HeldMemory> memory_;
  std::size_t bytes_ = 0;
  std::list<MemoryHolder*> unlisted_{this};  // Its element, while bytes_ is 0.
  const std::list<MemoryHolder*>::iterator place_ = unlisted_.begin();
};

// The holders of one loop, in the order in which their waiting began. When they exceed the limit, those that have
// waited longest give up. Loop's thread only.
class HeldMemory {
 public:
  HeldMemory(std::size_t bytes_max, std::shared_ptr<HeldTotals> totals) noexcept
      : bytes_max_(bytes_max), totals_(std::move(totals)) {}
  std::size_t bytes_max() const noexcept { return bytes_max_; }
  std::size_t used() const noexcept { return used_; }

 private:
  friend class MemoryHolder;
  void set(MemoryHolder& holder, std::size_t bytes, bool progress);

  const std::size_t bytes_max_;
  const std::shared_ptr<HeldTotals> totals_;
  std::size_t used_ = 0;
  std::list<MemoryHolder*> holders_;
};

// The memory of each loop. Thread-safe.
class HeldMemories {
 public:
  // `bytes_max` 0: nothing is counted.
  explicit HeldMemories(std::size_t bytes_max) noexcept : bytes_max_(bytes_max) {}
  // Null if nothing is counted.
  std::shared_ptr<HeldMemory> of(const Loop& loop);
  const HeldTotals& totals() const noexcept { return *totals_; }

 private:
  const std::size_t bytes_max_;
  const std::shared_ptr<HeldTotals> totals_ = std::make_shared<HeldTotals>();
  std::mutex mutex_;
  std::map<const Loop*, std::weak_ptr<HeldMemory>> memories_;  // Guarded by mutex_.
};

}  // namespace hawser::tls
