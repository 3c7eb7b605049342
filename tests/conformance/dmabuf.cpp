#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>

#include "base/descriptor.h"
#include "hawser/memory.h"
#include "tests/conformance/backend.h"

// Memory behind a dma-buf descriptor over every transport.
namespace hawser::conformance {
namespace {

// A descriptor of ordinary memory, as a simulated device accepts it, and that memory as a GPU would see it.
class FakeDmabuf {
 public:
  explicit FakeDmabuf(std::size_t bytes) : descriptor_(::memfd_create("memory_conformance", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(descriptor_.get(), static_cast<off_t>(bytes)), 0);
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.get(), 0);
    EXPECT_NE(at, MAP_FAILED);
    memory_ = {static_cast<std::byte*>(at), bytes};
  }
  FakeDmabuf(const FakeDmabuf&) = delete;
  FakeDmabuf& operator=(const FakeDmabuf&) = delete;
  ~FakeDmabuf() { ::munmap(memory_.data(), memory_.size()); }
  int descriptor() const { return descriptor_.get(); }
  void close() { descriptor_ = Descriptor(); }
  MutableBytes memory() { return memory_; }

 private:
  Descriptor descriptor_;
  MutableBytes memory_;
};

void write_text(MutableBytes to, char first) {
  const std::string text = text_of(to.size(), first);
  std::memcpy(to.data(), text.data(), text.size());
}
bool same(Bytes left, Bytes right) { return as_text(left) == as_text(right); }

}  // namespace

class DmabufConformance : public Conformance {
 protected:
  bool simulates_rdma(const Client& client) const { return !backend->real_time() && client.transport() == "rdma"; }
};
INSTANTIATE_TEST_SUITE_P(Backends, DmabufConformance, ::testing::ValuesIn(backends()),
                         [](const ::testing::TestParamInfo<BackendFactory>& one) { return one.param.name; });

