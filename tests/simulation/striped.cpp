#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "hawser/striped_memory.h"
#include "os/dmabuf_range.h"
#include "rpc/session/path_rate.h"
#include "tests/simulation/world.h"
#include "tests/testing.h"
#include "transport/network_access.h"

// Operations over two connections to one server, in virtual time.
namespace hawser::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t striped_bytes = 8 << 20;
constexpr StripeOptions small_pieces{.piece_bytes = 64 << 10, .pieces_per_path = 4};

// A connection carries about its buffer in each period of the delay.
transport::SimOptions link_with_buffer(std::size_t bytes) {
  return {
      .delay_min = milliseconds(1), .delay_max = milliseconds(1), .buffer_bytes_min = bytes, .buffer_bytes_max = bytes};
}

struct StripedPaths {
  // Runs `test` with two connected clients, a region of 'U' and a buffer.
  template <class Test>
  void run(std::array<std::size_t, 2> link_buffers, Test test) {
    loop.run([](StripedPaths& self, std::array<std::size_t, 2> buffers, Test& body) -> Task<void> {
      EXPECT_TRUE(self.server.start());
      for (std::size_t i = 0; i < 2; ++i) {
        self.network->set_options(link_with_buffer(buffers[i]));
        const Result<void> connected = co_await self.clients[i]->connect("server:1");
        EXPECT_TRUE(connected);
      }
      self.theirs = std::move(*RegisteredBuffer::allocate(self.server, striped_bytes));
      self.mine = std::move(*RegisteredBuffer::allocate(*self.clients[0], striped_bytes));
      std::memset(self.theirs.memory().data(), 'U', striped_bytes);
      self.region = std::move(*self.theirs.expose(0, striped_bytes, RegionAccess::read_write));
      co_await body(self);
    }(*this, link_buffers, test));
  }
  StripedMemory striped(StripeOptions options = small_pieces) const {
    const std::array<Client*, 2> both{clients[0].get(), clients[1].get()};
    return StripedMemory(both, options);
  }
  static void fill(MutableBytes memory, unsigned seed) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>((i * 31 + i / 251 + seed) % 253);
  }
  Task<void> pause(Duration time) { co_await loop.sleep(time); }
  bool equal() const { return std::memcmp(theirs.memory().data(), mine.memory().data(), striped_bytes) == 0; }

  Loop loop{std::make_unique<exec::SimPoller>(), {.log = no_log()}};
  std::shared_ptr<transport::SimNetwork> network =
      std::make_shared<transport::SimNetwork>(1, link_with_buffer(64 << 10));
  Server server{loop, over(network, ServerOptions{.listen = "server:1"})};
  std::array<std::unique_ptr<Client>, 2> clients{std::make_unique<Client>(loop, over(network, ClientOptions())),
                                                 std::make_unique<Client>(loop, over(network, ClientOptions()))};
  RegisteredBuffer theirs;
  RegisteredBuffer mine;
  ExposedRegion region;
};

Task<void> note(Task<Result<void>> operation, std::optional<Result<void>>& outcome) {
  outcome = co_await std::move(operation);
}

// The rates of two paths differ by 4, and so do their parts.
TEST(StripedMemoryAccess, PathsGetPartsByTheirMeasuredRate) {
  StripedPaths paths;
  paths.run({16 << 10, 64 << 10}, [](StripedPaths& self) -> Task<void> {
    StripedMemory striped = self.striped();
    for (unsigned round = 0; round < 4; ++round) {
      StripedPaths::fill(self.mine.memory(), round);
      auto written = co_await striped.write(self.region.handle(), 0, self.mine.memory());
      REQUIRE_OK(written);
      EXPECT_TRUE(self.equal());
    }
    StripedPaths::fill(self.theirs.memory(), 77);
    auto read = co_await striped.read(self.region.handle(), 0, self.mine.memory());
    REQUIRE_OK(read);
    EXPECT_TRUE(self.equal());
    const std::vector<StripePath> both = striped.paths();
    EXPECT_EQ(both[0].bytes + both[1].bytes, 5 * striped_bytes);
    EXPECT_GT(both[1].bytes, 2 * both[0].bytes);
    EXPECT_GT(both[0].bytes, striped_bytes / 4);
    EXPECT_GT(both[1].bytes_per_second, 2 * both[0].bytes_per_second);
    EXPECT_EQ(both[0].outstanding_bytes + both[1].outstanding_bytes, 0U);
    EXPECT_TRUE(both[0].usable && both[1].usable);
  });
}

