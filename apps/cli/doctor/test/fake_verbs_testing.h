#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/rdma/device/verbs.h"

namespace hawser::cli::doctor {

// An RDMA device whose queue pairs reach each other. Data is copied.
class FakeDevice final : public transport::rdma::Device {
 public:
  explicit FakeDevice(std::string name) : name_(std::move(name)) {
    limits_ = {.queue_pairs = 1000,
               .queue_pair_requests = 4096,
               .segments = 16,
               .completion_queue_entries = 1 << 20,
               .shared_receive_requests = 4096,
               .memory_regions = 1000,
               .memory_region_bytes = SIZE_MAX,
               .reads_outstanding = 16};
    status = {.number = 1, .active = true, .ethernet = true, .mtu_bytes = 4096, .mtu_bytes_max = 4096};
    transport::rdma::GidEntry entry{.index = 1, .gid = {}, .type = transport::rdma::GidType::roce_v2};
    entry.gid.bytes[10] = entry.gid.bytes[11] = std::byte{0xff};
    entry.gid.bytes[12] = std::byte{10};
    addresses = {entry};
  }

  // The state that the device reports, and the faults that it simulates.
  transport::rdma::PortStatus status;
  std::vector<transport::rdma::GidEntry> addresses;
  std::vector<transport::rdma::RdmaCounter> counted;
  std::size_t inline_bytes_max = 256;
  bool loses = false;    // Drops every send.
  bool damages = false;  // Changes every byte that is sent.
  transport::rdma::WorkStatus completes_with = transport::rdma::WorkStatus::success;  // Status of sends.
  std::string registering_fails;
  std::string counter_that_moves;

  transport::rdma::DeviceLimits limits_;

  const std::string& name() const noexcept override { return name_; }
  const transport::rdma::DeviceLimits& limits() const noexcept override { return limits_; }
  unsigned ports() const noexcept override { return 1; }
  Result<transport::rdma::PortStatus> port(unsigned) override { return status; }
  Result<std::vector<transport::rdma::GidEntry>> gids(unsigned) override { return addresses; }
  std::vector<transport::rdma::RdmaCounter> counters(unsigned) override { return counted; }

  Result<std::unique_ptr<transport::rdma::MemoryRegion>> register_memory(MutableBytes,
                                                                         transport::rdma::Access) override {
    if (!registering_fails.empty()) return fail(ErrorCode::overloaded, registering_fails);
    return std::make_unique<Region>();
  }
  Result<std::unique_ptr<transport::rdma::CompletionQueue>> create_completion_queue(std::size_t) override {
    return std::make_unique<Completions>();
  }
  Result<std::unique_ptr<transport::rdma::SharedReceiveQueue>> create_shared_receive_queue(std::size_t) override {
    return fail(ErrorCode::unavailable, "none");
  }
  Result<std::unique_ptr<transport::rdma::QueuePair>> create_queue_pair(
      const transport::rdma::QueuePairOptions& options, unsigned) override {
    auto pair = std::make_unique<Pair>(*this, options, next_number_++);
    pairs_[pair->number()] = pair.get();
    return pair;
  }
  void watch_events(Loop&, exec::Watcher&) override {}
  void unwatch_events(Loop&, exec::Watcher&) noexcept override {}
  std::optional<transport::rdma::DeviceEvent> next_event() override { return std::nullopt; }

 private:
  class Region final : public transport::rdma::MemoryRegion {
   public:
    std::uint32_t local_key() const noexcept override { return 1; }
    std::uint32_t remote_key() const noexcept override { return 1; }
  };

  class Completions final : public transport::rdma::CompletionQueue {
   public:
    std::size_t poll(std::span<transport::rdma::Completion> out) override {
      const std::size_t count = std::min(out.size(), waiting.size());
      std::copy_n(waiting.begin(), count, out.begin());
      waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(count));
      return count;
    }
    void watch(Loop&, exec::Watcher&) override {}
    void unwatch(Loop&, exec::Watcher&) noexcept override {}
    Result<void> arm(bool) override { return {}; }
    std::deque<transport::rdma::Completion> waiting;
  };

  class Pair final : public transport::rdma::QueuePair {
   public:
    Pair(FakeDevice& device, const transport::rdma::QueuePairOptions& options, std::uint32_t number)
        : device_(device),
          completions_(static_cast<Completions*>(options.completions)),
          inline_bytes_(std::min<std::size_t>(options.inline_bytes, device.inline_bytes_max)),
          send_requests_(options.send_requests),
          number_(number) {}
    ~Pair() override { device_.pairs_.erase(number_); }

    std::uint32_t number() const noexcept override { return number_; }
    std::size_t inline_bytes() const noexcept override { return inline_bytes_; }
    std::size_t send_requests() const noexcept override { return send_requests_; }
    Result<void> connect(const transport::rdma::QueuePairRoute& route) override {
      peer_ = route.peer_queue_pair;
      return {};
    }
    Result<void> post_receive(std::span<const transport::rdma::ReceiveRequest> requests) override {
      receives_.insert(receives_.end(), requests.begin(), requests.end());
      return {};
    }
    Result<void> post_send(std::span<const transport::rdma::SendRequest> requests) override {
      if (!device_.counter_that_moves.empty()) device_.counted.front().value += 1;
      for (const transport::rdma::SendRequest& request : requests) {
        if (device_.loses) continue;
        Pair& peer = *device_.pairs_.at(peer_);
        // The test program must not send to a peer without a posted receive.
        if (peer.receives_.empty()) return fail(ErrorCode::internal, "receiver not ready");
        const transport::rdma::ReceiveRequest receive = peer.receives_.front();
        peer.receives_.pop_front();
        const transport::rdma::Segment& data = request.segments.front();
        auto* to = const_cast<std::byte*>(receive.segment.data);
        std::memcpy(to, data.data, data.bytes);
        if (device_.damages) to[0] ^= std::byte{1};
        completions_->waiting.push_back({.id = request.id, .queue_pair = number_, .status = device_.completes_with});
        peer.completions_->waiting.push_back(
            {.id = receive.id, .queue_pair = peer.number_, .received = true, .bytes = data.bytes});
      }
      return {};
    }
    void allow(transport::rdma::Access) noexcept override {}
    void fail() noexcept override {}

   private:
    static std::unexpected<Error> fail(ErrorCode code, std::string text) { return hawser::fail(code, std::move(text)); }

    FakeDevice& device_;
    Completions* completions_;
    std::size_t inline_bytes_;
    std::size_t send_requests_;
    std::uint32_t number_;
    std::uint32_t peer_ = 0;
    std::deque<transport::rdma::ReceiveRequest> receives_;
  };

  std::string name_;
  std::uint32_t next_number_ = 17;
  std::map<std::uint32_t, Pair*> pairs_;
};

// A machine with such devices.
class FakeVerbs final : public transport::rdma::Verbs {
 public:
  std::vector<std::shared_ptr<FakeDevice>> list;
  std::string unavailable;
  std::string open_error;

  Result<std::vector<std::string>> devices() override {
    if (!unavailable.empty()) return fail(ErrorCode::unavailable, unavailable);
    std::vector<std::string> names;
    for (const auto& device : list) names.push_back(device->name());
    return names;
  }
  Result<std::shared_ptr<transport::rdma::Device>> open(const std::string& name) override {
    if (!open_error.empty()) return fail(ErrorCode::unavailable, open_error);
    for (const auto& device : list) {
      if (device->name() == name) return device;
    }
    return fail(ErrorCode::unavailable, "no such device");
  }
};

}  // namespace hawser::cli::doctor
