#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "transport/rdma/device/verbs.h"

// Two queue pairs that are joined in memory and that a test advances step by step. They read memory at the time when a
// device would read it, so that memory that is reused too early is detected.
namespace hawser::transport::rdma {

class FakeDevice final : public Device {
 public:
  const std::string& name() const noexcept override { return name_; }
  const DeviceLimits& limits() const noexcept override { return limits_; }
  unsigned ports() const noexcept override { return 1; }
  Result<PortStatus> port(unsigned) override { return status; }
  Result<std::vector<GidEntry>> gids(unsigned) override { return gid_entries; }
  std::vector<RdmaCounter> counters(unsigned) override { return {}; }
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableBytes memory, Access access) override {
    if (registering) registering();
    if (refuse_memory) return fail(ErrorCode::overloaded, "refused");
    const std::uint32_t key = ++last_key_;
    regions[key] = {.memory = memory, .access = access};
    return std::make_unique<Region>(*this, key);
  }
  Result<std::unique_ptr<MemoryRegion>> register_dmabuf(int descriptor, std::uint64_t offset, MutableBytes addresses,
                                                        Access access) override {
    if (refuse_memory) return Device::register_dmabuf(descriptor, offset, addresses, access);
    const std::uint32_t key = ++last_key_;
    regions[key] = {addresses, access, descriptor, offset};
    return std::make_unique<Region>(*this, key);
  }
  Result<std::unique_ptr<CompletionQueue>> create_completion_queue(std::size_t) override {
    return fail(ErrorCode::unavailable, "none");
  }
  Result<std::unique_ptr<SharedReceiveQueue>> create_shared_receive_queue(std::size_t) override {
    return fail(ErrorCode::unavailable, "none");
  }
  Result<std::unique_ptr<QueuePair>> create_queue_pair(const QueuePairOptions&, unsigned) override {
    return fail(ErrorCode::unavailable, "none");
  }
  void watch_events(Loop&, exec::Watcher&) override {}
  void unwatch_events(Loop&, exec::Watcher&) noexcept override {}
  std::optional<DeviceEvent> next_event() override { return std::nullopt; }

  PortStatus status{.number = 1, .active = true};
  std::vector<GidEntry> gid_entries;

  struct Registered {
    MutableBytes memory;
    Access access;
    int descriptor = -1;  // Memory behind a descriptor.
    std::uint64_t offset = 0;
  };
  std::map<std::uint32_t, Registered> regions;
  bool refuse_memory = false;
  std::function<void()> registering;  // Called by the thread that registers memory.

  void check_local(const Segment& segment) const {
    const auto found = regions.find(segment.local_key);
    ASSERT_NE(found, regions.end()) << "memory with a key of nothing";
    const MutableBytes memory = found->second.memory;
    ASSERT_GE(segment.data, memory.data());
    ASSERT_LE(segment.data + segment.bytes, memory.data() + memory.size());
  }

 private:
  class Region final : public MemoryRegion {
   public:
    Region(FakeDevice& device, std::uint32_t key) : device_(device), key_(key) {}
    ~Region() override { device_.regions.erase(key_); }
    std::uint32_t local_key() const noexcept override { return key_; }
    std::uint32_t remote_key() const noexcept override { return key_; }

   private:
    FakeDevice& device_;
    const std::uint32_t key_;
  };

  const std::string name_ = "fake0";
  const DeviceLimits limits_;
  std::uint32_t last_key_ = 0;
};

class FakePair final : public QueuePair {
 public:
  FakePair(FakeDevice& device, std::size_t inline_bytes, std::size_t send_requests)
      : device_(device), inline_bytes_(inline_bytes), send_requests_(send_requests) {}

  std::uint32_t number() const noexcept override { return 1; }
  std::size_t inline_bytes() const noexcept override { return inline_bytes_; }
  std::size_t send_requests() const noexcept override { return send_requests_; }
  Result<void> connect(const QueuePairRoute&) override { return {}; }

  Result<void> post_send(std::span<const SendRequest> requests) override {
    ++doorbells;
    for (const SendRequest& request : requests) {
      Work work;
      work.request = request;
      work.segments.assign(request.segments.begin(), request.segments.end());
      for (const Segment& segment : work.segments) {
        if (!request.inlined) device_.check_local(segment);
      }
      if (request.inlined) {
        work.data = work.gathered();
        EXPECT_LE(work.data.size(), inline_bytes_);
      }
      sends.push_back(std::move(work));
      EXPECT_LE(sends.size() + unacknowledged.size() + unsignalled_, send_requests_) << "the send queue overflowed";
    }
    return {};
  }
  Result<void> post_receive(std::span<const ReceiveRequest> requests) override {
    for (const ReceiveRequest& request : requests) {
      device_.check_local(request.segment);
      receives.push_back(request);
    }
    return {};
  }
  void allow(Access) noexcept override {}
  void fail() noexcept override {}