// Each block is in exactly one piece, whatever its size.
TEST(StripedMemoryAccess, BatchesOfAllSizesReachTheBytesAndNoOthers) {
  StripedPaths paths;
  paths.run({64 << 10, 64 << 10}, [](StripedPaths& self) -> Task<void> {
    StripedMemory striped = self.striped();
    std::vector<std::byte> expected(striped_bytes, std::byte{'U'});
    StripedPaths::fill(self.mine.memory(), 5);
    TransferBatch batch;
    std::uint64_t offset = 3;
    std::size_t local = 0;
    for (std::size_t i = 0; i < 1500; ++i) {
      const std::size_t bytes = i == 700 ? 300'000 : i * 37 % 2000;  // Also 0.
      batch.add(self.mine.memory().subspan(local, bytes), offset);
      if (bytes != 0) std::memcpy(expected.data() + offset + 1000, self.mine.memory().data() + local, bytes);
      local += bytes;
      offset += bytes + i % 3 * 7;
    }
    REQUIRE(offset + 1000 < striped_bytes);
    auto written = co_await striped.write(self.region.handle(), batch, {}, 1000);
    REQUIRE_OK(written);
    EXPECT_TRUE(std::memcmp(self.theirs.memory().data(), expected.data(), striped_bytes) == 0);
    const std::vector<std::byte> before(self.mine.memory().begin(), self.mine.memory().end());
    std::memset(self.mine.memory().data(), 0, local);
    auto read = co_await striped.read(self.region.handle(), batch, {}, 1000);
    REQUIRE_OK(read);
    EXPECT_TRUE(std::memcmp(self.mine.memory().data(), before.data(), striped_bytes) == 0);
    EXPECT_EQ(striped.paths()[0].bytes + striped.paths()[1].bytes, 2 * batch.bytes());
    auto nothing = co_await striped.write(self.region.handle(), striped_bytes, Bytes());
    EXPECT_TRUE(nothing) << testing_tools::error_of(nothing);
    auto outside = co_await striped.write(self.region.handle(), striped_bytes - 1, self.mine.memory().first(2));
    EXPECT_TRUE(testing_tools::is_error(outside, ErrorCode::invalid_argument, "not within the region's"));
  });
}

TEST(StripedMemoryAccess, ThePiecesOfAFailedPathGoOverTheOther) {
  for (const bool reads : {false, true}) {
    StripedPaths paths;
    paths.run({32 << 10, 32 << 10}, [reads](StripedPaths& self) -> Task<void> {
      StripeOptions options = small_pieces;
      options.retry_frame_writes = true;
      StripedMemory striped = self.striped(options);
      StripedPaths::fill(reads ? self.theirs.memory() : self.mine.memory(), 9);
      std::optional<Result<void>> outcome;
      Scope scope;
      scope.spawn(note(reads ? striped.read(self.region.handle(), 0, self.mine.memory())
                             : striped.write(self.region.handle(), 0, self.mine.memory()),
                       outcome));
      co_await self.pause(milliseconds(100));
      EXPECT_FALSE(outcome);
      const std::vector<StripePath> before = striped.paths();
      EXPECT_GT(before[0].bytes, 0U);
      EXPECT_GT(before[1].bytes, 0U);
      EXPECT_GT(before[0].outstanding_bytes, 0U);
      self.clients[0]->close();
      co_await scope.join();
      REQUIRE(outcome.has_value());
      REQUIRE_OK(*outcome);
      EXPECT_TRUE(self.equal());
      const std::vector<StripePath> after = striped.paths();
      EXPECT_EQ(after[0].bytes, before[0].bytes);
      EXPECT_GT(after[0].failures, 0U);
      EXPECT_EQ(after[0].outstanding_bytes, 0U);
      EXPECT_FALSE(after[0].usable);
      EXPECT_EQ(after[0].bytes + after[1].bytes, striped_bytes);
      // The application connects the client again. The path is used again after its pause.
      const Result<void> connected = co_await self.clients[0]->connect("server:1");
      EXPECT_TRUE(connected);
      co_await self.pause(seconds(1));
      auto again = co_await striped.write(self.region.handle(), 0, self.mine.memory());
      EXPECT_TRUE(again) << testing_tools::error_of(again);
      EXPECT_GT(striped.paths()[0].bytes, after[0].bytes + striped_bytes / 4);
    });
  }
}

