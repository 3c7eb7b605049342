#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "base/external_block.h"
#include "hawser/client.h"
#include "hawser/loop.h"
#include "hawser/memory.h"
#include "hawser/rdma.h"
#include "hawser/server.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/transport.h"
#include "rpc/session/region_table.h"

namespace hawser {

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t max_bytes = PTRDIFF_MAX;
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

using Transports = std::vector<std::shared_ptr<transport::Transport>>;

struct FreeAligned {
  std::size_t alignment;
  void operator()(std::byte* memory) const noexcept { ::operator delete(memory, std::align_val_t(alignment)); }
};
using OwnMemory = std::unique_ptr<std::byte, FreeAligned>;

// Returns null if not enough memory is available.
OwnMemory allocate_pages(std::size_t bytes) {
  // The alignment allows the kernel to use huge pages, which need fewer entries in a device's page table.
  const std::size_t alignment = bytes >= huge_page_bytes ? huge_page_bytes : page_bytes;
  void* const pages = ::operator new(bytes, std::align_val_t(alignment), std::nothrow);
  if (pages != nullptr) std::memset(pages, 0, bytes);
  return {static_cast<std::byte*>(pages), {alignment}};
}

using Regions = std::shared_ptr<detail::RegionTable>;

// The end of a lease that begins now; Time::max() for none. Loops without virtual time use the monotonic clock.
Time lease_end(Duration lease) {
  constexpr Duration lease_max = std::chrono::hours(24 * 365 * 10);
  if (lease > lease_max) return Time::max();
  Loop* const loop = Loop::current();
  const Time now = loop != nullptr ? loop->poller().now() : Time(std::chrono::steady_clock::now().time_since_epoch());
  return now + lease;
}

std::vector<RdmaCounters> counters_of(const Transports& transports) {
  std::vector<RdmaCounters> all;
  for (const auto& transport : transports) {
    for (transport::TransportMemory& one : transport->memory()) {
      all.push_back({.device = std::move(one.device),
                     .registered_bytes = one.registered_bytes,
                     .used_bytes = one.used_bytes,
                     .used_bytes_max = one.used_bytes_max,
                     .refused = one.refused,
                     .connections = one.connections,
                     .connection_bytes = one.connection_bytes,
                     .buffer_bytes = one.user_bytes,
                     .buffer_sends = one.user_sends,
                     .buffer_receives = one.user_receives});
    }
  }
  return all;
}

}  // namespace

// The memory and its registrations. The RegisteredBuffer holds one reference; each user of the memory holds another.
class RegisteredBuffer::Impl final : public ExternalBlock {
 public:
  Impl(MutableBytes memory, OwnMemory own, Regions regions) noexcept
      : ExternalBlock(&Impl::returned), memory_(memory), own_(std::move(own)), regions_(std::move(regions)) {}

  // Null memory means that this function allocates it.
  static Result<RegisteredBuffer> make(const Transports& transports, Regions regions, MutableBytes memory,
                                       std::size_t bytes) {
    if (bytes == 0) return fail(ErrorCode::invalid_argument, "a registered buffer needs one byte or more");
    OwnMemory own(nullptr, {page_bytes});
    if (memory.data() == nullptr) {
      const std::size_t whole = bytes > max_bytes ? 0 : (bytes + page_bytes - 1) / page_bytes * page_bytes;
      if (whole != 0) own = allocate_pages(whole);
      if (own == nullptr) {
        return fail(ErrorCode::overloaded,
                    "there is no memory for a registered buffer of " + std::to_string(bytes) + " bytes: ask for less");
      }
      memory = {own.get(), whole};
    }
    RegisteredBuffer made(new Impl(memory, std::move(own), std::move(regions)));
    if (auto done = made.impl_->register_with(transports); !done) return std::unexpected(std::move(done.error()));
    return made;
  }

  MutableBytes memory() const noexcept { return memory_; }
  bool registered() const noexcept { return !registrations_.empty(); }
  const std::string& why_not() const noexcept { return why_not_; }

