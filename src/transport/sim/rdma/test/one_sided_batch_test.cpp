#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "hawser/transfer_batch.h"
#include "os/dmabuf_range.h"
#include "transport/sim/rdma/sim_queue_pair.h"
#include "transport/sim/rdma/test/rdma_attack_testing.h"

// How batches of one-sided reads and writes become work requests, doorbells and completions.
namespace hawser::transport {
namespace {

using std::chrono::microseconds;

struct BatchMemory final : ExternalBlock {
  explicit BatchMemory(std::size_t bytes) : ExternalBlock([](ExternalBlock&) noexcept {}), memory(bytes) {}
  std::vector<std::byte> memory;
};

struct BatchAccess final : RemoteOperation {
  void on_posted() override {}
  void on_done(const std::optional<Error>& why) override {
    done = true;
    error = why;
    ++times;
    if (again != nullptr) again(*this);
  }
  bool done = false;
  std::size_t times = 0;
  std::optional<Error> error;
  void (*again)(BatchAccess&) = nullptr;
  OneSidedMemory* remote = nullptr;
  TransferBatch batch;
};

class OneSidedBatches : public RdmaAttack {
 protected:
  static constexpr std::size_t block = 4096;
  static constexpr std::size_t memory_bytes = std::size_t{32} << 20;

  struct Cost {
    std::uint64_t doorbells;
    std::uint64_t requests;
    std::uint64_t completions;
  };

  OneSidedBatches() : there_(memory_bytes), here_(memory_bytes) {
    build({});
    registered_ = *server_transport_->register_memory(there_.memory, there_, false);
    local_ = *client_transport_->register_memory(here_.memory, here_, false);
    exposed_ = *registered_->expose(there_.memory, true, true);
    pair_ = honest();
    pass(milliseconds(1));
    for (std::size_t i = 0; i < memory_bytes; ++i) {
      there_.memory[i] = static_cast<std::byte>(i / block * 7 + i % block);
      here_.memory[i] = std::byte{0};
    }
  }
  ~OneSidedBatches() override { pair_.reset(); }

