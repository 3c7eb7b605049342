#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "base/try.h"
#include "hawser/loop.h"
#include "hawser/registered_buffer.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/transport.h"
#include "heap/external_block.h"
#include "heap/page_memory.h"
#include "os/dmabuf_range.h"
#include "rpc/session/region_table.h"

namespace hawser {

using MemoryTransports = std::vector<std::shared_ptr<transport::Transport>>;
using MemoryRegions = std::shared_ptr<detail::RegionTable>;

namespace detail {

// The end of a lease that begins now; Time::max() for none. Loops without virtual time use the monotonic clock.
inline Time lease_end(Duration lease) {
  constexpr Duration lease_max = std::chrono::hours(24 * 365 * 10);
  if (lease > lease_max) return Time::max();
  Loop* const loop = Loop::current();
  const Time now = loop != nullptr ? loop->poller().now() : Time(std::chrono::steady_clock::now().time_since_epoch());
  return now + lease;
}

}  // namespace detail

// The memory and its registrations. The RegisteredBuffer holds one reference; each user of the memory holds another.
class RegisteredBuffer::Impl final : public ExternalBlock {
 public:
  Impl(MutableBytes memory, PageMemory own, MemoryRegions regions) noexcept
      : ExternalBlock(&Impl::returned), memory_(memory), own_(std::move(own)), regions_(std::move(regions)) {}
  Impl(DmabufRange dmabuf, MemoryRegions regions) noexcept
      : ExternalBlock(&Impl::returned),
        memory_(dmabuf.addresses()),
        dmabuf_(std::move(dmabuf)),
        regions_(std::move(regions)) {}

  // Empty if there is not enough memory. The pages of large memory have not been allocated yet.
  static PageMemory allocate_pages(std::size_t bytes) {
    const std::size_t page = PageMemory::page_bytes;
    return bytes > std::size_t{PTRDIFF_MAX} ? PageMemory() : PageMemory::allocate((bytes + page - 1) / page * page);
  }
  static std::unexpected<Error> no_memory(std::size_t bytes) {
    return fail(ErrorCode::overloaded,
                "there is no memory for a registered buffer of " + count_text(bytes, "byte") + ": ask for less");
  }

  static Result<RegisteredBuffer> make(const MemoryTransports& transports, MemoryRegions regions, std::size_t bytes) {
    if (bytes == 0) return none();
    PageMemory own = allocate_pages(bytes);
    if (own.empty() || !PageMemory::populate(own.bytes())) return no_memory(bytes);
    const MutableBytes memory = own.bytes();  // GCC evaluates arguments from right to left.
    return make(transports, std::move(regions), memory, std::move(own));
  }
  static Result<RegisteredBuffer> make(const MemoryTransports& transports, MemoryRegions regions, MutableBytes memory,
                                       PageMemory own) {
    if (memory.empty()) return none();
    RegisteredBuffer made(new Impl(memory, std::move(own), std::move(regions)));
    TRY(made.impl_->register_with(transports));
    return made;
  }
  static Result<RegisteredBuffer> make(const MemoryTransports& transports, MemoryRegions regions,
                                       Result<DmabufRange> dmabuf) {
    TRY(dmabuf);
    RegisteredBuffer made(new Impl(std::move(*dmabuf), std::move(regions)));
    TRY(made.impl_->register_dmabuf_with(transports));
    return made;
  }
  static BufferAllocation in_background(MemoryTransports transports, MemoryRegions regions, std::size_t bytes,
                                        const AllocationOptions& options);
  static std::unexpected<Error> none() {
    return fail(ErrorCode::invalid_argument, "a registered buffer needs one byte or more");
  }

  // Empty if the processor cannot access the memory.
  MutableBytes memory() const noexcept { return dmabuf_.empty() ? memory_ : MutableBytes(); }
  MutableBytes addresses() const noexcept { return memory_; }
  bool registered() const noexcept { return !registrations_.empty(); }
  const std::string& why_not() const noexcept { return why_not_; }