  // Delivers the next request to the peer. False if there is none.
  bool transmit() {
    if (sends.empty()) return false;
    Work work = std::move(sends.front());
    sends.pop_front();
    if (work.request.opcode == Opcode::read && work.bytes() == 0) {
      // A device checks neither key nor address.
    } else if (work.request.opcode == Opcode::read) {
      const auto region = peer->device_.regions.find(work.request.remote_key);
      EXPECT_NE(region, peer->device_.regions.end());
      if (region == peer->device_.regions.end()) return false;
      const auto* from = reinterpret_cast<const std::byte*>(work.request.remote_address);
      EXPECT_TRUE(region->second.access.remote_read);
      EXPECT_GE(from, region->second.memory.data());
      EXPECT_LE(from + work.bytes(), region->second.memory.data() + region->second.memory.size());
      for (const Segment& segment : work.segments) {
        std::memcpy(const_cast<std::byte*>(segment.data), from, segment.bytes);
        from += segment.bytes;
      }
    } else if (work.request.opcode == Opcode::write) {
      const auto region = peer->device_.regions.find(work.request.remote_key);
      EXPECT_NE(region, peer->device_.regions.end());
      if (region == peer->device_.regions.end()) return false;
      auto* const to = reinterpret_cast<std::byte*>(work.request.remote_address);
      EXPECT_TRUE(region->second.access.remote_write);
      EXPECT_GE(to, region->second.memory.data());
      EXPECT_LE(to + work.bytes(), region->second.memory.data() + region->second.memory.size());
      if (!work.request.inlined) work.data = work.gathered();
      std::memcpy(to, work.data.data(), work.data.size());
    } else {
      if (!work.request.inlined) work.data = work.gathered();
      if (peer->receives.empty()) {
        ADD_FAILURE() << "receiver not ready";
        ++not_ready;
        return false;
      }
      const ReceiveRequest receive = peer->receives.front();
      peer->receives.pop_front();
      EXPECT_LE(work.data.size(), receive.segment.bytes);
      if (!work.data.empty()) {
        std::memcpy(const_cast<std::byte*>(receive.segment.data), work.data.data(), work.data.size());
      }
      peer->received.push_back({.id = receive.id,
                                .received = true,
                                .opcode = Opcode::send_with_immediate,
                                .has_immediate = true,
                                .bytes = static_cast<std::uint32_t>(work.data.size()),
                                .immediate = work.request.immediate});
    }
    unacknowledged.push_back(std::move(work));
    return true;
  }
  // Delivers the peer's acknowledgement of the oldest request.
  bool acknowledge() {
    if (unacknowledged.empty()) return false;
    const Work work = std::move(unacknowledged.front());
    unacknowledged.pop_front();
    if (work.request.opcode != Opcode::read && !work.request.inlined && !work.data.empty()) {
      // Until now a device may have to send the data again.
      EXPECT_EQ(work.data, work.gathered()) << "reused before it was done";
    }
    ++unsignalled_;
    if (work.request.signalled) {
      sent.push_back({.id = work.request.id});
      unsignalled_ = 0;
    }
    return true;
  }
  // Returns a completion of the completion queue, of either direction.
  std::optional<Completion> poll_sent() {
    if (sent.empty()) return std::nullopt;
    const Completion completion = sent.front();
    sent.pop_front();
    return completion;
  }
  std::optional<Completion> poll_received() {
    if (received.empty()) return std::nullopt;
    const Completion completion = received.front();
    received.pop_front();
    return completion;
  }

  struct Work {
    SendRequest request;
    std::vector<Segment> segments;
    std::vector<std::byte> data;
    std::size_t bytes() const {
      std::size_t sum = 0;
      for (const Segment& segment : segments) sum += segment.bytes;
      return sum;
    }
    std::vector<std::byte> gathered() const {
      std::vector<std::byte> all;
      for (const Segment& segment : segments) all.insert(all.end(), segment.data, segment.data + segment.bytes);
      return all;
    }
  };
  FakePair* peer = nullptr;
  std::deque<Work> sends;
  std::deque<Work> unacknowledged;
  std::deque<ReceiveRequest> receives;
  std::deque<Completion> sent;
  std::deque<Completion> received;
  std::size_t not_ready = 0;
  std::size_t doorbells = 0;

 private:
  FakeDevice& device_;
  const std::size_t inline_bytes_;
  const std::size_t send_requests_;
  std::size_t unsignalled_ = 0;  // Acknowledged requests that no completion covers yet.
};

}  // namespace hawser::transport::rdma
