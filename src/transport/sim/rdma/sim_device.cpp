#include "transport/sim/rdma/sim_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/sim/rdma/sim_queue_pair.h"

namespace hawser::transport {

namespace {

constexpr std::size_t page_bytes = 4096;

std::uint64_t address_of(MutableBytes memory) noexcept { return reinterpret_cast<std::uintptr_t>(memory.data()); }

class SimMemoryRegion : public rdma::MemoryRegion {
 public:
  SimMemoryRegion(SimDevice& device, std::uint32_t key) : device_(device), key_(key) {}
  SimMemoryRegion(const SimMemoryRegion&) = delete;
  SimMemoryRegion& operator=(const SimMemoryRegion&) = delete;
  ~SimMemoryRegion() override { device_.forget_region(key_); }
  std::uint32_t local_key() const noexcept override { return key_; }
  std::uint32_t remote_key() const noexcept override { return key_; }

 private:
  SimDevice& device_;
  const std::uint32_t key_;
};

class SimDmabufRegion final : public SimMemoryRegion {
 public:
  SimDmabufRegion(SimDevice& device, std::uint32_t key, MutableBytes mapped)
      : SimMemoryRegion(device, key), mapped_(mapped) {}
  ~SimDmabufRegion() override { ::munmap(mapped_.data(), mapped_.size()); }

 private:
  const MutableBytes mapped_;
};

}  // namespace

// ---- Completions

SimCompletionQueue::SimCompletionQueue(SimDevice& device, std::size_t capacity) : device_(device), capacity_(capacity) {
  device_.add(*this);
  device_.fabric().add(*this);
}

SimCompletionQueue::~SimCompletionQueue() {
  device_.remove(*this);
  device_.fabric().remove(*this);
}

std::size_t SimCompletionQueue::poll(std::span<rdma::Completion> out) {
  const SimParameters& costs = device_.parameters();
  const double now_ns = device_.fabric().now_ns();
  if (device_.busy_until_ns() > now_ns) return 0;
  // A loop that polls without a result sleeps until it is notified, so the poll costs nothing.
  const bool anything = !entries_.empty() && entries_.front().ns <= now_ns;
  if (anything || device_.fabric().processor() != nullptr) device_.charge(costs.poll_ns);
  std::size_t count = 0;
  while (count < out.size() && !entries_.empty() && entries_.front().ns <= now_ns) {
    const rdma::Completion& completion = entries_.front().completion;
    double cost_ns = completion.received ? costs.receive_completion_ns : costs.send_completion_ns;
    if (completion.received && completion.bytes <= costs.inline_receive_bytes) cost_ns += costs.inline_receive_ns;
    if (last_queue_pair_ != 0 && last_queue_pair_ != completion.queue_pair) cost_ns += costs.switch_ns;
    device_.charge(cost_ns);
    last_queue_pair_ = completion.queue_pair;
    out[count++] = completion;
    entries_.pop_front();
  }
  return count;
}

void SimCompletionQueue::add(const rdma::Completion& completion, double ns, bool solicited) {
  if (overrun_) return;
  if (entries_.size() >= capacity_) {
    overrun_ = true;
    device_.raise(
        {.kind = rdma::DeviceEventKind::completion_queue_overrun, .queue = static_cast<rdma::CompletionQueue*>(this)});
    return;
  }
  if (!entries_.empty()) ns = std::max(ns, entries_.back().ns);
  entries_.push_back({ns, solicited, completion});
  device_.fabric().will_show(ns);
  if (armed_ && (!armed_solicited_only_ || solicited || completion.status != rdma::WorkStatus::success)) {
    armed_ = false;
    notice_ns_ = ns;
  }
}

void SimCompletionQueue::watch(Loop&, exec::Watcher& watcher) { watcher_ = &watcher; }

void SimCompletionQueue::unwatch(Loop&, exec::Watcher&) noexcept { watcher_ = nullptr; }

Result<void> SimCompletionQueue::arm(bool solicited_only) {
  armed_ = true;
  armed_solicited_only_ = solicited_only;
  notice_ns_ = never_ns;
  // Completions that the device has added and that the host cannot see yet still cause a notification.
  const double now_ns = device_.fabric().now_ns();
  for (const Entry& entry : entries_) {
    if (std::max(entry.ns, device_.busy_until_ns()) <= now_ns) continue;
    if (solicited_only && !entry.solicited && entry.completion.status == rdma::WorkStatus::success) continue;
    armed_ = false;
    notice_ns_ = entry.ns;
    break;
  }
  return {};
}

double SimCompletionQueue::last_ns() const noexcept {
  return entries_.empty() ? device_.fabric().now_ns() : std::max(entries_.back().ns, device_.fabric().now_ns());
}

void SimCompletionQueue::drop(std::uint32_t queue_pair) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.completion.queue_pair == queue_pair; });
}

