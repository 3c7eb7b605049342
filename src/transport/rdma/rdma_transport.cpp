#include "transport/rdma/rdma_transport.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/try.h"
#include "hawser/time.h"
#include "transport/rdma/connection/rdma_worker.h"
#include "transport/rdma/device/address.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::transport {
namespace rdma {
namespace {

class RdmaTransport final : public Transport, public std::enable_shared_from_this<RdmaTransport> {
 public:
  RdmaTransport(const RdmaOptions& options, std::shared_ptr<Verbs> verbs)
      : options_(options), verbs_(std::move(verbs)) {}

  std::string_view name() const noexcept override { return "rdma"; }
  Result<std::shared_ptr<TransportWorker>> attach(Loop& loop) override;
  Result<std::unique_ptr<MemoryRegistration>> register_memory(MutableBytes memory, Block& block, bool kept) override;
  Result<std::unique_ptr<MemoryRegistration>> register_dmabuf(const DmabufMemory& memory, Block& block) override;
  std::vector<TransportMemory> memory() override;

  // Returns the worker on the device that has `address`. Returns `first` if no device has it or the device cannot be
  // used.
  std::shared_ptr<RdmaWorker> worker_toward(Loop& loop, const Gid& address, const std::shared_ptr<RdmaWorker>& first);
  // Returns all devices that connections may use.
  std::vector<std::shared_ptr<RdmaDevice>> every_device();
  void forget(const std::byte* memory) noexcept { user_->remove(memory); }

 private:
  Result<std::shared_ptr<RdmaDevice>> first_device();
  Result<std::shared_ptr<RdmaWorker>> worker_on(Loop& loop, const std::shared_ptr<RdmaDevice>& device);
  void drop_dead();
  void open_others(const RdmaDevice& first);

  // Listing devices and opening one takes milliseconds, on the loop. Clients that connect through an address without a
  // device must not cause this each time.
  static constexpr Duration poll_pause = std::chrono::seconds(1);

  const RdmaOptions options_;
  const std::shared_ptr<Verbs> verbs_;
  const std::shared_ptr<UserMemory> user_ = std::make_shared<UserMemory>(options_.relaxed_ordering);
  std::mutex mutex_;  // Guards the members below.
  std::weak_ptr<RdmaDevice> first_;
  // Devices that routing selected for some peer, apart from the first one; opened on first use.
  std::vector<std::shared_ptr<RdmaDevice>> others_;
  std::optional<Time> poll_again_;  // Earliest time of the next search for a device with an unknown address.
  std::map<std::pair<Loop*, RdmaDevice*>, std::weak_ptr<RdmaWorker>> workers_;
  std::map<Loop*, std::weak_ptr<TransportWorker>> routed_;
};

bool has_address(RdmaDevice& device, const Gid& address) {
  const auto addresses = device.device->gids(device.port.number);
  return addresses &&
         std::any_of(addresses->begin(), addresses->end(), [&](const GidEntry& entry) { return entry.gid == address; });
}

// A transport's worker on one loop. The local address of the stream selects the device, among those that may be used,
// and the device's address.
class RoutedWorker final : public TransportWorker {
 public:
  RoutedWorker(std::shared_ptr<RdmaTransport> transport, Loop& loop, std::shared_ptr<RdmaWorker> first)
      : transport_(std::move(transport)), loop_(loop), used_{std::move(first)} {}

  bool usable() const noexcept override { return used_.front()->usable(); }
  std::vector<std::byte> offer() override { return first().offer(); }
  Result<std::unique_ptr<PendingConnection>> select(Bytes offer, const MessageLimits& limits) override {
    return first().select(offer, limits);
  }
  Result<std::unique_ptr<PendingConnection>> accept(Bytes server, const MessageLimits& limits) override {
    return first().accept(server, limits);
  }
  std::size_t probe_bytes() const noexcept override { return used_.front()->probe_bytes(); }
  bool use_shorter_packets(Bytes server) override { return first().use_shorter_packets(server); }
  TransportWorker& select_device(std::string_view local) override {
    const std::optional<Gid> address = gid_of(local);
    // Workers of removed devices are released. Without its first device, this worker is not usable any more.
    used_.erase(std::remove_if(used_.begin() + 1, used_.end(), [](const auto& one) { return !one->usable(); }),
                used_.end());
    std::shared_ptr<RdmaWorker> worker =
        address ? transport_->worker_toward(loop_, *address, used_.front()) : used_.front();
    worker->port().prefer(address.value_or(Gid{}));
    if (std::find(used_.begin(), used_.end(), worker) == used_.end()) used_.push_back(worker);
    return *worker;
  }

 private:
  RdmaWorker& first() noexcept { return *used_.front(); }