  Result<std::shared_ptr<detail::Grant>> expose(MutableBytes stretch, RegionAccess access, Duration lease,
                                                RemoteRegion& handle, std::vector<std::string>& left_out) {
    const bool readable = access != RegionAccess::write;
    const bool writable = access != RegionAccess::read;
    const auto grant = std::make_shared<detail::Grant>(regions_, stretch, readable, writable, detail::lease_end(lease),
                                                       !dmabuf_.empty());
    if (!dmabuf_.empty() && grant->leased()) {
      return fail(ErrorCode::invalid_argument,
                  "memory of a dma-buf descriptor cannot have a lease: devices do not know leases, and the processor "
                  "cannot access the memory: use `forever` and revoke()");
    }
    const wire::RegionId id = grant->publish();
    handle = {.bytes = stretch.size(),
              .readable = readable,
              .writable = writable,
              .owner = id.owner,
              .slot = id.slot,
              .generation = id.generation,
              .capability = id.capability,
              .places = {}};
    std::size_t places = 0;
    // A device would not notice the end of a lease.
    for (const Registered& one : grant->leased() ? std::span<const Registered>() : std::span(registrations_)) {
      TRY(auto&& exposure, one.registration->expose(stretch, handle.readable, handle.writable));
      std::size_t beyond = 0;
      for (const transport::ExposedPlace& place : exposure->places()) {
        if (places == RemoteRegion::places_max) {
          ++beyond;
        } else {
          handle.places[places++] = {place.domain, place.address, place.key};
        }
      }
      for (std::string& refusal : exposure->left_out()) left_out.push_back(std::move(refusal));
      if (beyond != 0) {
        left_out.push_back(count_text(beyond, "device") + ": a RemoteRegion names " +
                           std::to_string(RemoteRegion::places_max) + " at most (RemoteRegion::places_max)");
      }
      grant->add(std::move(exposure));
    }
    const std::lock_guard lock(mutex_);
    if (grants_.size() >= sweep_at_) {
      std::erase_if(grants_, [](const auto& other) { return other.expired(); });
      sweep_at_ = std::max(sweep_min, 2 * grants_.size());
    }
    grants_.push_back(grant);
    return grant;
  }

  // Drops the reference of the RegisteredBuffer.
  void drop() noexcept {
    if (own_.empty() && dmabuf_.empty()) {
      // From now on the caller may free the memory.
      const std::lock_guard lock(mutex_);
      for (const auto& weak : grants_) {
        if (const auto grant = weak.lock()) grant->revoke();
      }
      registrations_.clear();
    }
    release();
  }

 private:
  static constexpr std::size_t sweep_min = 16;

  struct Registered {
    std::shared_ptr<transport::Transport> transport;
    std::unique_ptr<transport::MemoryRegistration> registration;
  };

  Result<void> register_with(const MemoryTransports& transports) {
    why_not_ = "no enabled transport registers memory";
    for (std::size_t i = 0; i < transports.size(); ++i) {
      why_not_ += (i == 0 ? ": enabled are " : ", ") + std::string(transports[i]->name());
    }
    for (const auto& transport : transports) {
      auto registration = transport->register_memory(memory_, *this, !own_.empty());
      if (!registration) {
        if (registration.error().code != ErrorCode::unavailable) return fail(std::move(registration.error()));
        why_not_ = std::move(registration.error().text);
      } else if (*registration != nullptr) {
        registrations_.push_back({transport, std::move(*registration)});
      }
    }
    if (!registrations_.empty()) why_not_.clear();
    return {};
  }

  // Only devices can use the memory, so that it is an error if none does.
  Result<void> register_dmabuf_with(const MemoryTransports& transports) {
    std::string reasons;
    for (const auto& transport : transports) {
      auto registration = transport->register_dmabuf({memory_, dmabuf_.descriptor(), dmabuf_.offset()}, *this);
      if (registration) {
        registrations_.push_back({transport, std::move(*registration)});
      } else if (registration.error().code != ErrorCode::unavailable) {
        return fail(std::move(registration.error()));
      } else {
        reasons += (reasons.empty() ? ": " : "; ") + registration.error().text;
      }
    }
    if (!registrations_.empty()) return {};
    return fail(ErrorCode::unavailable, "no enabled transport can use the memory of a dma-buf descriptor" +
                                            (reasons.empty() ? ": enable RDMA" : reasons));
  }

  static void returned(ExternalBlock& block) noexcept { delete static_cast<Impl*>(&block); }

  const MutableBytes memory_;
  const PageMemory own_;  // Empty if the memory belongs to the caller, or to a descriptor.
  const DmabufRange dmabuf_;
  const MemoryRegions regions_;
  std::vector<Registered> registrations_;
  std::string why_not_;
  std::mutex mutex_;  // Guards the following members.
  std::vector<std::weak_ptr<detail::Grant>> grants_;
  std::size_t sweep_at_ = sweep_min;  // The size at which the revoked ones are removed from grants_.
};

}  // namespace hawser