// Transports that move bytes with the processor refuse the memory when it is registered. An RDMA device moves it, and
// what the device cannot do is refused by name.
TEST_P(DmabufConformance, LocalMemoryIsMovedByDevicesAlone) {
  FakeDmabuf gpu(200'000);
  const std::unique_ptr<Server> server = make_server();
  run_connected(*server, {}, [&](Server& owner, Client& client) -> Task<void> {
    Result<RegisteredBuffer> made = RegisteredBuffer::dmabuf(client, gpu.descriptor(), 100, 150'000);
    Result<RegisteredBuffer> closed = RegisteredBuffer::dmabuf(client, -1, 0, 4096);
    EXPECT_ERROR(closed, invalid_argument, "descriptor -1");
    if (!simulates_rdma(client)) {
      // A real device does not accept the descriptor of ordinary memory either.
      REQUIRE(!made);
      if (client.transport() == "rdma") co_return;
      EXPECT_ERROR(made, unavailable, "no enabled transport can use the memory of a dma-buf descriptor");
      if (client.transport() == "shm" || client.transport() == "ucx") {
        EXPECT_ERROR(made, unavailable, std::string(client.transport()) + " moves bytes with the processor");
      }
      co_return;
    }
    REQUIRE_OK(made);
    gpu.close();
    EXPECT_TRUE(made->registered());
    EXPECT_EQ(made->size(), 150'000U);
    EXPECT_TRUE(made->memory().empty());
    EXPECT_TRUE(made->share().bytes().empty());
    Result<RegisteredBuffer> owners = RegisteredBuffer::allocate(owner, 200'000);
    REQUIRE_OK(owners);
    Result<ExposedRegion> exposed = owners->expose(0, 200'000, RegionAccess::read_write);
    REQUIRE_OK(exposed);
    const MutableBytes device_memory = gpu.memory().subspan(100, 150'000);
    const MutableBytes addresses = made->addresses();
    RemoteMemory remote(client);
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{40}, std::size_t{140'000}}) {
      write_text(device_memory, static_cast<char>('a' + bytes % 7));
      auto written = co_await remote.write(exposed->handle(), 3, addresses.subspan(7, bytes));
      REQUIRE_OK(written);
      EXPECT_TRUE(same(owners->memory().subspan(3, bytes), device_memory.subspan(7, bytes))) << bytes;
      std::memset(owners->memory().data(), 'r', owners->size());
      auto read = co_await remote.read(exposed->handle(), 0, addresses.subspan(9, bytes));
      REQUIRE_OK(read);
      EXPECT_TRUE(same(owners->memory().first(bytes), device_memory.subspan(9, bytes))) << bytes;
    }
    auto checked = co_await remote.read(exposed->handle(), 0, addresses.first(100), {.checksum = true});
    EXPECT_ERROR(checked, unavailable, "the local memory is that of a dma-buf descriptor");
    RemoteRegion without_device = exposed->handle();
    without_device.places = {};
    auto by_frames = co_await remote.write(without_device, 0, addresses.first(100));
    EXPECT_ERROR(by_frames, unavailable, "the local memory is that of a dma-buf descriptor");
    EXPECT_EQ(client.failovers(), 0U);
  });
}

TEST_P(DmabufConformance, APeersMemoryBehindADescriptorIsReachedByDevicesAlone) {
  FakeDmabuf gpu(100'000);
  const std::unique_ptr<Server> server = make_server();
  run_connected(*server, {}, [&](Server& owner, Client& client) -> Task<void> {
    Result<RegisteredBuffer> made = RegisteredBuffer::dmabuf(owner, gpu.descriptor(), 4096, 90'000);
    if (!simulates_rdma(client)) {
      EXPECT_FALSE(made.has_value());
      co_return;
    }
    REQUIRE_OK(made);
    gpu.close();
    const MutableBytes device_memory = gpu.memory().subspan(4096, 90'000);
    Result<ExposedRegion> leased = made->expose(0, 100, RegionAccess::read, {.lease = std::chrono::seconds(1)});
    EXPECT_ERROR(leased, invalid_argument, "cannot have a lease");
    Result<ExposedRegion> exposed = made->expose(8, 80'000, RegionAccess::read_write);
    REQUIRE_OK(exposed);
    EXPECT_TRUE(exposed->left_out().empty());
    const RemoteRegion region = exposed->handle();
    Result<RegisteredBuffer> mine = RegisteredBuffer::allocate(client, 80'000);
    REQUIRE_OK(mine);
    const MutableBytes own = mine->memory().first(80'000);
    write_text(own, 'k');
    RemoteMemory remote(client);
    auto written = co_await remote.write(region, 0, own);
    REQUIRE_OK(written);
    EXPECT_TRUE(same(device_memory.subspan(8, 80'000), own));
    std::memset(own.data(), 0, own.size());
    auto read = co_await remote.read(region, 0, own);
    REQUIRE_OK(read);
    EXPECT_TRUE(same(device_memory.subspan(8, 80'000), own));
    // The exposed region keeps the memory and its registration.
    *made = RegisteredBuffer();
    write_text(own, 'm');
    auto later = co_await remote.write(region, 0, own);
    REQUIRE_OK(later);
    EXPECT_TRUE(same(device_memory.subspan(8, 80'000), own));
    // The owner's processor refuses what would need it.
    auto added = co_await remote.fetch_add(region, 0, 1);
    EXPECT_ERROR(added, unavailable, "the owner's processor cannot access");
    auto checked = co_await remote.read(region, 0, own.first(10), {.checksum = true});
    EXPECT_ERROR(checked, unavailable, "the owner's processor cannot access");
    RemoteRegion without_device = region;
    without_device.places = {};
    auto unreached = co_await remote.write(without_device, 0, own.first(70'000));
    EXPECT_ERROR(unreached, unavailable, "the owner's processor cannot access");
    EXPECT_TRUE(same(device_memory.subspan(8, 80'000), own));
    // A handle that is stale says so first.
    exposed->revoke();
    auto stale = co_await remote.read(without_device, 0, own.first(10));
    EXPECT_ERROR(stale, stale_handle, "not exposed");
    EXPECT_EQ(client.failovers(), 0U);
  });
}

}  // namespace hawser::conformance