  const std::shared_ptr<RdmaTransport> transport_;
  Loop& loop_;
  std::vector<std::shared_ptr<RdmaWorker>> used_;
};

Result<std::shared_ptr<TransportWorker>> RdmaTransport::attach(Loop& loop) {
  const std::lock_guard lock(mutex_);
  TRY(const auto& device, first_device());
  std::weak_ptr<TransportWorker>& known = routed_[&loop];
  if (auto worker = known.lock(); worker != nullptr && worker->usable()) return worker;
  TRY(auto&& worker, worker_on(loop, device));
  const auto routed = std::make_shared<RoutedWorker>(shared_from_this(), loop, std::move(worker));
  known = routed;
  return routed;
}

Result<std::shared_ptr<RdmaWorker>> RdmaTransport::worker_on(Loop& loop, const std::shared_ptr<RdmaDevice>& device) {
  std::weak_ptr<RdmaWorker>& known = workers_[{&loop, device.get()}];
  if (auto worker = known.lock(); worker != nullptr && worker->usable()) return worker;
  auto worker = RdmaWorker::make(loop, device);
  if (worker) known = *worker;
  return worker;
}

Result<std::shared_ptr<RdmaDevice>> RdmaTransport::first_device() {
  TRY(check_rdma_options(options_));
  std::shared_ptr<RdmaDevice> device = first_.lock();
  if (device != nullptr && !device->dead()) return device;
  auto opened = RdmaDevice::open(options_, *verbs_, user_);
  if (!opened) return opened;
  first_ = *opened;
  workers_.clear();
  routed_.clear();
  return opened;
}

// Drops removed devices. Their replacements are searched for at once.
void RdmaTransport::drop_dead() {
  if (std::erase_if(others_, [](const auto& one) { return one->dead(); }) != 0) poll_again_.reset();
}

void RdmaTransport::open_others(const RdmaDevice& first) {
  drop_dead();
  if (!options_.device.empty()) return;
  const auto names = verbs_->devices();
  if (!names) return;
  for (const std::string& name : *names) {
    const auto is_it = [&](const auto& one) { return one->device->name() == name; };
    if (name == first.device->name() || std::any_of(others_.begin(), others_.end(), is_it)) continue;
    // A device that cannot be opened now may be usable for a later connection.
    auto opened = RdmaDevice::open_one(options_, *verbs_, name, user_);
    if (!opened) continue;
    (*opened)->register_soon(user_);
    others_.push_back(std::move(*opened));
  }
}

std::shared_ptr<RdmaWorker> RdmaTransport::worker_toward(Loop& loop, const Gid& address,
                                                         const std::shared_ptr<RdmaWorker>& first) {
  const std::lock_guard lock(mutex_);
  if (has_address(first->device(), address)) return first;
  const auto known = [&]() -> std::shared_ptr<RdmaWorker> {
    for (const std::shared_ptr<RdmaDevice>& device : others_) {
      if (!has_address(*device, address)) continue;
      if (auto worker = worker_on(loop, device)) return *worker;
    }
    return nullptr;
  };
  drop_dead();
  if (auto worker = known()) return worker;
  if (poll_again_ && loop.now() < *poll_again_) return first;
  open_others(first->device());
  poll_again_ = loop.now() + poll_pause;
  auto worker = known();
  return worker != nullptr ? worker : first;
}

std::vector<std::shared_ptr<RdmaDevice>> RdmaTransport::every_device() {
  const std::lock_guard lock(mutex_);
  const auto first = first_device();
  if (!first) return {};
  open_others(**first);
  std::vector<std::shared_ptr<RdmaDevice>> all = others_;
  all.insert(all.begin(), *first);
  return all;
}

// ---- Memory of the application

class Exposure final : public MemoryExposure {
 public:
  ~Exposure() override {
    for (Part& part : parts_) {
      part.region.reset();
      part.device->access.remove_region(part.access);
    }
  }
  // `dmabuf` is the memory of which `memory` is a part, if the processor cannot access it.
  void add(std::shared_ptr<RdmaDevice> device, MutableBytes memory, const std::optional<DmabufMemory>& dmabuf,
           Access access) {
    auto region = register_part(*device->device, memory, dmabuf, access);
    if (!region) {
      left_out_.push_back(device->device->name() + ": " + region.error().text);
      refusal_ = std::move(region.error());
      return;
    }
    parts_.reserve(parts_.size() + 1);
    device->access.add_region(access);
    parts_.push_back({std::move(device), std::move(*region), reinterpret_cast<std::uintptr_t>(memory.data()), access});
  }
  // Why no device accepted the memory. Nothing if one did, or if there is no device.
  std::optional<Error> refusal() const { return parts_.empty() ? refusal_ : std::nullopt; }
  std::vector<ExposedPlace> places() const override {
    std::vector<ExposedPlace> all;
    for (const Part& part : parts_) {
      all.push_back({.domain = part.device->domain, .address = part.address, .key = part.region->remote_key()});
    }
    return all;
  }
  std::vector<std::string> left_out() const override { return left_out_; }
  bool lost() const noexcept override {
    return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.device->dead(); });
  }

 private:
  static Result<std::unique_ptr<MemoryRegion>> register_part(Device& device, MutableBytes part,
                                                             const std::optional<DmabufMemory>& dmabuf, Access access) {
    if (!dmabuf) return device.register_memory(part, access);
    const auto before = static_cast<std::uint64_t>(part.data() - dmabuf->addresses.data());
    return device.register_dmabuf(dmabuf->descriptor, dmabuf->offset + before, part, access);
  }