  void prepare(BatchAccess& access, RemoteOperation::Kind kind) {
    const ExposedPlace place = exposed_->places().front();
    access.kind = kind;
    access.runs = access.batch.runs();
    access.domain = place.domain;
    access.address = place.address;
    access.key = place.key;
  }
  MutableBytes local(std::size_t index) { return MutableBytes(here_.memory).subspan(index * block, block); }
  Cost run(BatchAccess& access, RemoteOperation::Kind kind) {
    prepare(access, kind);
    const Cost before = cost();
    EXPECT_TRUE(pair_->client->remote_memory()->start(access));
    pass(milliseconds(50));
    EXPECT_TRUE(access.done);
    EXPECT_FALSE(access.error) << access.error->text;
    const Cost after = cost();
    return {after.doorbells - before.doorbells, after.requests - before.requests,
            after.completions - before.completions};
  }
  Cost cost() {
    const SimDevice& device = static_cast<SimDevice&>(*client_device_);
    return {device.doorbells, device.send_requests, device.send_completions};
  }
  // Sends a message and returns how long the server waits for it.
  Duration latency() {
    const std::size_t before = pair_->at_server.messages;
    const Time begin = loop_->poller().now();
    send(*pair_->client, "small");
    for (int i = 0; i < 10'000 && pair_->at_server.messages == before; ++i) pass(microseconds(1));
    EXPECT_EQ(pair_->at_server.messages, before + 1);
    return loop_->poller().now() - begin;
  }

  BatchMemory there_;
  BatchMemory here_;
  std::unique_ptr<MemoryRegistration> registered_;
  std::unique_ptr<MemoryRegistration> local_;
  std::unique_ptr<MemoryExposure> exposed_;
  std::unique_ptr<HonestPair> pair_;
};

TEST_F(OneSidedBatches, ScatteredBlocksShareDoorbellsAndCompletions) {
  constexpr std::size_t blocks = 3000;
  for (const auto kind : {RemoteOperation::Kind::read, RemoteOperation::Kind::write}) {
    BatchAccess access;
    for (std::size_t i = 0; i < blocks; ++i) access.batch.add(local(i), (blocks - i) * 2 * block);
    const Cost cost = run(access, kind);
    EXPECT_EQ(cost.requests, blocks);
    RecordProperty("doorbells", static_cast<int>(cost.doorbells));
    RecordProperty("completions", static_cast<int>(cost.completions));
    EXPECT_LE(cost.completions, blocks / 8 + 2);
    EXPECT_LE(cost.doorbells, blocks / 8 + 2);
    for (std::size_t i = 0; i < blocks; ++i) {
      ASSERT_EQ(std::memcmp(local(i).data(), there_.memory.data() + (blocks - i) * 2 * block, block), 0) << i;
      std::memset(local(i).data(), static_cast<int>(i % 251), block);
    }
  }
}

TEST_F(OneSidedBatches, ContiguousBlocksAreFewRequests) {
  BatchAccess access;
  for (std::size_t i = 0; i < 4096; ++i) access.batch.add(local(i), i * block);
  const Cost cost = run(access, RemoteOperation::Kind::read);
  RecordProperty("doorbells", static_cast<int>(cost.doorbells));
  RecordProperty("completions", static_cast<int>(cost.completions));
  EXPECT_LE(cost.requests, 8U);
  EXPECT_LE(cost.completions, cost.requests);
  EXPECT_EQ(std::memcmp(here_.memory.data(), there_.memory.data(), 4096 * block), 0);
}

// The device collects local blocks from eight places, its limit.
TEST_F(OneSidedBatches, LocalBlocksAreGatheredAndScattered) {
  for (const auto kind : {RemoteOperation::Kind::read, RemoteOperation::Kind::write}) {
    BatchAccess access;
    for (std::size_t i = 0; i < 400; ++i) access.batch.add(local(2 * (400 - i)), i * block);
    EXPECT_EQ(access.batch.runs().size(), 400U);
    const Cost cost = run(access, kind);
    EXPECT_EQ(cost.requests, 400U / sim_segments_max);
    for (std::size_t i = 0; i < 400; ++i) {
      ASSERT_EQ(std::memcmp(local(2 * (400 - i)).data(), there_.memory.data() + i * block, block), 0) << i;
      std::memset(local(2 * (400 - i)).data(), static_cast<int>(i % 251), block);
    }
  }
}

// Neighbouring memory of two registrations is one run for the application.
TEST_F(OneSidedBatches, ARunMayPassFromOneRegisteredBufferToTheNext) {
  std::vector<std::byte> both(4 * block);
  struct Half final : ExternalBlock {
    Half() : ExternalBlock([](ExternalBlock&) noexcept {}) {}
  } first, second;
  const auto one = *client_transport_->register_memory(MutableBytes(both).first(2 * block), first, false);
  const auto two = *client_transport_->register_memory(MutableBytes(both).subspan(2 * block), second, false);
  BatchAccess access;
  access.batch.add(MutableBytes(both).subspan(block, block), 0);
  access.batch.add(MutableBytes(both).subspan(2 * block, block), block);
  EXPECT_EQ(access.batch.runs().size(), 1U);
  EXPECT_EQ(run(access, RemoteOperation::Kind::read).requests, 1U);
  EXPECT_EQ(std::memcmp(both.data() + block, there_.memory.data(), 2 * block), 0);
  EXPECT_TRUE(first.unique() && second.unique()) << "still held";
}

// The operations of which the device has taken nothing have not been sent; for others nobody knows.
TEST_F(OneSidedBatches, APartialPostIsReportedAsWhatItIs) {
  BatchAccess begun;
  BatchAccess not_begun;
  for (std::size_t i = 0; i < 4; ++i) {
    begun.batch.add(local(i), 2 * i * block);
    not_begun.batch.add(local(i), (100 + 2 * i) * block);
  }
  prepare(begun, RemoteOperation::Kind::write);
  prepare(not_begun, RemoteOperation::Kind::write);
  static_cast<SimDevice&>(*client_device_).sends_accepted = 3;
  OneSidedMemory& remote = *pair_->client->remote_memory();
  ASSERT_TRUE(remote.start(begun));
  ASSERT_TRUE(remote.start(not_begun));
  pass(milliseconds(50));
  ASSERT_TRUE(begun.error && not_begun.error);
  EXPECT_EQ(begun.error->code, ErrorCode::outcome_unknown) << begun.error->text;
  EXPECT_EQ(not_begun.error->code, ErrorCode::not_sent) << not_begun.error->text;
  EXPECT_EQ(there_.memory[100 * block + 1], static_cast<std::byte>(100 * 7 + 1));
}

// Nothing of an abandoned operation remains, also if its last request was not signalled: the window is full behind the
// small one.
TEST_F(OneSidedBatches, AnAbandonedBatchReleasesItsMemory) {
  constexpr std::size_t large = std::size_t{2} << 20;
  const std::vector<std::vector<std::size_t>> cases = {
      {block}, {block, block, block}, std::vector<std::size_t>(100, block), {large, large - block, block, block}};
  for (const std::vector<std::size_t>& lengths : cases) {
    auto access = std::make_unique<BatchAccess>();
    std::size_t at = 0;
    for (const std::size_t bytes : lengths) {
      access->batch.add(MutableBytes(here_.memory).subspan(at, bytes), at + block);
      at += bytes + block;
    }
    prepare(*access, RemoteOperation::Kind::read);
    OneSidedMemory& remote = *pair_->client->remote_memory();
    ASSERT_TRUE(remote.start(*access));
    remote.abandon(*access);
    access.reset();
    pass(milliseconds(5));
    EXPECT_TRUE(here_.unique()) << lengths.size();
    expect_served(*pair_, 1);
  }
}

// The error of an operation comes before the device has stopped. Until then the transport keeps `local_use`.
TEST_F(OneSidedBatches, TheUseOfLocalMemoryEndsWhenTheDeviceHasStopped) {
  constexpr std::size_t bytes = std::size_t{8} << 20;
  for (const bool breaks : {false, true}) {
    auto access = std::make_unique<BatchAccess>();
    access->batch.add(MutableBytes(here_.memory).first(bytes), 0);
    prepare(*access, RemoteOperation::Kind::read);
    access->local_use = std::make_shared<char>();
    const std::weak_ptr<const void> use = access->local_use;
    ASSERT_TRUE(pair_->client->remote_memory()->start(*access));
    pass(microseconds(10));
    ASSERT_FALSE(access->done);
    if (breaks) pair_->client.reset();
    if (!breaks) pass(milliseconds(50));
    ASSERT_TRUE(access->done);
    EXPECT_EQ(access->error.has_value(), breaks);
    access.reset();
    EXPECT_EQ(use.expired(), !breaks);
    pass(milliseconds(2000));
    EXPECT_TRUE(use.expired());
  }
}

// Messages beside a transfer of 4 MiB at a time.
class MessagesBesideTransfers : public OneSidedBatches {
 protected:
  struct Measured {
    Duration alone;
    Duration beside;  // The 99th percentile.
    double gbit_per_s;
  };
  // The first messages meet a long window.
  Measured measure(TransferPriority priority, Duration settle) {
    const auto percentile = [&](std::size_t which) {
      std::vector<Duration> all;
      for (int i = 0; i < 300; ++i) all.push_back(latency());
      std::sort(all.begin(), all.end());
      return all[all.size() * which / 100];
    };
    const Duration alone = percentile(50);
    constexpr std::size_t bytes = std::size_t{4} << 20;
    std::array<BatchAccess, 2> transfers;
    for (BatchAccess& one : transfers) {
      one.batch.add(MutableBytes(here_.memory).first(bytes), 0);
      prepare(one, RemoteOperation::Kind::write);
      one.priority = priority;
      one.remote = pair_->client->remote_memory();
      one.again = [](BatchAccess& again) { EXPECT_TRUE(again.remote->start(again)); };
      EXPECT_TRUE(one.remote->start(one));
    }
    for (const Time until = loop_->poller().now() + settle; loop_->poller().now() < until;) latency();
    const std::size_t before = transfers[0].times + transfers[1].times;
    const Time begin = loop_->poller().now();
    const Duration beside = percentile(99);
    const double seconds = std::chrono::duration<double>(loop_->poller().now() - begin).count();
    const std::size_t times = transfers[0].times + transfers[1].times - before;
    for (BatchAccess& one : transfers) one.again = nullptr;
    pass(milliseconds(50));
    EXPECT_TRUE(transfers[0].done && transfers[1].done);
    const Measured measured{alone, beside, 8e-9 * static_cast<double>(times * bytes) / seconds};
    RecordProperty("alone_ns", static_cast<int>(alone.count()));
    RecordProperty("beside_ns", static_cast<int>(beside.count()));
    RecordProperty("gbit_per_s", static_cast<int>(measured.gbit_per_s));
    return measured;
  }
};

// A message waits for a window of a transfer beside it, and windows are short while there are messages. 256 KiB take
// 21 us at 100 Gb/s, and 4 MiB take 336 us.
TEST_F(MessagesBesideTransfers, WaitForAShortWindow) {
  const Measured measured = measure(TransferPriority::interactive, microseconds(200));
  EXPECT_LE(measured.beside, measured.alone + microseconds(50));
  EXPECT_GE(measured.gbit_per_s, 80);
}

// The window of bulk transfers shrinks to what their rate needs.
TEST_F(MessagesBesideTransfers, WaitForAShorterWindowOfBulkTransfers) {
  const Measured measured = measure(TransferPriority::bulk, milliseconds(150));
  EXPECT_LE(measured.beside, 3 * measured.alone);
  EXPECT_GE(measured.gbit_per_s, 80);
}

// Memory behind a descriptor, at both ends: no byte of it passes through the processor, also in small writes, which are
// otherwise sent inline.
TEST_F(OneSidedBatches, MemoryBehindADescriptorIsMovedByTheDevicesAlone) {
  constexpr std::size_t bytes = 64 * block;
  struct End {
    explicit End(const std::shared_ptr<Transport>& transport) {
      const Descriptor descriptor(::memfd_create("one_sided_batch_test", MFD_CLOEXEC));
      EXPECT_EQ(::ftruncate(descriptor.get(), static_cast<off_t>(bytes)), 0);
      range = std::move(*DmabufRange::open(descriptor.get(), block, bytes - block));
      registration =
          std::move(*transport->register_dmabuf({range.addresses(), range.descriptor(), range.offset()}, counted));
      void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
      EXPECT_NE(at, MAP_FAILED);
      all = MutableBytes(static_cast<std::byte*>(at), bytes);
    }
    ~End() { ::munmap(all.data(), all.size()); }
    MutableBytes memory() { return all.subspan(block); }  // As the processor of a GPU would see it.
    BatchMemory counted{0};
    DmabufRange range;
    std::unique_ptr<MemoryRegistration> registration;
    MutableBytes all;
  };
  const SimDevice& server_device = static_cast<SimDevice&>(*server_device_);
  const SimDevice& client_device = static_cast<SimDevice&>(*client_device_);
  const std::size_t at_server = server_device.regions();
  const std::size_t at_client = client_device.regions();
  {
    End there(server_transport_);
    End here(client_transport_);
    exposed_ = *there.registration->expose(there.range.addresses().subspan(2 * block, 40 * block), true, true);
    for (const std::size_t size : {std::size_t{1}, std::size_t{16}, std::size_t{300}, 7 * block + 3}) {
      std::memset(there.memory().data(), 'u', there.memory().size());
      std::memset(here.memory().data(), static_cast<int>(size % 251), here.memory().size());
      BatchAccess write;
      write.batch.add(here.range.addresses().subspan(3, size), 5);
      run(write, RemoteOperation::Kind::write);
      const Bytes landed = there.memory().subspan(2 * block + 5, size);
      EXPECT_EQ(std::memcmp(landed.data(), here.memory().data(), size), 0) << size;
      EXPECT_EQ(there.memory()[2 * block + 4], std::byte{'u'});
      EXPECT_EQ(there.memory()[2 * block + 5 + size], std::byte{'u'});
      BatchAccess read;
      read.batch.add(here.range.addresses().subspan(20 * block, size), 4);
      run(read, RemoteOperation::Kind::read);
      EXPECT_EQ(here.memory()[20 * block], std::byte{'u'});
      EXPECT_EQ(std::memcmp(here.memory().data() + 20 * block + 1, landed.data(), size - 1), 0) << size;
    }
    // Local memory of both kinds in one operation.
    BatchAccess mixed;
    mixed.batch.add(local(0).first(8), 0);
    mixed.batch.add(here.range.addresses().first(8), 8);
    run(mixed, RemoteOperation::Kind::write);
    EXPECT_EQ(std::memcmp(there.memory().data() + 2 * block, local(0).data(), 8), 0);
    EXPECT_EQ(std::memcmp(there.memory().data() + 2 * block + 8, here.memory().data(), 8), 0);
    // Bounds and revocation are those of the key.
    BatchAccess beyond;
    beyond.batch.add(here.range.addresses().first(8), 40 * block - 7);
    prepare(beyond, RemoteOperation::Kind::write);
    exposed_.reset();
    EXPECT_TRUE(pair_->client->remote_memory()->start(beyond));
    pass(milliseconds(50));
    ASSERT_TRUE(beyond.error);
    EXPECT_EQ(beyond.error->code, ErrorCode::stale_handle);
    pair_.reset();
    pass(std::chrono::seconds(3));
    EXPECT_EQ(here.counted.unique(), true);
  }
  // Nothing is registered any more.
  local_.reset();
  registered_.reset();
  EXPECT_LE(server_device.regions(), at_server);
  EXPECT_LE(client_device.regions(), at_client);
}

TEST_F(OneSidedBatches, ADeviceWithoutDescriptorsRefusesThem) {
  const Descriptor descriptor(::memfd_create("one_sided_batch_test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(descriptor.get(), 8192), 0);
  const DmabufRange range = std::move(*DmabufRange::open(descriptor.get(), 0, 8192));
  const DmabufMemory memory{range.addresses(), range.descriptor(), range.offset()};
  BatchMemory counted(0);
  SimDevice& device = static_cast<SimDevice&>(*client_device_);
  device.refuse_dmabuf(true);
  const std::size_t before = device.regions();
  const auto refused = client_transport_->register_dmabuf(memory, counted);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_EQ(refused.error().text, "sim0 does not register dma-buf descriptors");
  device.refuse_dmabuf(false);
  device.refuse_memory(true);
  const auto full = client_transport_->register_dmabuf(memory, counted);
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, ErrorCode::overloaded);
  EXPECT_EQ(device.regions(), before);
  // One device that accepts the memory is enough, if there are several.
  const auto every_device = make_rdma_transport({.huge_pages = false}, fabric_);
  const auto partly = every_device->register_dmabuf(memory, counted);
  ASSERT_TRUE(partly.has_value()) << partly.error().text;
  const auto exposed = (*partly)->expose(memory.addresses, true, false);
  ASSERT_TRUE(exposed.has_value());
  EXPECT_EQ((*exposed)->places().size(), 1U);
  ASSERT_EQ((*exposed)->left_out().size(), 1U);
  EXPECT_NE((*exposed)->left_out()[0].find("sim0"), std::string::npos);
  device.refuse_memory(false);
}

}  // namespace
}  // namespace hawser::transport
