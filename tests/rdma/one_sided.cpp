// Reads and writes of a peer's memory without its handlers.
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hawser/rdma.h"
#include "tests/rdma/child.h"
#include "tests/rdma/device.h"

namespace hawser::rdma_tests {

constexpr std::size_t region_bytes = 6 << 20;
constexpr std::size_t exposed_at = 4096 + 8;

// Memory of a server. Its clients may access a part of it.
class Memory {
 public:
  explicit Memory(const Server& server) : buffer_(*RegisteredBuffer::allocate(server, region_bytes)) {}
  RemoteRegion open(std::uint8_t access) {
    regions_.push_back(*buffer_.expose(exposed_at, buffer_.size() - 2 * exposed_at, static_cast<RegionAccess>(access)));
    return regions_.back().handle();
  }
  void revoke() { regions_.clear(); }
  // Called after a write, to check the bytes.
  std::uint64_t sum(std::uint64_t offset, std::uint64_t bytes) {
    const Bytes part = exposed().subspan(offset, bytes);
    return std::accumulate(part.begin(), part.end(), std::uint64_t{0}, [](std::uint64_t sum, std::byte one) {
      return sum * 31 + std::to_integer<std::uint64_t>(one);
    });
  }
  // The opposite direction: the handler writes into its caller's memory.
  Task<Result<void>> fill(Context& context, RemoteRegion region, std::uint64_t offset, std::uint64_t bytes) {
    RemoteMemory callers(context);
    co_return co_await callers.write(region, offset, exposed().first(bytes));
  }
  MutableBytes exposed() { return buffer_.memory().subspan(exposed_at, buffer_.size() - 2 * exposed_at); }
  MutableBytes all() { return buffer_.memory(); }

 private:
  RegisteredBuffer buffer_;
  std::vector<ExposedRegion> regions_;
};

std::uint64_t sum_of(Bytes part) {
  return std::accumulate(part.begin(), part.end(), std::uint64_t{0}, [](std::uint64_t sum, std::byte one) {
    return sum * 31 + std::to_integer<std::uint64_t>(one);
  });
}

void write_text(MutableBytes to, char first) {
  const std::string text = text_of(to.size(), first);
  std::memcpy(to.data(), text.data(), text.size());
}

class OneSidedAccess : public Device {
 protected:
  // Runs body(memory, client, buffer) with a server of that memory and a connected client.
  template <class Body>
  void run(Body body, RdmaOptions options = {}) {
    Loop loop({.log = no_log()});
    Server server(loop, server_options(options));
    Memory memory(server);
    server.register_handler<&Memory::open, &Memory::revoke, &Memory::sum, &Memory::fill>(&memory);
    ASSERT_TRUE(server.start());
    loop.run([](Loop& on, Memory& of, std::string address, RdmaOptions with, Body& test) -> Task<void> {
      Client client(on, client_options(with));
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      Result<RegisteredBuffer> buffer = RegisteredBuffer::allocate(client, region_bytes);
      REQUIRE_OK(buffer);
      co_await test(of, client, *buffer);
    }(loop, memory, server.address(), options, body));
    loop.run(reach_rest(loop, server));
  }
};

constexpr auto read_write = static_cast<std::uint8_t>(RegionAccess::read_write);

TEST_F(OneSidedAccess, WritesAndReadsReachTheBytesAndNoOthers) {
  run([](Memory& memory, Client& client, RegisteredBuffer& buffer) -> Task<void> {
    auto region = co_await client.call<&Memory::open>(read_write);
    REQUIRE_OK(region);
    RemoteMemory remote(client);
    const std::size_t whole = memory.exposed().size();
    EXPECT_EQ(region->bytes, whole);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{257},
                                    std::size_t{4096}, std::size_t{1} << 20, (std::size_t{1} << 20) + 1, whole - 5}) {
      std::memset(memory.all().data(), 0x55, memory.all().size());
      write_text(buffer.memory(), static_cast<char>('a' + bytes % 7));
      auto written = co_await remote.write(*region, 5, buffer.memory().first(bytes));
      REQUIRE_OK(written);
      EXPECT_EQ(std::memcmp(memory.exposed().data() + 5, buffer.memory().data(), bytes), 0) << bytes;
      const std::string_view before = as_text(memory.all().first(exposed_at + 5));
      const std::string_view after = as_text(memory.all().subspan(exposed_at + 5 + bytes));
      EXPECT_EQ(before.find_first_not_of('U'), std::string_view::npos);
      EXPECT_EQ(after.find_first_not_of('U'), std::string_view::npos);
      std::memset(buffer.memory().data(), 0, buffer.size());
      auto read = co_await remote.read(*region, 4, buffer.memory().subspan(3, bytes));
      REQUIRE_OK(read);
      EXPECT_EQ(std::memcmp(buffer.memory().data() + 3, memory.exposed().data() + 4, bytes), 0) << bytes;
      if (bytes + 3 < buffer.size()) {
        EXPECT_EQ(buffer.memory()[bytes + 3], std::byte{0});
      }
    }
    EXPECT_FALSE(buffer.in_use());
  });
}