// The peer may still read frames of the ended connection.
TEST(StripedMemoryAccess, AFrameThatMayStillArriveIsNotWrittenAgain) {
  StripedPaths paths;
  paths.run({32 << 10, 32 << 10}, [](StripedPaths& self) -> Task<void> {
    StripedMemory striped = self.striped();
    std::optional<Result<void>> outcome;
    Scope scope;
    scope.spawn(note(striped.write(self.region.handle(), 0, self.mine.memory()), outcome));
    co_await self.pause(milliseconds(100));
    self.clients[0]->close();
    co_await scope.join();
    REQUIRE(outcome.has_value());
    EXPECT_TRUE(testing_tools::is_error(*outcome, ErrorCode::outcome_unknown, "; the peer has confirmed "));
    EXPECT_EQ(striped.paths()[1].outstanding_bytes, 0U);
    // Nothing has begun over a client without a connection, so the other path carries everything.
    auto written = co_await striped.write(self.region.handle(), 0, self.mine.memory());
    EXPECT_TRUE(written) << testing_tools::error_of(written);
    EXPECT_TRUE(self.equal());
  });
}

TEST(StripedMemoryAccess, AnOperationFailsWhenAllPathsHave) {
  StripedPaths paths;
  paths.run({32 << 10, 32 << 10}, [](StripedPaths& self) -> Task<void> {
    StripeOptions options = small_pieces;
    options.retry_frame_writes = true;
    StripedMemory striped = self.striped(options);
    std::optional<Result<void>> write;
    std::optional<Result<void>> read;
    Scope scope;
    scope.spawn(note(striped.write(self.region.handle(), 0, self.mine.memory().first(4 << 20)), write));
    scope.spawn(note(striped.read(self.region.handle(), 4 << 20, self.mine.memory().subspan(4 << 20)), read));
    co_await self.pause(milliseconds(50));
    self.clients[0]->close();
    co_await self.pause(milliseconds(20));
    EXPECT_FALSE(write || read);
    self.clients[1]->close();
    co_await scope.join();
    REQUIRE(write.has_value() && read.has_value());
    EXPECT_TRUE(testing_tools::is_error(*write, ErrorCode::outcome_unknown, "none of the 2 paths is usable"));
    EXPECT_TRUE(testing_tools::is_error(*read, ErrorCode::unavailable, "none of the 2 paths is usable"));
    auto none = co_await striped.write(self.region.handle(), 0, self.mine.memory());
    EXPECT_TRUE(testing_tools::is_error(none, ErrorCode::not_sent, "none of the 2 paths is usable"));
  });
}

// These errors do not depend on the path.
TEST(StripedMemoryAccess, StaleHandlesDeadlinesAndCancellationsEndTheOperation) {
  StripedPaths paths;
  paths.run({32 << 10, 32 << 10}, [](StripedPaths& self) -> Task<void> {
    StripedMemory striped = self.striped();
    auto late = co_await striped.write(self.region.handle(), 0, self.mine.memory(), {.timeout = milliseconds(20)});
    EXPECT_TRUE(testing_tools::is_error(late, ErrorCode::deadline_exceeded, ""));
    std::stop_source source;
    const std::stop_token token = source.get_token();
    std::optional<Result<void>> cancelled;
    Scope scope;
    RemoteOptions with_token;
    with_token.token = &token;
    scope.spawn(note(striped.write(self.region.handle(), 0, self.mine.memory(), with_token), cancelled));
    co_await self.pause(milliseconds(20));
    source.request_stop();
    co_await scope.join();
    REQUIRE(cancelled.has_value());
    EXPECT_TRUE(testing_tools::is_error(*cancelled, ErrorCode::cancelled, ""));
    // A destroyed task abandons its pieces.
    {
      Scope abandoned;
      std::optional<Result<void>> never;
      abandoned.spawn(note(striped.write(self.region.handle(), 0, self.mine.memory()), never));
      co_await self.pause(milliseconds(20));
      EXPECT_GT(striped.paths()[0].outstanding_bytes, 0U);
    }
    const RemoteRegion handle = self.region.handle();
    self.region.revoke();
    auto stale = co_await striped.read(handle, 0, self.mine.memory());
    EXPECT_TRUE(testing_tools::is_error(stale, ErrorCode::stale_handle, ""));
    for (const StripePath& path : striped.paths()) {
      EXPECT_EQ(path.failures, 0U);
      EXPECT_EQ(path.outstanding_bytes, 0U);
      EXPECT_TRUE(path.usable);
    }
  });
}

