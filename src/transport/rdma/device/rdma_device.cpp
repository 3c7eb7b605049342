#include <algorithm>
#include <functional>
#include <utility>

#include "base/kernel_random.h"
#include "base/try.h"
#include "transport/rdma/connection/rdma_worker.h"
#include "transport/rdma/device/address.h"

namespace hawser::transport::rdma {
namespace {

// Returns the port to use, or nothing if none is active.
Result<std::optional<PortStatus>> choose_port(const RdmaOptions& options, Device& device) {
  if (options.port > device.ports()) {
    return fail(
        Error::of_transport(ErrorCode::invalid_argument,
                            device.name() + " has no port " + std::to_string(options.port) + " (RdmaOptions::port)"));
  }
  const unsigned first = options.port == 0 ? 1 : options.port;
  const unsigned last = options.port == 0 ? device.ports() : options.port;
  for (unsigned number = first; number <= last; ++number) {
    TRY(const auto& status, device.port(number));
    if (status.active) return status;
  }
  return std::nullopt;
}

// Limit of the work that waits for the helper thread. Each handshake and each ending connection needs a few entries.
constexpr std::size_t side_work_max = 4096;

struct Registering final : detail::Posted {
  explicit Registering(std::function<void()> what) : todo(std::move(what)) {}
  void run() override { todo(); }
  const std::function<void()> todo;
};

// Returns a function by which the helper registers memory that the application's transfers use.
UserMemory::Later later_by(const std::shared_ptr<exec::OffloadPool>& helper) {
  if (helper == nullptr) return {};
  return [weak = std::weak_ptr(helper)](std::function<void()> work) {
    if (const auto there = weak.lock()) {
      static_cast<void>(there->submit(nullptr, std::make_unique<Registering>(std::move(work))));
    }
  };
}

std::uint64_t new_domain() { return kernel_random() | 1; }

}  // namespace

Result<std::shared_ptr<RdmaDevice>> RdmaDevice::open(const RdmaOptions& options, Verbs& verbs,
                                                     std::shared_ptr<UserMemory> user) {
  auto names = verbs.devices();
  TRY(names);
  if (!options.device.empty()) names = std::vector<std::string>{options.device};
  std::string why;
  for (const std::string& name : *names) {
    auto device = open_one(options, verbs, name, user);
    if (device || names->size() == 1) return device;
    why += (why.empty() ? "" : "; ") + device.error().text;
  }
  return fail(Error::of_transport(ErrorCode::unavailable, why));
}

Result<std::shared_ptr<RdmaDevice>> RdmaDevice::open_one(const RdmaOptions& options, Verbs& verbs,
                                                         const std::string& name, std::shared_ptr<UserMemory> user) {
  if (options.fork_safe) {
    TRY(verbs.make_fork_safe());
  }
  TRY(const auto& device, verbs.open(name));
  TRY(const auto& port, choose_port(options, *device));
  if (!port.has_value()) {
    return fail(Error::of_transport(ErrorCode::unavailable, name + " has no active port: see rdma link"));
  }
  TRY(const auto& addresses, device->gids(port->number));
  const auto address = choose_address(options, addresses);
  if (!address) return fail(Error::of_transport(address.error().code, name + ": " + address.error().text));
  return std::make_shared<RdmaDevice>(options, device, *port, *address, std::move(user));
}

RdmaDevice::RdmaDevice(const RdmaOptions& wanted, std::shared_ptr<Device> opened, const PortStatus& status,
                       const GidEntry& address, std::shared_ptr<UserMemory> user)
    : options(wanted),
      device(std::move(opened)),
      helper(device->blocks() ? std::make_shared<exec::OffloadPool>(1U, side_work_max, nullptr) : nullptr),
      pool(std::make_shared<MemoryPool>(device,
                                        MemoryPoolOptions{.bytes_max = wanted.memory_bytes_max,
                                                          .arena_bytes = wanted.arena_bytes,
                                                          .huge_pages = wanted.huge_pages,
                                                          .relaxed_ordering = wanted.relaxed_ordering,
                                                          .later = later_by(helper),
                                                          .idle_timeout = wanted.idle_memory_timeout},
                                        std::move(user))),
      port(status),
      gid(address),
      domain(new_domain()) {}

void RdmaDevice::register_soon(const std::shared_ptr<UserMemory>& user) {
  if (user->bytes() == 0) return;
  if (helper == nullptr) return user->register_all(device);
  static_cast<void>(helper->submit(nullptr, std::make_unique<Registering>([weak = std::weak_ptr(user), of = device] {
                                     if (const auto memory = weak.lock()) memory->register_all(of);
                                   })));
}

bool RdmaDevice::acquire_queue_pair() noexcept {
  if (queue_pairs_.fetch_add(1, std::memory_order_relaxed) < options.queue_pairs_max) return true;
  release_queue_pair();
  return false;
}

void RdmaDevice::add(RdmaWorker& worker) {
  const std::lock_guard lock(mutex_);
  workers_.push_back(&worker);
}

void RdmaDevice::remove(RdmaWorker& worker) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(workers_, &worker);
}

void RdmaDevice::notify(const DeviceEvent& event) {
  if (event.kind == DeviceEventKind::device_fatal) dead_.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  for (RdmaWorker* worker : workers_) worker->post_event(event);
}

}  // namespace hawser::transport::rdma