double SimCompletionQueue::notice_ns() const noexcept {
  if (watcher_ == nullptr || notice_ns_ == never_ns) return never_ns;
  return std::max(notice_ns_, device_.busy_until_ns());
}

bool SimCompletionQueue::deliver(double now_ns) {
  if (notice_ns() > now_ns) return false;
  notice_ns_ = never_ns;
  watcher_->on_ready({.readable = true});
  return true;
}

// ---- Shared receives

Result<void> SimSharedReceiveQueue::post_receive(std::span<const rdma::ReceiveRequest> requests) {
  if (receives_.posted.size() + requests.size() > receives_.capacity) {
    return fail(ErrorCode::limit_exceeded, "the shared receive queue is full: post fewer, or make it larger");
  }
  const SimParameters& costs = device_.parameters();
  SimProcessor& processor =
      device_.charge(costs.receive_doorbell_ns + costs.receive_request_ns * static_cast<double>(requests.size()));
  if (last_poster_ != nullptr && last_poster_ != &processor) processor.now_ns += costs.handover_ns;
  last_poster_ = &processor;
  for (const rdma::ReceiveRequest& request : requests) receives_.posted.push_back(request);
  return {};
}

Result<void> SimSharedReceiveQueue::set_limit(unsigned receives) {
  limit_ = receives;
  taken();
  return {};
}

void SimSharedReceiveQueue::taken() {
  if (receives_.posted.size() >= limit_) return;
  limit_ = 0;
  device_.raise(
      {.kind = rdma::DeviceEventKind::shared_receive_queue_low, .queue = static_cast<rdma::SharedReceiveQueue*>(this)});
}

// ---- Device

SimDevice::SimDevice(std::shared_ptr<SimFabric> fabric, std::string name, unsigned index)
    : fabric_(std::move(fabric)), name_(std::move(name)), index_(index) {
  limits_ = {.queue_pairs = 65'536,
             .queue_pair_requests = 32'768,
             .segments = sim_segments_max,
             .completion_queue_entries = 4'194'304,
             .shared_receive_requests = 32'768,
             .memory_regions = 1'000'000,
             .memory_region_bytes = std::size_t{1} << 40,
             .reads_outstanding = parameters().reads_outstanding};
  port_ = {.number = 1,
           .active = true,
           .ethernet = true,
           .mtu_bytes = 4096,
           .mtu_bytes_max = 4096,
           .gigabits_per_second = parameters().gbit_per_s};
  rdma::Gid gid;  // ::ffff:10.0.0.n
  gid.bytes[10] = gid.bytes[11] = std::byte{0xff};
  gid.bytes[12] = std::byte{10};
  gid.bytes[15] = static_cast<std::byte>(index_ + 1);
  addresses_.push_back({.index = 0, .gid = gid, .type = rdma::GidType::roce_v2});
  unit_free_ns_.resize(std::max(1u, parameters().processing_units));
}

SimDevice::~SimDevice() = default;

Result<rdma::PortStatus> SimDevice::port(unsigned number) {
  if (number != 1) return fail(ErrorCode::invalid_argument, "a simulated device has one port, 1");
  return port_;
}

Result<std::vector<rdma::GidEntry>> SimDevice::gids(unsigned) { return addresses_; }

std::vector<rdma::RdmaCounter> SimDevice::counters(unsigned) {
  return {{"rcvd_rnr_err", rnr_received}, {"send_rnr_err", rnr_sent}};
}

Result<std::unique_ptr<rdma::MemoryRegion>> SimDevice::register_memory(MutableBytes memory, rdma::Access access) {
  if (refuses_memory_) return fail(ErrorCode::overloaded, name_ + " registers no more memory");
  const double pages = static_cast<double>((memory.size() + page_bytes - 1) / page_bytes);
  charge(parameters().registration_ns + pages * parameters().registration_page_ns);
  const std::uint32_t key = fabric_->next_key();
  regions_[key] = {memory.data(), memory.size(), access, address_of(memory)};
  return std::make_unique<SimMemoryRegion>(*this, key);
}

