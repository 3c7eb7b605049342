#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/rdma/device/verbs.h"

// A device that carries no data. Only its blocking operations matter.
namespace hawser::transport::rdma {

// Called with "register", "deregister", "create", "connect", "allow" and "destroy" by the thread that executes the
// operation. It may block.
using SlowHook = std::function<void(std::string_view what)>;

class SlowDevice final : public Device {
 public:
  SlowDevice(SlowHook hook, unsigned char number) : hook_(std::make_shared<SlowHook>(std::move(hook))) {
    limits_ = {.queue_pairs = 1000,
               .queue_pair_requests = 32'768,
               .segments = 4,
               .completion_queue_entries = 1 << 20,
               .shared_receive_requests = 1 << 15,
               .memory_regions = 1000,
               .memory_region_bytes = std::size_t{1} << 40,
               .reads_outstanding = 16};
    address_.gid.bytes[10] = address_.gid.bytes[11] = std::byte{0xff};
    address_.gid.bytes[12] = std::byte{10};
    address_.gid.bytes[15] = std::byte{number};
    address_.type = GidType::roce_v2;
  }

  const std::string& name() const noexcept override { return name_; }
  const DeviceLimits& limits() const noexcept override { return limits_; }
  unsigned ports() const noexcept override { return 1; }
  Result<PortStatus> port(unsigned) override {
    return PortStatus{.number = 1, .active = true, .ethernet = true, .mtu_bytes = 4096, .mtu_bytes_max = 4096};
  }
  Result<std::vector<GidEntry>> gids(unsigned) override { return std::vector<GidEntry>{address_}; }
  std::vector<RdmaCounter> counters(unsigned) override { return {}; }
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableBytes, Access) override {
    (*hook_)("register");
    return std::make_unique<Region>(hook_);
  }
  Result<std::unique_ptr<CompletionQueue>> create_completion_queue(std::size_t) override {
    return std::make_unique<Completions>();
  }
  Result<std::unique_ptr<SharedReceiveQueue>> create_shared_receive_queue(std::size_t) override {
    return fail(ErrorCode::unavailable, "none");
  }
  Result<std::unique_ptr<QueuePair>> create_queue_pair(const QueuePairOptions& options, unsigned) override {
    (*hook_)("create");
    return std::make_unique<Pair>(hook_, ++last_number_, options.send_requests);
  }
  void watch_events(Loop&, exec::Watcher&) override {}
  void unwatch_events(Loop&, exec::Watcher&) noexcept override {}
  std::optional<DeviceEvent> next_event() override { return std::nullopt; }

 private:
  struct Region final : MemoryRegion {
    explicit Region(std::shared_ptr<SlowHook> of) : hook(std::move(of)) {}
    ~Region() override { (*hook)("deregister"); }
    std::uint32_t local_key() const noexcept override { return 1; }
    std::uint32_t remote_key() const noexcept override { return 1; }
    std::shared_ptr<SlowHook> hook;
  };
  struct Completions final : CompletionQueue {
    std::size_t poll(std::span<Completion>) override { return 0; }
    void watch(Loop&, exec::Watcher&) override {}
    void unwatch(Loop&, exec::Watcher&) noexcept override {}
    Result<void> arm(bool) override { return {}; }
  };
  struct Pair final : QueuePair {
    Pair(std::shared_ptr<SlowHook> of, std::uint32_t own, std::size_t sends)
        : hook(std::move(of)), own_number(own), requests(sends) {}
    ~Pair() override { (*hook)("destroy"); }
    std::uint32_t number() const noexcept override { return own_number; }
    std::size_t inline_bytes() const noexcept override { return 0; }
    std::size_t send_requests() const noexcept override { return requests; }
    Result<void> connect(const QueuePairRoute&) override {
      (*hook)("connect");
      return {};
    }
    void allow(Access) noexcept override { (*hook)("allow"); }
    Result<void> post_send(std::span<const SendRequest>) override { return {}; }
    Result<void> post_receive(std::span<const ReceiveRequest>) override { return {}; }
    void fail() noexcept override {}
    std::shared_ptr<SlowHook> hook;
    const std::uint32_t own_number;
    const std::size_t requests;
  };

  const std::shared_ptr<SlowHook> hook_;
  const std::string name_ = "slow0";
  DeviceLimits limits_;
  GidEntry address_;
  std::atomic<std::uint32_t> last_number_{16};
};

class SlowVerbs final : public Verbs {
 public:
  explicit SlowVerbs(std::shared_ptr<SlowDevice> device) : device_(std::move(device)) {}
  Result<std::vector<std::string>> devices() override { return std::vector<std::string>{device_->name()}; }
  Result<std::shared_ptr<Device>> open(const std::string&) override { return std::shared_ptr<Device>(device_); }

 private:
  const std::shared_ptr<SlowDevice> device_;
};

}  // namespace hawser::transport::rdma