TEST_F(OneSidedAccess, ANotificationFindsTheMemoryWritten) {
  run([](Memory&, Client& client, RegisteredBuffer& buffer) -> Task<void> {
    auto region = co_await client.call<&Memory::open>(read_write);
    REQUIRE_OK(region);
    RemoteMemory remote(client);
    for (int i = 0; i < 50; ++i) {
      const std::size_t bytes = 1 + static_cast<std::size_t>(i) * 40'009 % (2 << 20);
      write_text(buffer.memory().first(bytes), static_cast<char>('a' + i % 7));
      const CallOptions sum_options;
      auto sum = co_await remote.write_with_notify<&Memory::sum>(*region, 9, buffer.memory().first(bytes), sum_options,
                                                                 std::uint64_t{9}, std::uint64_t{bytes});
      REQUIRE_OK(sum);
      EXPECT_EQ(*sum, sum_of(buffer.memory().first(bytes)));
    }
  });
}

// More operations and parts than the send queue has slots, along with calls.
TEST_F(OneSidedAccess, ManyAtOnceBesideCalls) {
  run(
      [](Memory& memory, Client& client, RegisteredBuffer& buffer) -> Task<void> {
        auto region = co_await client.call<&Memory::open>(read_write);
        REQUIRE_OK(region);
        RemoteMemory remote(client);
        write_text(buffer.memory(), 'k');
        Scope scope;
        int good = 0;
        int sums = 0;
        constexpr std::size_t part = 20'000;
        constexpr int parts = 200;
        const auto copy = [](RemoteMemory& to, RemoteRegion where, MutableBytes from, std::size_t at,
                             int& count) -> Task<void> {
          auto written = co_await to.write(where, at, from);
          EXPECT_OK(written);
          std::vector<std::byte> was(from.begin(), from.end());
          std::memset(from.data(), 0, from.size());
          auto read = co_await to.read(where, at, from);
          EXPECT_OK(read);
          count += std::equal(was.begin(), was.end(), from.begin());
        };
        const auto call = [](Client& to, int& count) -> Task<void> {
          auto sum = co_await to.call<&Memory::sum>(std::uint64_t{0}, std::uint64_t{10});
          count += sum.has_value();
        };
        for (std::size_t i = 0; i < parts; ++i) {
          scope.spawn(copy(remote, *region, buffer.memory().subspan(i * part, part), i * part, good));
          scope.spawn(call(client, sums));
        }
        co_await scope.join();
        EXPECT_EQ(good, parts);
        EXPECT_EQ(sums, parts);
        EXPECT_EQ(std::memcmp(memory.exposed().data(), buffer.memory().data(), part * parts), 0);
      },
      {.send_queue_depth = 16, .read_bytes_max = 64 * 1024, .signal_every = 4});
}

