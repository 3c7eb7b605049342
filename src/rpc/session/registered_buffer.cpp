#include "hawser/registered_buffer.h"

#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "base/try.h"
#include "hawser/client.h"
#include "hawser/rdma.h"
#include "hawser/server.h"
#include "hawser/transport/transport.h"
#include "rpc/session/registered_memory.h"

namespace hawser {

namespace {

std::vector<RdmaCounters> counters_of(const MemoryTransports& transports) {
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

Result<RegisteredBuffer> RegisteredBuffer::allocate(const Client& client, std::size_t bytes) {
  return Impl::make(client.transports(), client.regions(), bytes);
}
Result<RegisteredBuffer> RegisteredBuffer::allocate(const Server& server, std::size_t bytes) {
  return Impl::make(server.transports(), server.regions(), bytes);
}
Result<RegisteredBuffer> RegisteredBuffer::wrap(const Client& client, MutableBytes memory) {
  return Impl::make(client.transports(), client.regions(), memory, PageMemory());
}
Result<RegisteredBuffer> RegisteredBuffer::wrap(const Server& server, MutableBytes memory) {
  return Impl::make(server.transports(), server.regions(), memory, PageMemory());
}

Result<RegisteredBuffer> RegisteredBuffer::dmabuf(const Client& client, int descriptor, std::uint64_t offset,
                                                  std::size_t bytes) {
  return Impl::make(client.transports(), client.regions(), DmabufRange::open(descriptor, offset, bytes));
}
Result<RegisteredBuffer> RegisteredBuffer::dmabuf(const Server& server, int descriptor, std::uint64_t offset,
                                                  std::size_t bytes) {
  return Impl::make(server.transports(), server.regions(), DmabufRange::open(descriptor, offset, bytes));
}

RegisteredBuffer& RegisteredBuffer::operator=(RegisteredBuffer&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}
RegisteredBuffer::~RegisteredBuffer() {
  if (impl_ != nullptr) impl_->drop();
}

MutableBytes RegisteredBuffer::memory() const noexcept { return impl_ == nullptr ? MutableBytes() : impl_->memory(); }
MutableBytes RegisteredBuffer::addresses() const noexcept {
  return impl_ == nullptr ? MutableBytes() : impl_->addresses();
}
bool RegisteredBuffer::registered() const noexcept { return impl_ != nullptr && impl_->registered(); }
const std::string& RegisteredBuffer::why_not() const noexcept {
  static const std::string empty = "the buffer is empty";
  return impl_ == nullptr ? empty : impl_->why_not();
}
bool RegisteredBuffer::in_use() const noexcept { return impl_ != nullptr && !impl_->unique(); }
Buffer RegisteredBuffer::share(std::size_t offset, std::size_t bytes) const noexcept {
  if (impl_ == nullptr || memory().empty()) return {};
  assert(offset <= size() && bytes <= size() - offset);
  return Buffer::share(impl_, impl_->memory().data() + offset, bytes);
}

// ---- Exposed parts

Result<ExposedRegion> RegisteredBuffer::expose(std::size_t offset, std::size_t bytes, RegionAccess access,
                                               const ExposeOptions& options) const {
  if (bytes == 0 || offset > size() || bytes > size() - offset) {
    return fail(ErrorCode::invalid_argument,
                "the part to expose is empty, or not within the buffer's " + count_text(size(), "byte"));
  }
  if (options.lease <= Duration::zero()) {
    return fail(ErrorCode::invalid_argument, "ExposeOptions::lease (" + std::to_string(options.lease.count()) +
                                                 " ns) is not positive: raise it, or use `forever`");
  }
  ExposedRegion region;
  TRY(auto&& grant,
      impl_->expose(addresses().subspan(offset, bytes), access, options.lease, region.handle_, region.left_out_));
  region.grant_ = std::move(grant);
  region.memory_ = Buffer::share(impl_, addresses().data() + offset, bytes);
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