  struct Part {
    std::shared_ptr<RdmaDevice> device;
    std::unique_ptr<MemoryRegion> region;
    std::uint64_t address = 0;
    Access access;
  };
  std::vector<Part> parts_;
  std::vector<std::string> left_out_;
  std::optional<Error> refusal_;  // The most recent one.
};

// Keeps the device open, too.
class UserRegistration final : public MemoryRegistration {
 public:
  UserRegistration(std::shared_ptr<RdmaTransport> transport, const std::byte* memory,
                   std::shared_ptr<RdmaDevice> device, const std::optional<DmabufMemory>& dmabuf = std::nullopt)
      : transport_(std::move(transport)), memory_(memory), device_(std::move(device)), dmabuf_(dmabuf) {}
  ~UserRegistration() override { transport_->forget(memory_); }

  // Exposes the range on each device, with a key of its own, which becomes invalid when the exposure is destroyed.
  Result<std::unique_ptr<MemoryExposure>> expose(MutableBytes stretch, bool readable, bool writable) override {
    auto exposure = std::make_unique<Exposure>();
    for (auto& device : transport_->every_device()) {
      exposure->add(std::move(device), stretch, dmabuf_, {.remote_read = readable, .remote_write = writable});
    }
    if (auto refusal = exposure->refusal()) return fail(std::move(*refusal));
    return exposure;
  }

 private:
  const std::shared_ptr<RdmaTransport> transport_;
  const std::byte* const memory_;
  const std::shared_ptr<RdmaDevice> device_;
  const std::optional<DmabufMemory> dmabuf_;
};

Result<std::unique_ptr<MemoryRegistration>> RdmaTransport::register_memory(MutableBytes memory, Block& block, bool) {
  std::vector<std::shared_ptr<RdmaDevice>> devices;
  {
    const std::lock_guard lock(mutex_);
    TRY(auto&& first, first_device());
    devices.push_back(std::move(first));
    devices.insert(devices.end(), others_.begin(), others_.end());
  }
  // Loops that make connections do not wait for the registrations below.
  TRY(user_->add(memory, block));
  if (auto done = user_->register_with(memory.data(), devices.front()->device); !done) {
    user_->remove(memory.data());
    return fail(std::move(done.error()));
  }
  // A device that refuses now is asked again when the memory is used.
  for (const auto& device : std::span(devices).subspan(1)) {
    static_cast<void>(user_->register_with(memory.data(), device->device));
  }
  return std::make_unique<UserRegistration>(shared_from_this(), memory.data(), std::move(devices.front()));
}

// A device may be unable to reach the memory that another one reaches, so one device that accepts it is enough.
Result<std::unique_ptr<MemoryRegistration>> RdmaTransport::register_dmabuf(const DmabufMemory& memory, Block& block) {
  std::vector<std::shared_ptr<RdmaDevice>> devices;
  {
    const std::lock_guard lock(mutex_);
    TRY(auto&& first, first_device());
    open_others(*first);
    devices.push_back(std::move(first));
    devices.insert(devices.end(), others_.begin(), others_.end());
  }
  TRY(user_->add(memory, block));
  std::shared_ptr<RdmaDevice> accepted;
  std::optional<Error> refusal;
  for (const auto& device : devices) {
    if (auto done = user_->register_with(memory.addresses.data(), device->device); !done) {
      if (!refusal) refusal = std::move(done.error());
    } else if (accepted == nullptr) {
      accepted = device;
    }
  }
  if (accepted == nullptr) {
    user_->remove(memory.addresses.data());
    return fail(std::move(*refusal));
  }
  return std::make_unique<UserRegistration>(shared_from_this(), memory.addresses.data(), std::move(accepted), memory);
}

std::vector<TransportMemory> RdmaTransport::memory() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<RdmaDevice>> devices = others_;
  if (auto first = first_.lock()) devices.insert(devices.begin(), std::move(first));
  std::vector<TransportMemory> all;
  for (const auto& device : devices) {
    const MemoryPoolCounters pool = device->pool->counters();
    all.push_back({.device = device->device->name(),
                   .registered_bytes = pool.registered_bytes,
                   .used_bytes = pool.used_bytes,
                   .used_bytes_max = pool.used_bytes_max,
                   .refused = pool.refused,
                   .connections = device->queue_pairs(),
                   .connection_bytes = rdma_idle_connection_bytes(options_),
                   .user_bytes = user_->bytes(),
                   .user_sends = pool.user_sends,
                   .user_receives = pool.user_receives});
  }
  return all;
}

}  // namespace
}  // namespace rdma

std::shared_ptr<Transport> make_rdma_transport(const RdmaOptions& options) {
  return make_rdma_transport(options, rdma::system_verbs());
}

std::shared_ptr<Transport> make_rdma_transport(const RdmaOptions& options, std::shared_ptr<rdma::Verbs> verbs) {
  return std::make_shared<rdma::RdmaTransport>(options, std::move(verbs));
}

}  // namespace hawser::transport