TEST_F(OneSidedAccess, AHandlerWritesItsCallersMemory) {
  run([](Memory& memory, Client& client, RegisteredBuffer& buffer) -> Task<void> {
    write_text(memory.all(), 'q');
    Result<ExposedRegion> mine = buffer.expose(100, 1'000'000, RegionAccess::write);
    REQUIRE_OK(mine);
    auto filled = co_await client.call<&Memory::fill>(mine->handle(), std::uint64_t{7}, std::uint64_t{900'000});
    REQUIRE_OK(filled);
    EXPECT_EQ(std::memcmp(buffer.memory().data() + 107, memory.exposed().data(), 900'000), 0);
    EXPECT_EQ(buffer.memory()[106], std::byte{0});
    EXPECT_EQ(buffer.memory()[107 + 900'000], std::byte{0});
    auto beyond = co_await client.call<&Memory::fill>(mine->handle(), std::uint64_t{100'001}, std::uint64_t{900'000});
    EXPECT_ERROR(beyond, invalid_argument, "not within the region");
    EXPECT_EQ(client.failovers(), 0U);
  });
}

TEST_F(OneSidedAccess, WhatIsOutOfBoundsOrNotAllowedIsRefusedBeforeItIsSent) {
  run(
      [](Memory& memory, Client& client, RegisteredBuffer& buffer) -> Task<void> {
        auto region = co_await client.call<&Memory::open>(read_write);
        REQUIRE_OK(region);
        RemoteMemory remote(client);
        const std::size_t whole = memory.exposed().size();
        const auto read = [&](RemoteRegion from, std::uint64_t offset, MutableBytes into) {
          return remote.read(from, offset, into);
        };
        for (const std::uint64_t offset :
             {std::uint64_t{whole}, std::uint64_t{whole - 9}, UINT64_MAX, UINT64_MAX - 9}) {
          auto beyond = co_await read(*region, offset, buffer.memory().first(10));
          EXPECT_ERROR(beyond, invalid_argument, "not within the region");
        }
        auto last = co_await read(*region, whole - 10, buffer.memory().first(10));
        EXPECT_OK(last);
        std::vector<std::byte> plain(100);
        auto unregistered = co_await read(*region, 0, plain);
        EXPECT_ERROR(unregistered, invalid_argument, "RegisteredBuffer");
        auto read_only = co_await client.call<&Memory::open>(static_cast<std::uint8_t>(RegionAccess::read));
        REQUIRE_OK(read_only);
        auto write = co_await remote.write(*read_only, 0, buffer.memory().first(10));
        EXPECT_ERROR(write, invalid_argument, "not exposed to be written");
        auto write_only = co_await client.call<&Memory::open>(static_cast<std::uint8_t>(RegionAccess::write));
        REQUIRE_OK(write_only);
        auto no_read = co_await read(*write_only, 0, buffer.memory().first(10));
        EXPECT_ERROR(no_read, invalid_argument, "not exposed to be read");
        RemoteRegion elsewhere = *region;
        elsewhere.places[0].domain ^= 2;
        elsewhere.owner ^= 2;
        auto other_peer = co_await read(elsewhere, 0, buffer.memory().first(10));
        EXPECT_ERROR(other_peer, stale_handle, "another peer");
        // All at once, within one tick.
        Scope scope;
        int good = 0;
        int refused = 0;
        for (int i = 0; i < 10; ++i) {
          scope.spawn([](RemoteMemory& of, RemoteRegion from, MutableBytes into, int& yes, int& no) -> Task<void> {
            auto done = co_await of.read(from, 0, into);
            yes += done.has_value();
            no += !done && done.error().code == ErrorCode::overloaded;
          }(remote, *region, buffer.memory().first(10), good, refused));
        }
        co_await scope.join();
        EXPECT_EQ(good, 4);
        EXPECT_EQ(refused, 6);
        EXPECT_EQ(client.failovers(), 0U);
      },
      {.one_sided_max = 4});
}

TEST_F(OneSidedAccess, ARevokedRegionIsRefusedByTheDevice) {
  run([](Memory& memory, Client& client, RegisteredBuffer& buffer) -> Task<void> {
    auto region = co_await client.call<&Memory::open>(read_write);
    REQUIRE_OK(region);
    RemoteMemory remote(client);
    auto before = co_await remote.write(*region, 0, buffer.memory().first(10));
    EXPECT_OK(before);
    auto revoked = co_await client.call<&Memory::revoke>();
    EXPECT_OK(revoked);
    std::memset(memory.all().data(), 0x55, memory.all().size());
    write_text(buffer.memory(), 'z');
    auto after = co_await remote.write(*region, 0, buffer.memory().first(100'000));
    EXPECT_ERROR(after, stale_handle, "revoked");
    EXPECT_EQ(as_text(memory.all()).find_first_not_of('U'), std::string_view::npos);
    auto closed = co_await remote.write(*region, 0, buffer.memory().first(10));
    EXPECT_FALSE(closed);
  });
}

// A forged capability: the device checks the handle that the peer sends.
TEST_F(OneSidedAccess, AForgedHandleReachesNothing) {
  run([](Memory& memory, Client& client, RegisteredBuffer& buffer) -> Task<void> {
    auto region = co_await client.call<&Memory::open>(static_cast<std::uint8_t>(RegionAccess::read));
    REQUIRE_OK(region);
    std::memset(memory.all().data(), 0x55, memory.all().size());
    RemoteRegion forged = *region;
    forged.writable = true;
    RemoteMemory remote(client);
    auto written = co_await remote.write(forged, 0, buffer.memory().first(5000));
    EXPECT_ERROR(written, stale_handle, "refused the access");
    EXPECT_EQ(as_text(memory.all()).find_first_not_of('U'), std::string_view::npos);
  });
}

TEST_F(OneSidedAccess, APeerKilledUnderWayEndsThemAll) {
  Child child([](const Child::Say& say, const Child::Hear& hear) {
    Server server(server_options());
    Memory memory(server);
    server.register_handler<&Memory::open, &Memory::revoke, &Memory::sum, &Memory::fill>(&memory);
    say(server.start() ? server.address() : "");
    hear();
  });
  const std::string address = child.hear();
  ASSERT_NE(address, "");
  Loop loop({.log = no_log()});
  loop.run([](Loop& on, std::string to, Child& peer) -> Task<void> {
    Client client(on, client_options());
    auto connected = co_await client.connect(to);
    REQUIRE_OK(connected);
    auto region = co_await client.call<&Memory::open>(read_write);
    REQUIRE_OK(region);
    Result<RegisteredBuffer> buffer = RegisteredBuffer::allocate(client, region_bytes);
    REQUIRE_OK(buffer);
    RemoteMemory remote(client);
    Scope scope;
    int ended = 0;
    for (int i = 0; i < 8; ++i) {
      scope.spawn([](RemoteMemory& of, RemoteRegion where, MutableBytes memory, bool reads, int& count) -> Task<void> {
        for (;;) {
          Result<void> done;
          if (reads) {
            done = co_await of.read(where, 0, memory);
          } else {
            done = co_await of.write(where, 0, memory);
          }
          if (done) continue;
          const ErrorCode code = done.error().code;
          const ErrorCode expected = reads ? ErrorCode::unavailable : ErrorCode::outcome_unknown;
          EXPECT_TRUE(code == expected || code == ErrorCode::not_sent) << error_of(done);
          ++count;
          co_return;
        }
      }(remote, *region, buffer->memory().subspan(i * 600'000, 600'000), i % 2 == 0, ended));
    }
    co_await on.sleep(50ms);
    EXPECT_EQ(ended, 0);
    peer.kill();
    co_await scope.join();
    EXPECT_EQ(ended, 8);
    auto free = co_await eventually(on, [&] { return !buffer->in_use(); });
    EXPECT_TRUE(free);
  }(loop, address, child));
}

TEST_F(OneSidedAccess, WhatIsGivenUpEndsByItself) {
  run([](Memory&, Client& client, RegisteredBuffer& buffer) -> Task<void> {
    auto region = co_await client.call<&Memory::open>(read_write);
    REQUIRE_OK(region);
    RemoteMemory remote(client);
    {
      // More operations than can be outstanding precede the last one.
      Scope scope;
      int good = 0;
      int late = 0;
      for (int i = 0; i < 10; ++i) {
        const RemoteOptions options{.timeout = i == 9 ? Duration(1) : patience};
        scope.spawn([](RemoteMemory& of, RemoteRegion from, MutableBytes into, RemoteOptions with, int& yes,
                       int& no) -> Task<void> {
          auto done = co_await of.read(from, 0, into, with);
          yes += done.has_value();
          no += !done && done.error().code == ErrorCode::deadline_exceeded;
        }(remote, *region, buffer.memory().first(5 << 20), options, good, late));
      }
      co_await scope.join();
      EXPECT_EQ(good, 9);
      EXPECT_EQ(late, 1);
    }
    {
      // The operation is destroyed with its scope.
      Scope scope;
      scope.spawn([](RemoteMemory& of, RemoteRegion from, MutableBytes into) -> Task<void> {
        auto done = co_await of.read(from, 0, into);
        ADD_FAILURE() << "it was given up";
      }(remote, *region, buffer.memory().first(5 << 20)));
    }
    auto free = co_await eventually(*Loop::current(), [&] { return !buffer.in_use(); });
    EXPECT_TRUE(free);
    auto read = co_await remote.read(*region, 0, buffer.memory().first(10));
    EXPECT_OK(read);
  });
}

}  // namespace hawser::rdma_tests
