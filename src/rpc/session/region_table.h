#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/time.h"
#include "hawser/transport/transport.h"
#include "table/slot_table.h"
#include "wire/memory_body.h"

namespace hawser::detail {

class RegionTable;

// One exposed region: what peers may do with it, until it is revoked. Any thread.
class Grant final : public std::enable_shared_from_this<Grant> {
 public:
  // `lease_end` is Time::max() for a region without a lease. `dmabuf`: the processor cannot access the memory.
  Grant(std::shared_ptr<RegionTable> table, MutableBytes memory, bool readable, bool writable, Time lease_end,
        bool dmabuf = false) noexcept
      : table_(std::move(table)),
        memory_(memory),
        readable_(readable),
        writable_(writable),
        dmabuf_(dmabuf),
        lease_end_(lease_end) {}
  Grant(const Grant&) = delete;
  Grant& operator=(const Grant&) = delete;
  ~Grant() { revoke(); }

  // Publishes the region. From now on find() of the table returns it.
  wire::RegionId publish();
  // The devices that also give access to the region, until it is revoked. Called before the handle is given to anybody.
  void add(std::unique_ptr<transport::MemoryExposure> exposure);

  MutableBytes memory() const noexcept { return memory_; }
  bool readable() const noexcept { return readable_; }
  bool writable() const noexcept { return writable_; }
  bool dmabuf() const noexcept { return dmabuf_; }
  bool leased() const noexcept { return lease_end_ != Time::max(); }
  bool lease_ended(Time now) const noexcept { return now >= lease_end_; }

  // Brackets each access to the memory by frames. Any number of threads at once. enter() returns false if the region
  // has been revoked.
  bool enter() noexcept {
    if ((state_.fetch_add(1, std::memory_order_acquire) & revoked_bit) == 0) return true;
    leave();
    return false;
  }
  void leave() noexcept {
    if (state_.fetch_sub(1, std::memory_order_release) == (revoked_bit | 1)) state_.notify_all();
  }

  // After this, nobody accesses the memory through this object: waits for accesses in progress, each of which lasts as
  // long as one copy or one receive from a socket that does not block. Never called between enter() and leave().
  void revoke() noexcept;
  bool lost() noexcept;

 private:
  static constexpr std::uint32_t revoked_bit = 1U << 31;

  const std::shared_ptr<RegionTable> table_;
  const MutableBytes memory_;
  const bool readable_;
  const bool writable_;
  const bool dmabuf_;
  const Time lease_end_;
  std::atomic<std::uint32_t> state_{0};  // The number of accesses in progress, and revoked_bit.
  std::mutex mutex_;                     // Guards the following members.
  std::vector<std::unique_ptr<transport::MemoryExposure>> exposures_;
  bool published_ = false;
  std::uint32_t slot_ = 0;
};

// The regions that one client or server exposes. Their number is bounded by the application, which exposes them. Any
// thread.
class RegionTable {
 public:
  RegionTable();
  // Null if the region is not exposed (any more).
  std::shared_ptr<Grant> find(const wire::RegionId& id) noexcept;
  std::size_t size() const noexcept;

 private:
  friend class Grant;
  wire::RegionId add(const std::shared_ptr<Grant>& grant);
  void remove(std::uint32_t slot) noexcept;

  struct Region {
    std::weak_ptr<Grant> grant;
    std::uint64_t capability = 0;
  };

  const std::uint64_t owner_;  // Random: another process, or the same one after a restart, has another number.
  mutable std::mutex mutex_;   // Guards the following member.
  // The capability still differs when the generations of a slot begin again.
  table::SlotTable<Region> regions_;
};

}  // namespace hawser::detail
