#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace hawser {
class Loop;
}

namespace hawser::security::tls {

// The sums over all loops, for counters. Thread-safe.
struct HeldTotals {
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> ended{0};
};

class MemoryHolder;

// The holders of one loop, by peers. When they exceed the limit, a holder of the peer whose holders have the most gives
// up: the one that has waited longest. So a peer that holds less than another one loses nothing, whatever others do.
// Loop's thread only.
class HeldMemory {
 public:
  HeldMemory(std::size_t bytes_max, std::shared_ptr<HeldTotals> totals) noexcept
      : bytes_max_(bytes_max), totals_(std::move(totals)) {}
  std::size_t bytes_max() const noexcept { return bytes_max_; }
  std::size_t used() const noexcept { return used_; }

 private:
  friend class MemoryHolder;
  struct Peer {
    std::size_t members = 0;           // Holders, whether they hold something or not.
    std::size_t bytes = 0;             // The sum of their memory.
    std::list<MemoryHolder*> waiting;  // Members that hold something, by the begin of their waiting.
  };
  using Peers = std::map<std::string, Peer>;

  void set(MemoryHolder& holder, std::size_t bytes, std::size_t progress);
  void take_off(MemoryHolder& holder) noexcept;
  void publish() noexcept;
  Peer* largest() noexcept;

  const std::size_t bytes_max_;
  const std::shared_ptr<HeldTotals> totals_;
  std::size_t used_ = 0;
  std::size_t published_ = 0;  // The part of totals_->bytes that is this one's.
  Peers peers_;
};

// Something that holds memory which its peer makes it hold. Loop's thread only.
class MemoryHolder {
 public:
  MemoryHolder() = default;
  MemoryHolder(const MemoryHolder&) = delete;
  MemoryHolder& operator=(const MemoryHolder&) = delete;

 protected:
  ~MemoryHolder();
  // Sets how much it holds now. `progress`: so many bytes have been exchanged with the peer since the last call. When
  // these are as many as it holds, its waiting begins again. May call give_up() of this one and of others.
  void hold(std::size_t bytes, std::size_t progress);
  // `peer` is the name of those whose memory counts together. Null: nothing is counted. Throws std::bad_alloc.
  void join(std::shared_ptr<HeldMemory> memory, const std::string& peer);
  bool joined() const noexcept { return memory_ != nullptr; }

 private:
  friend class HeldMemory;
  // Frees what it holds, as soon as it can, and ends. Must not destroy a holder within the call.
  virtual void give_up() = 0;

  std::shared_ptr<HeldMemory> memory_;
  HeldMemory::Peers::iterator peer_;  // With memory_.
  std::size_t bytes_ = 0;
  std::size_t progress_ = 0;                 // Since its waiting began.
  std::list<MemoryHolder*> unlisted_{this};  // Its element, while bytes_ is 0.
  const std::list<MemoryHolder*>::iterator place_ = unlisted_.begin();
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

}  // namespace hawser::security::tls
