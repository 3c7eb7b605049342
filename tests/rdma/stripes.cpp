// Operations over two devices when one of them breaks.
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "hawser/striped_memory.h"
#include "tests/rdma/device.h"
#include "tests/rdma/own_device.h"

namespace hawser::rdma_tests {

constexpr std::size_t striped_bytes = 4 << 20;

inline void fill_stripes(MutableBytes memory, unsigned seed) {
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>((i * 31 + i / 251 + seed) % 253);
}

// No operation fails, and each transfers the right bytes, while a link goes down and comes back.
TEST_F(Device, StripedOperationsGoOnWhenALinkGoesDownUnderLoad) {
  const std::array<OwnDevice, 2> devices{OwnDevice(4), OwnDevice(5)};
  NEEDS_OWN_DEVICE(devices[0]);
  NEEDS_OWN_DEVICE(devices[1]);
  const RdmaOptions rdma{.port_down_grace = 100ms};
  Loop loop({.log = no_log()});
  ServerOptions served = server_options(rdma);
  served.listen = "0.0.0.0:0";
  Server server(loop, served);
  ASSERT_TRUE(server.start());
  const std::string port = server.address().substr(server.address().rfind(':'));
  loop.run([](Loop& on, Server& serving, const std::array<OwnDevice, 2>& own, std::string behind,
              RdmaOptions with) -> Task<void> {
    std::array<std::unique_ptr<Client>, 2> clients;
    for (std::size_t i = 0; i < 2; ++i) {
      clients[i] = std::make_unique<Client>(on, client_options(with));
      auto connected = co_await clients[i]->connect(own[i].address() + behind);
      REQUIRE_OK(connected);
    }
    Result<RegisteredBuffer> theirs = RegisteredBuffer::allocate(serving, striped_bytes);
    REQUIRE_OK(theirs);
    Result<RegisteredBuffer> mine = RegisteredBuffer::allocate(*clients[0], striped_bytes);
    REQUIRE_OK(mine);
    Result<ExposedRegion> region = theirs->expose(0, striped_bytes, RegionAccess::read_write);
    REQUIRE_OK(region);
    const std::array<Client*, 2> both{clients[0].get(), clients[1].get()};
    StripedMemory striped(both, {.piece_bytes = 128 << 10, .pieces_per_path = 4});
    EXPECT_TRUE(striped.paths()[0].one_sided && striped.paths()[1].one_sided);
    bool stop = false;
    std::uint64_t rounds = 0;
    const auto load = [&]() -> Task<void> {
      while (!stop) {
        const auto round = static_cast<unsigned>(rounds);
        fill_stripes(mine->memory(), round);
        auto written = co_await striped.write(region->handle(), 0, mine->memory(), {.timeout = patience});
        EXPECT_OK(written);
        EXPECT_EQ(std::memcmp(mine->memory().data(), theirs->memory().data(), striped_bytes), 0) << round;
        EXPECT_FALSE(mine->in_use()) << round;
        fill_stripes(theirs->memory(), round + 100);
        auto read = co_await striped.read(region->handle(), 0, mine->memory(), {.timeout = patience});
        EXPECT_OK(read);
        EXPECT_EQ(std::memcmp(mine->memory().data(), theirs->memory().data(), striped_bytes), 0) << round;
        EXPECT_FALSE(mine->in_use()) << round;
        if (!written || !read) co_return;
        ++rounds;
      }
    };
    Scope scope;
    scope.spawn(load());
    auto used = co_await eventually(on, [&] {
      const std::vector<StripePath> now = striped.paths();
      return now[0].bytes > striped_bytes && now[1].bytes > striped_bytes && now[0].outstanding_bytes != 0;
    });
    EXPECT_TRUE(used);
    for (std::size_t broken = 0; broken < 2; ++broken) {
      EXPECT_TRUE(own[broken].unplug());
      auto failed = co_await eventually(on, [&] { return striped.paths()[broken].failures != 0; });
      EXPECT_TRUE(failed) << broken;
      const std::uint64_t rounds_before = rounds;
      const std::uint64_t bytes_before = striped.paths()[broken].bytes;
      auto went_on = co_await eventually(on, [&] { return rounds >= rounds_before + 3; });
      EXPECT_TRUE(went_on) << broken;
      EXPECT_EQ(striped.paths()[broken].bytes, bytes_before);
      EXPECT_TRUE(own[broken].plug());
      bool back = false;
      const Time end = on.after(patience);
      while (!back && on.now() < end) {
        auto connected = co_await clients[broken]->connect(own[broken].address() + behind);
        back = connected.has_value();
        co_await on.sleep(10ms);
      }
      EXPECT_TRUE(back) << broken;
      auto used_again =
          co_await eventually(on, [&] { return striped.paths()[broken].bytes > bytes_before + striped_bytes; });
      EXPECT_TRUE(used_again) << broken;
      EXPECT_TRUE(striped.paths()[broken].one_sided);
    }
    stop = true;
    co_await scope.join();
  }(loop, server, devices, port, rdma));
}

}  // namespace hawser::rdma_tests