  Result<std::shared_ptr<detail::Grant>> expose(MutableBytes stretch, RegionAccess access, Duration lease,
                                                RemoteRegion& handle, std::vector<std::string>& left_out) {
    const bool readable = access != RegionAccess::write;
    const bool writable = access != RegionAccess::read;
    const auto grant = std::make_shared<detail::Grant>(regions_, stretch, readable, writable, lease_end(lease));
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
      auto exposure = one.registration->expose(stretch, handle.readable, handle.writable);
      if (!exposure) return std::unexpected(std::move(exposure.error()));
      std::size_t beyond = 0;
      for (const transport::ExposedPlace& place : (*exposure)->places()) {
        if (places == RemoteRegion::places_max) {
          ++beyond;
        } else {
          handle.places[places++] = {place.domain, place.address, place.key};
        }
      }
      for (std::string& refusal : (*exposure)->left_out()) left_out.push_back(std::move(refusal));
      if (beyond != 0) {
        left_out.push_back(std::to_string(beyond) + " devices: a RemoteRegion names " +
                           std::to_string(RemoteRegion::places_max) + " at most (RemoteRegion::places_max)");
      }
      grant->add(std::move(*exposure));
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
    if (own_ == nullptr) {
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

  Result<void> register_with(const Transports& transports) {
    why_not_ = "no enabled transport registers memory";
    for (std::size_t i = 0; i < transports.size(); ++i) {
      why_not_ += (i == 0 ? ": enabled are " : ", ") + std::string(transports[i]->name());
    }
    for (const auto& transport : transports) {
      auto registration = transport->register_memory(memory_, *this, own_ != nullptr);
      if (!registration) {
        if (registration.error().code != ErrorCode::unavailable)
          return std::unexpected(std::move(registration.error()));
        why_not_ = std::move(registration.error().text);
      } else if (*registration != nullptr) {
        registrations_.push_back({transport, std::move(*registration)});
      }
    }
    if (!registrations_.empty()) why_not_.clear();
    return {};
  }

  static void returned(ExternalBlock& block) noexcept { delete static_cast<Impl*>(&block); }

  const MutableBytes memory_;
  const OwnMemory own_;  // Null if the memory belongs to the caller.
  const Regions regions_;
  std::vector<Registered> registrations_;
  std::string why_not_;
  std::mutex mutex_;  // Guards the following members.
  std::vector<std::weak_ptr<detail::Grant>> grants_;
  std::size_t sweep_at_ = sweep_min;  // The size at which the revoked ones are removed from grants_.
};

Result<RegisteredBuffer> RegisteredBuffer::allocate(const Client& client, std::size_t bytes) {
  return Impl::make(client.transports(), client.regions(), {}, bytes);
}
Result<RegisteredBuffer> RegisteredBuffer::allocate(const Server& server, std::size_t bytes) {
  return Impl::make(server.transports(), server.regions(), {}, bytes);
}
Result<RegisteredBuffer> RegisteredBuffer::wrap(const Client& client, MutableBytes memory) {
  return Impl::make(client.transports(), client.regions(), memory, memory.size());
}
Result<RegisteredBuffer> RegisteredBuffer::wrap(const Server& server, MutableBytes memory) {
  return Impl::make(server.transports(), server.regions(), memory, memory.size());
}

RegisteredBuffer& RegisteredBuffer::operator=(RegisteredBuffer&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}
RegisteredBuffer::~RegisteredBuffer() {
  if (impl_ != nullptr) impl_->drop();
}

MutableBytes RegisteredBuffer::memory() const noexcept { return impl_ == nullptr ? MutableBytes() : impl_->memory(); }
bool RegisteredBuffer::registered() const noexcept { return impl_ != nullptr && impl_->registered(); }
const std::string& RegisteredBuffer::why_not() const noexcept {
  static const std::string empty = "the buffer is empty";
  return impl_ == nullptr ? empty : impl_->why_not();
}
bool RegisteredBuffer::in_use() const noexcept { return impl_ != nullptr && !impl_->unique(); }
Buffer RegisteredBuffer::share(std::size_t offset, std::size_t bytes) const noexcept {
  if (impl_ == nullptr) return {};
  assert(offset <= size() && bytes <= size() - offset);
  return Buffer::share(impl_, impl_->memory().data() + offset, bytes);
}

// ---- Exposed parts

Result<ExposedRegion> RegisteredBuffer::expose(std::size_t offset, std::size_t bytes, RegionAccess access,
                                               const ExposeOptions& options) const {
  if (bytes == 0 || offset > size() || bytes > size() - offset) {
    return fail(ErrorCode::invalid_argument,
                "the part to expose is empty, or not within the buffer's " + std::to_string(size()) + " bytes");
  }
  if (options.lease <= Duration::zero()) {
    return fail(ErrorCode::invalid_argument, "ExposeOptions::lease (" + std::to_string(options.lease.count()) +
                                                 " ns) is not positive: raise it, or use `forever`");
  }
  ExposedRegion region;
  auto grant = impl_->expose(memory().subspan(offset, bytes), access, options.lease, region.handle_, region.left_out_);
  if (!grant) return std::unexpected(std::move(grant.error()));
  region.grant_ = std::move(*grant);
  region.memory_ = share(offset, bytes);
  return region;
}

ExposedRegion& ExposedRegion::operator=(ExposedRegion&& other) noexcept {
  if (this == &other) return *this;
  revoke();
  handle_ = std::exchange(other.handle_, {});
  left_out_ = std::exchange(other.left_out_, {});
  memory_ = std::move(other.memory_);
  grant_ = std::move(other.grant_);
  return *this;
}

bool ExposedRegion::lost() const noexcept { return grant_ != nullptr && grant_->lost(); }

void ExposedRegion::revoke() noexcept {
  if (grant_ != nullptr) grant_->revoke();
  grant_.reset();
  memory_ = {};
}

std::vector<RdmaCounters> rdma_counters(const Client& client) { return counters_of(client.transports()); }
std::vector<RdmaCounters> rdma_counters(const Server& server) { return counters_of(server.transports()); }

}  // namespace hawser