TEST(StripedMemoryAccess, NeedsPaths) {
  EXPECT_THROW(StripedMemory({}), std::invalid_argument);
  const std::array<Client*, 1> null{nullptr};
  EXPECT_THROW(StripedMemory{null}, std::invalid_argument);
}

// A path that was slow once would otherwise get no pieces that show that it is faster now.
TEST(StripedMemoryAccess, APathThatWasSlowIsMeasuredAgainUnderLoad) {
  StripedPaths paths;
  paths.run({1 << 10, 64 << 10}, [](StripedPaths& self) -> Task<void> {
    StripedMemory striped = self.striped();
    std::uint64_t times_used = 0;
    std::uint64_t bytes_before = 0;
    const Time end = self.loop.now() + seconds(10);
    while (self.loop.now() < end) {
      auto written = co_await striped.write(self.region.handle(), 0, self.mine.memory());
      REQUIRE_OK(written);
      const std::uint64_t bytes = striped.paths()[0].bytes;
      if (bytes != bytes_before) ++times_used;
      bytes_before = bytes;
    }
    EXPECT_GE(times_used, 4U);
    EXPECT_LT(bytes_before, striped.paths()[1].bytes / 16);
  });
}

TEST(PathRate, CountsTheTimeInWhichThePathIsUsed) {
  detail::PathRate rate;
  const auto at = [](int ms) { return Time(milliseconds(10'000 + ms)); };
  EXPECT_EQ(rate.seconds_until(50, 100, at(0)), 0.5);
  rate.started(1000, at(0));
  rate.started(1000, at(0));
  EXPECT_EQ(rate.outstanding(), 2000U);
  rate.completed(1000, at(10));
  EXPECT_DOUBLE_EQ(rate.bytes_per_second(at(10)), 100'000);
  rate.completed(1000, at(20));
  EXPECT_DOUBLE_EQ(rate.bytes_per_second(at(20)), 100'000) << "the second waited behind the first";
  // Idle time does not count.
  rate.started(1000, at(520));
  rate.completed(1000, at(530));
  EXPECT_DOUBLE_EQ(rate.bytes_per_second(at(530)), 100'000);
  EXPECT_DOUBLE_EQ(rate.seconds_until(1000, 1, at(530)), 0.01);
  // Completions at one time are one sample.
  rate.started(500, at(530));
  rate.started(500, at(530));
  rate.started(500, at(530));
  rate.completed(500, at(535));
  rate.completed(500, at(535));
  rate.completed(500, at(545));
  EXPECT_DOUBLE_EQ(rate.bytes_per_second(at(545)), 100'000);
  // A slower path is noticed soon, and an old measurement is dropped.
  for (int i = 0; i < 20; ++i) {
    rate.started(100, at(1000 + 10 * i));
    rate.completed(100, at(1010 + 10 * i));
  }
  EXPECT_LT(rate.bytes_per_second(at(1200)), 11'000);
  EXPECT_GT(rate.bytes_per_second(at(2200)), 0);
  EXPECT_EQ(rate.bytes_per_second(at(2201)), 0);
  EXPECT_EQ(rate.seconds_until(50, 100, at(2201)), 0.5);
  rate.started(100, at(5000));
  EXPECT_EQ(rate.bytes_per_second(at(5000)), 0);
  rate.completed(100, at(5010));
  EXPECT_DOUBLE_EQ(rate.bytes_per_second(at(5010)), 10'000);
  rate.started(100, at(5010));
  EXPECT_DOUBLE_EQ(rate.bytes_per_second(at(9000)), 10'000) << "a transfer in progress is slow, not absent";
  rate.withdrawn(100);
  EXPECT_EQ(rate.outstanding(), 0U);
  rate.forget();
  EXPECT_EQ(rate.bytes_per_second(at(5011)), 0);
}

// Connections refuse pieces beyond their limit. Operations without a piece in progress end with that error, and the
// others go on: no path has failed.
TEST(StripedMemoryAccess, TooManyPiecesAreNoFailureOfAPath) {
  StripedPaths paths;
  paths.run({64 << 10, 64 << 10}, [](StripedPaths& self) -> Task<void> {
    constexpr std::size_t operations = 1200;
    constexpr std::size_t pieces = 20;  // More than an operation has in progress at a time.
    StripedMemory striped = self.striped({.piece_bytes = 4096, .pieces_per_path = 8});
    StripedPaths::fill(self.mine.memory(), 3);
    std::vector<std::optional<Result<void>>> outcomes(operations);
    Scope scope;
    for (std::optional<Result<void>>& outcome : outcomes) {
      scope.spawn(note(striped.write(self.region.handle(), 0, self.mine.memory().first(pieces * 4096)), outcome));
    }
    co_await scope.join();
    std::size_t done = 0;
    std::size_t overloaded = 0;
    for (const std::optional<Result<void>>& outcome : outcomes) {
      REQUIRE(outcome.has_value());
      if (*outcome) {
        ++done;
      } else {
        overloaded += (*outcome).error().code == ErrorCode::overloaded ? 1 : 0;
      }
    }
    EXPECT_EQ(done + overloaded, operations);
    EXPECT_GE(done, 512U);
    EXPECT_GT(overloaded, 0U);
    for (const StripePath& path : striped.paths()) EXPECT_TRUE(path.usable && path.failures == 0);
    auto after = co_await striped.write(self.region.handle(), 0, self.mine.memory());
    REQUIRE_OK(after);
    EXPECT_TRUE(self.equal());
  });
}

// A connection that was full when an operation began has room later.
TEST(StripedMemoryAccess, APathThatRefusedAPieceGetsOthersLater) {
  StripedPaths paths;
  paths.run({64 << 10, 64 << 10}, [](StripedPaths& self) -> Task<void> {
    constexpr std::size_t most = 4096;
    StripedMemory striped =
        self.striped({.piece_bytes = 16 << 10, .pieces_per_path = 2, .retry_min = std::chrono::milliseconds(1)});
    std::vector<std::optional<Result<void>>> outcomes(most);
    std::vector<std::byte> small(most);
    Scope scope;
    RemoteMemory first(*self.clients[0]);
    for (std::size_t i = 0; i < most; ++i) {
      scope.spawn(note(first.read(self.region.handle(), i, MutableBytes(&small[i], 1)), outcomes[i]));
    }
    StripedPaths::fill(self.mine.memory(), 5);
    auto written = co_await striped.write(self.region.handle(), 0, self.mine.memory());
    REQUIRE_OK(written);
    EXPECT_TRUE(self.equal());
    const std::vector<StripePath> both = striped.paths();
    EXPECT_EQ(both[0].failures, 0U);
    // Its own reads delay it for a quarter of the time.
    EXPECT_GT(both[0].bytes, striped_bytes / 4);
    co_await scope.join();
  });
}

// Connections cannot access such memory, which says nothing about other memory.
TEST(StripedMemoryAccess, LocalMemoryOfADescriptorIsNoFailureOfAPath) {
  StripedPaths paths;
  paths.run({64 << 10, 64 << 10}, [](StripedPaths& self) -> Task<void> {
    StripedMemory striped = self.striped();
    const Descriptor file(::memfd_create("memory", 0));
    const Result<DmabufRange> range = DmabufRange::open(file.get(), 0, 4096);
    REQUIRE_OK(range);
    auto refused = co_await striped.write(self.region.handle(), 0, range->addresses());
    REQUIRE(!refused);
    EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
    for (const StripePath& path : striped.paths()) EXPECT_TRUE(path.usable && path.failures == 0);
    auto written = co_await striped.write(self.region.handle(), 0, self.mine.memory());
    REQUIRE_OK(written);
  });
}

}  // namespace
}  // namespace hawser::simulation
