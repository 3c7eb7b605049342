#include "transport/rdma/rdma_path.h"

#include <map>
#include <mutex>

#include "transport/rdma/rdma_end.h"
#include "transport/rdma/verbs.h"

namespace hawser::transport {
namespace rdma {
namespace {

class RdmaPath final : public DataPath {
 public:
  RdmaPath(const RdmaOptions& options, std::shared_ptr<Verbs> verbs) : options_(options), verbs_(std::move(verbs)) {}

  std::string_view name() const noexcept override { return "rdma"; }

  Result<std::shared_ptr<PathEnd>> attach(Loop& loop) override {
    const std::lock_guard lock(mutex_);
    auto device = open_device();
    if (!device) return std::unexpected(std::move(device.error()));
    std::weak_ptr<RdmaEnd>& known = ends_[&loop];
    if (auto end = known.lock(); end != nullptr) return end;
    auto end = RdmaEnd::make(loop, std::move(*device));
    if (!end) return std::unexpected(std::move(end.error()));
    known = *end;
    return *end;
  }

  Result<std::unique_ptr<MemoryRegistration>> register_memory(MutableBytes memory, Block& block) override {
    const std::lock_guard lock(mutex_);
    auto device = open_device();
    if (!device) return std::unexpected(std::move(device.error()));
    if (auto added = user_->add(memory, block); !added) return std::unexpected(std::move(added.error()));
    if (auto done = user_->register_with(memory.data(), (*device)->device); !done) {
      user_->remove(memory.data());
      return std::unexpected(std::move(done.error()));
    }
    return std::make_unique<UserRegistration>(user_, memory.data(), std::move(*device));
  }

  std::vector<PathMemory> memory() override {
    const std::lock_guard lock(mutex_);
    const std::shared_ptr<RdmaDevice> device = device_.lock();
    if (device == nullptr) return {};
    const MemoryPoolCounters pool = device->pool->counters();
    return {{.device = device->device->name(),
             .registered_bytes = pool.registered_bytes,
             .used_bytes = pool.used_bytes,
             .used_bytes_max = pool.used_bytes_max,
             .refused = pool.refused,
             .connections = device->queue_pairs(),
             .connection_bytes = rdma_idle_connection_bytes(options_),
             .user_bytes = user_->bytes(),
             .user_sends = pool.user_sends,
             .user_receives = pool.user_receives}};
  }

 private:
  class Exposure final : public MemoryExposure {
   public:
    Exposure(std::shared_ptr<RdmaDevice> device, std::unique_ptr<MemoryRegion> region, const std::byte* memory)
        : device_(std::move(device)), region_(std::move(region)), memory_(memory) {}
    ExposedPlace place() const noexcept override {
      return {device_->domain, reinterpret_cast<std::uintptr_t>(memory_), region_->remote_key()};
    }

   private:
    const std::shared_ptr<RdmaDevice> device_;
    const std::unique_ptr<MemoryRegion> region_;
    const std::byte* const memory_;
  };

  // Keeps the device open too.
  class UserRegistration final : public MemoryRegistration {
   public:
    UserRegistration(std::shared_ptr<UserMemory> table, const std::byte* memory, std::shared_ptr<RdmaDevice> device)
        : table_(std::move(table)), memory_(memory), device_(std::move(device)) {}
    ~UserRegistration() override { table_->remove(memory_); }

    Result<std::unique_ptr<MemoryExposure>> expose(MutableBytes stretch, bool readable, bool writable) override {
      // A key of its own, which is gone when the exposure is.
      auto region = device_->device->register_memory(stretch, {.remote_read = readable, .remote_write = writable});
      if (!region) return std::unexpected(std::move(region.error()));
      return std::make_unique<Exposure>(device_, std::move(*region), stretch.data());
    }

   private:
    const std::shared_ptr<UserMemory> table_;
    const std::byte* const memory_;
    const std::shared_ptr<RdmaDevice> device_;
  };

  Result<std::shared_ptr<RdmaDevice>> open_device() {
    if (auto checked = check_rdma_options(options_); !checked) return std::unexpected(std::move(checked.error()));
    std::shared_ptr<RdmaDevice> device = device_.lock();
    if (device != nullptr && !device->dead()) return device;
    auto opened = RdmaDevice::open(options_, *verbs_, user_);
    if (!opened) return opened;
    device_ = *opened;
    ends_.clear();
    return opened;
  }

  const RdmaOptions options_;
  const std::shared_ptr<Verbs> verbs_;
  const std::shared_ptr<UserMemory> user_ = std::make_shared<UserMemory>();
  std::mutex mutex_;
  std::weak_ptr<RdmaDevice> device_;
  std::map<Loop*, std::weak_ptr<RdmaEnd>> ends_;
};

}  // namespace
}  // namespace rdma

std::shared_ptr<DataPath> make_rdma_path(const RdmaOptions& options) {
  return make_rdma_path(options, rdma::system_verbs());
}

std::shared_ptr<DataPath> make_rdma_path(const RdmaOptions& options, std::shared_ptr<rdma::Verbs> verbs) {
  return std::make_shared<rdma::RdmaPath>(options, std::move(verbs));
}

}  // namespace hawser::transport