Result<std::unique_ptr<rdma::MemoryRegion>> SimDevice::register_dmabuf(int descriptor, std::uint64_t offset,
                                                                       MutableBytes addresses, rdma::Access access) {
  if (refuses_dmabuf_) return rdma::Device::register_dmabuf(descriptor, offset, addresses, access);
  if (refuses_memory_) return fail(ErrorCode::overloaded, name_ + " registers no more memory");
  const std::size_t before = offset % page_bytes;
  if (address_of(addresses) % page_bytes != before) {
    return fail(ErrorCode::invalid_argument, "the addresses and the offset differ within a page");
  }
  // The processor accesses the memory at other addresses than those that name it, as a device does.
  const std::size_t mapped = before + addresses.size();
  void* const at =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, static_cast<off_t>(offset - before));
  if (at == MAP_FAILED) {
    return fail(ErrorCode::invalid_argument,
                name_ + " cannot map the descriptor " + std::to_string(descriptor) + ": " + std::strerror(errno));
  }
  charge(parameters().registration_ns);
  const std::uint32_t key = fabric_->next_key();
  regions_[key] = {static_cast<std::byte*>(at) + before, addresses.size(), access, address_of(addresses)};
  return std::make_unique<SimDmabufRegion>(*this, key, MutableBytes(static_cast<std::byte*>(at), mapped));
}

Result<std::unique_ptr<rdma::CompletionQueue>> SimDevice::create_completion_queue(std::size_t entries) {
  if (entries == 0 || entries > limits_.completion_queue_entries) {
    return fail(ErrorCode::limit_exceeded, "a completion queue has 1 to 4,194,304 entries on a simulated device");
  }
  return std::make_unique<SimCompletionQueue>(*this, entries);
}

Result<std::unique_ptr<rdma::SharedReceiveQueue>> SimDevice::create_shared_receive_queue(std::size_t requests) {
  if (requests == 0 || requests > limits_.shared_receive_requests) {
    return fail(ErrorCode::limit_exceeded, "a shared receive queue has 1 to 32,768 receives on a simulated device");
  }
  return std::make_unique<SimSharedReceiveQueue>(*this, requests);
}

Result<std::unique_ptr<rdma::QueuePair>> SimDevice::create_queue_pair(const rdma::QueuePairOptions& options, unsigned) {
  if (options.send_requests > limits_.queue_pair_requests || options.receive_requests > limits_.queue_pair_requests ||
      options.send_segments > limits_.segments) {
    return fail(ErrorCode::limit_exceeded, "a simulated queue pair has at most 32,768 requests of 8 segments");
  }
  if (options.completions == nullptr) {
    return fail(ErrorCode::invalid_argument, "a queue pair needs a completion queue");
  }
  return std::make_unique<SimQueuePair>(*this, options);
}

void SimDevice::watch_events(Loop&, exec::Watcher& watcher) { event_watchers_.push_back(&watcher); }

void SimDevice::unwatch_events(Loop&, exec::Watcher& watcher) noexcept { std::erase(event_watchers_, &watcher); }

std::optional<rdma::DeviceEvent> SimDevice::next_event() {
  if (events_.empty()) return std::nullopt;
  const rdma::DeviceEvent event = events_.front();
  events_.pop_front();
  return event;
}

void SimDevice::raise(rdma::DeviceEvent event) {
  events_.push_back(event);
  for (exec::Watcher* const watcher : event_watchers_) watcher->on_ready({.readable = true});
}

const SimDevice::Region* SimDevice::region(std::uint32_t key) const noexcept {
  const auto found = regions_.find(key);
  return found == regions_.end() ? nullptr : &found->second;
}

std::byte* SimDevice::resolve(std::uint32_t key, std::uint64_t address, std::size_t bytes) const noexcept {
  const Region* const found = region(key);
  if (found == nullptr) return nullptr;
  const std::uint64_t start = found->address;
  if (address < start || address - start > found->bytes || found->bytes - (address - start) < bytes) return nullptr;
  return found->data + (address - start);
}

double SimDevice::memory_ns(std::size_t bytes) const noexcept {
  return parameters().memory_byte_ns * static_cast<double>(std::min(bytes, parameters().packet_bytes));
}

double SimDevice::transmit(unsigned unit, double ns, std::size_t bytes, bool from_memory) {
  double& unit_free_ns = unit_free_ns_[unit];
  unit_free_ns = std::max(ns, unit_free_ns) + parameters().gap_ns;
  const double ready_ns = unit_free_ns + (from_memory ? parameters().fetch_ns + memory_ns(bytes) : 0);
  wire_free_ns_ = std::max(ready_ns, wire_free_ns_) + parameters().byte_ns() * static_cast<double>(bytes);
  return wire_free_ns_;
}

double SimDevice::take_in(double ns, std::size_t bytes, bool shared) {
  const SimParameters& costs = parameters();
  const double gap_ns = bytes <= costs.inline_receive_bytes ? costs.inline_receive_gap_ns
                        : shared                            ? costs.shared_receive_gap_ns
                                                            : costs.receive_gap_ns;
  receive_free_ns_ = std::max(ns, receive_free_ns_) + gap_ns;
  return receive_free_ns_;
}

}  // namespace hawser::transport
