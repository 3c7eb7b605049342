// Limits of connections, over Unix sockets and a device that takes its time.
#include "block/nbd/front.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "block/nbd/protocol.h"
#include "block/nbd/stored_exports.h"
#include "block/store/store.h"
#include "block/store/store_error.h"

namespace hawser::block::nbd {
namespace {

struct DeviceCounts {
  std::atomic<unsigned> most = 0;  // Reads at the same time.
  std::atomic<unsigned> writes = 0;
  std::atomic<bool> held = false;  // Reads do not end.
  std::atomic<bool> abandoned = false;
};

// Reads take a millisecond each.
class SlowDevice final : public NbdDevice {
 public:
  SlowDevice(Loop& loop, DeviceCounts& counts, std::stop_source lost)
      : loop_(loop), counts_(counts), lost_(std::move(lost)) {}
  std::stop_token lost() const noexcept override { return lost_.get_token(); }
  void abandon() noexcept override { counts_.abandoned = true; }
  const ExportInfo& info() const noexcept override { return info_; }
  Task<Result<void>> read(std::uint64_t, MutableBytes into) override {
    counts_.most = std::max(counts_.most.load(), ++running_);
    do {
      co_await loop_.sleep(std::chrono::milliseconds(1));
    } while (counts_.held);
    --running_;
    std::ranges::fill(into, std::byte{5});
    co_return Result<void>{};
  }
  Task<Result<void>> write(std::uint64_t, Bytes, bool) override {
    ++counts_.writes;
    co_return store_fail(ENOSPC, "full");
  }
  Task<Result<void>> flush() override { co_return store_fail(EIO, "broken"); }
  Task<Result<void>> discard(std::uint64_t, std::uint64_t) override {
    lost_.request_stop();
    co_return Result<void>{};
  }
  Task<Result<void>> write_zeroes(std::uint64_t, std::uint64_t, bool, bool) override { co_return Result<void>{}; }
  bool fast_zeroes(std::uint64_t, bool) const noexcept override { return false; }
  Task<Result<std::vector<Extent>>> extents(std::uint64_t, std::uint64_t bytes, std::size_t) override {
    co_return std::vector<Extent>{{bytes, 0}};
  }

 private:
  Loop& loop_;
  DeviceCounts& counts_;
  std::stop_source lost_;
  unsigned running_ = 0;
  const ExportInfo info_{.name = "slow", .size = std::uint64_t{1} << 30};
};

class SlowExports final : public Exports {
 public:
  SlowExports(Loop& loop, DeviceCounts& counts) : loop_(loop), counts_(counts) {}
  Task<Result<std::vector<std::string>>> list() override { co_return std::vector<std::string>{"slow"}; }
  Task<Result<std::shared_ptr<NbdDevice>>> find(std::string, bool) override {
    co_return std::make_shared<SlowDevice>(loop_, counts_, lost_);
  }

 private:
  Loop& loop_;
  DeviceCounts& counts_;
  std::stop_source lost_;
};

class Peer {
 public:
  explicit Peer(const std::string& name) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    std::memcpy(where.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&where), size), 0) << errno;
  }
  void send(const std::string& bytes) {
    EXPECT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // Fewer bytes if the server ends the connection.
  std::string receive(std::size_t size) {
    std::string bytes(size, '\0');
    const ssize_t got = ::recv(socket_.get(), bytes.data(), size, MSG_WAITALL);
    bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return bytes;
  }
  bool has_bytes() const {
    pollfd state{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&state, 1, 0) > 0;
  }
  void enter(const std::string& name = "") {
    EXPECT_EQ(receive(18).size(), 18U);
    std::string bytes;
    append(bytes, fixed_newstyle | no_zeroes);
    append(bytes, option_magic);
    append(bytes, option::export_name);
    append(bytes, static_cast<std::uint32_t>(name.size()));
    send(bytes + name);
    EXPECT_EQ(receive(10).size(), 10U);
  }
  static std::string request(std::uint16_t type, std::uint64_t cookie, std::uint32_t length, std::uint64_t offset = 0) {
    std::string bytes;
    append(bytes, request_magic);
    append(bytes, std::uint16_t{0});
    append(bytes, type);
    append(bytes, cookie);
    append(bytes, offset);
    append(bytes, length);
    return bytes;
  }

 private:
  SocketDescriptor socket_;
};

class NbdFront : public ::testing::Test {
 protected:
  void start(const NbdLimits& limits) {
    start_with(limits, [this](Loop& loop) { return std::make_unique<SlowExports>(loop, counts_); });
  }
  void start_with(const NbdLimits& limits, Front::MakeExports make) {
    name_ = "hawser-nbd-" + std::to_string(::getpid());
    auto front = Front::start({.listen = "unix:@" + name_, .limits = limits}, std::move(make));
    ASSERT_TRUE(front) << front.error().text;
    front_ = std::move(*front);
  }

  std::string name_;
  DeviceCounts counts_;
  std::unique_ptr<Front> front_;
};

TEST_F(NbdFront, RequestsBeyondTheLimitWait) {
  start({.session = {.requests_in_flight_max = 4}});
  Peer peer(name_);
  peer.enter();
  constexpr std::uint64_t requests = 40;
  std::string bytes;
  for (std::uint64_t i = 0; i < requests; ++i) bytes += Peer::request(command::read, i, 8);
  peer.send(bytes);
  std::vector<bool> answered(requests);
  for (std::uint64_t i = 0; i < requests; ++i) {
    const std::string reply = peer.receive(16 + 8);
    ASSERT_EQ(reply.size(), 24U);
    EXPECT_EQ(load<std::uint32_t>(as_bytes(reply).subspan(4)), status::ok);
    EXPECT_EQ(reply.substr(16), std::string(8, '\5'));
    answered.at(load<std::uint64_t>(as_bytes(reply).subspan(8))) = true;
  }
  EXPECT_EQ(std::ranges::count(answered, true), static_cast<std::ptrdiff_t>(requests));
  EXPECT_EQ(counts_.most, 4U);
}

// More bytes than the buffer of a connection has, in pieces that cut requests and their data anywhere.
TEST_F(NbdFront, WritesToMemoryAreMadeWhereTheyWereReceived) {
  const auto store = VolumeStore::open(std::make_unique<MemoryDirectory>(std::uint64_t{64} << 20), {});
  ASSERT_TRUE(store);
  constexpr std::uint32_t length = 8000;  // Not of whole blocks.
  constexpr std::uint32_t writes = 60;
  ASSERT_TRUE((*store)->create("v", 2 * std::uint64_t{writes} * 4096, false));
  start_with({}, [&](Loop& loop) {
    return std::make_unique<StoredExports>(loop, **store, StoredExportsOptions{.direct_bytes_max = length});
  });
  Peer peer(name_);
  peer.enter("v");
  const auto text = [](std::uint32_t number) { return std::string(length, static_cast<char>('a' + number % 26)); };
  std::string bytes;
  for (std::uint32_t i = 0; i < writes; ++i) bytes += Peer::request(command::write, i, length, i * length) + text(i);
  bytes += Peer::request(command::write, writes, length, 2 * std::uint64_t{writes} * 4096) + text(0);
  for (std::size_t sent = 0; sent < bytes.size(); sent += 999) peer.send(bytes.substr(sent, 999));
  for (std::uint32_t i = 0; i <= writes; ++i) {
    const std::string reply = peer.receive(16);
    ASSERT_EQ(reply.size(), 16U);
    EXPECT_EQ(load<std::uint32_t>(as_bytes(reply).subspan(4)), i < writes ? status::ok : status::no_space);
    EXPECT_EQ(load<std::uint64_t>(as_bytes(reply).subspan(8)), i) << "in the order of the requests";
  }
  peer.send(Peer::request(command::read, 0, writes * length));
  ASSERT_EQ(peer.receive(16).size(), 16U);
  for (std::uint32_t i = 0; i < writes; ++i) ASSERT_EQ(peer.receive(length), text(i)) << i;
}

// More requests than one connection may have in progress, and more bytes of replies than the socket takes at once.
TEST_F(NbdFront, ReadsOfMemoryAreAnsweredInOrderBehindTheWritesBeforeThem) {
  const auto store = VolumeStore::open(std::make_unique<MemoryDirectory>(std::uint64_t{64} << 20), {});
  ASSERT_TRUE(store);
  constexpr std::uint32_t length = 8000;  // Not of whole blocks.
  constexpr std::uint32_t rounds = 200;
  ASSERT_TRUE((*store)->create("v", 32768, false));
  start_with({.session = {.requests_in_flight_max = 24}}, [&](Loop& loop) {
    return std::make_unique<StoredExports>(loop, **store, StoredExportsOptions{.direct_bytes_max = length});
  });
  Peer peer(name_);
  peer.enter("v");
  const auto text = [](std::uint32_t number) { return std::string(length, static_cast<char>('a' + number % 26)); };
  std::thread sender([&] {
    std::string bytes;
    for (std::uint32_t i = 0; i < rounds; ++i) {
      const std::uint64_t offset = i % 7 * 1000;
      bytes += Peer::request(command::write, 2 * i, length, offset) + text(i);
      bytes += Peer::request(command::read, 2 * i + 1, length, offset);
    }
    for (std::size_t sent = 0; sent < bytes.size(); sent += 65536) peer.send(bytes.substr(sent, 65536));
  });
  for (std::uint32_t i = 0; i < rounds; ++i) {
    const std::string replies = peer.receive(16 + 16 + length);
    EXPECT_EQ(replies.size(), 16U + 16U + length);
    if (replies.size() != 16U + 16U + length) break;
    EXPECT_EQ(load<std::uint64_t>(as_bytes(replies).subspan(8)), 2 * i);
    EXPECT_EQ(load<std::uint64_t>(as_bytes(replies).subspan(24)), 2 * i + 1);
    EXPECT_TRUE(replies.substr(32) == text(i)) << i;
  }
  sender.join();
  ASSERT_TRUE((*store)->remove("v"));
  peer.send(Peer::request(command::read, 1, length) + Peer::request(command::disconnect, 2, 0));
  EXPECT_EQ(load<std::uint32_t>(as_bytes(peer.receive(17)).subspan(4)), status::io) << "and no data";
}

TEST_F(NbdFront, ErrorsOfTheDeviceAreReplies) {
  start({});
  Peer peer(name_);
  peer.enter();
  peer.send(Peer::request(command::write, 1, 3) + "abc");
  EXPECT_EQ(load<std::uint32_t>(as_bytes(peer.receive(16)).subspan(4)), status::no_space);
  peer.send(Peer::request(command::flush, 2, 0));
  EXPECT_EQ(load<std::uint32_t>(as_bytes(peer.receive(16)).subspan(4)), status::io);
  // The requests before a disconnect are answered.
  peer.send(Peer::request(command::read, 3, 1) + Peer::request(command::disconnect, 4, 0));
  EXPECT_EQ(peer.receive(18).size(), 17U);
}

// The client may have written the block anew over another connection.
TEST_F(NbdFront, ARequestThatWaitsIsNotBegunAfterItsClientHasGone) {
  start({.session = {.requests_in_flight_max = 1}});
  counts_.held = true;
  auto gone = std::make_unique<Peer>(name_);
  gone->enter();
  gone->send(Peer::request(command::read, 1, 1) + Peer::request(command::write, 2, 3) + "abc");
  while (counts_.most == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  gone.reset();
  while (!counts_.abandoned) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  counts_.held = false;
  front_->stop(std::chrono::seconds(10));
  EXPECT_EQ(counts_.writes, 0U);
}

TEST_F(NbdFront, ADeviceThatIsLostEndsItsConnections) {
  start({});
  Peer idle(name_);
  idle.enter();
  Peer peer(name_);
  peer.enter();
  peer.send(Peer::request(command::trim, 1, 4096));
  EXPECT_EQ(peer.receive(1).size(), 0U);
  EXPECT_EQ(idle.receive(1).size(), 0U);
}

TEST_F(NbdFront, ConnectionsBeyondTheLimitWait) {
  start({.connections_max = 1});
  auto first = std::make_unique<Peer>(name_);
  first->enter();
  Peer second(name_);
  first->send(Peer::request(command::read, 1, 1));
  EXPECT_EQ(first->receive(17).size(), 17U);
  EXPECT_FALSE(second.has_bytes());
  first.reset();
  second.enter();
}

TEST_F(NbdFront, AnIdleConnectionOfTheLargestClientEndsForOneThatWaits) {
  start({.connections_max = 2, .places = {.kept_per_client = 1, .idle_min = std::chrono::milliseconds(1)}});
  Peer first(name_);
  first.enter();
  counts_.held = true;
  Peer second(name_);
  second.enter();
  second.send(Peer::request(command::read, 1, 1));
  while (counts_.most == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Peer third(name_);
  third.enter();
  EXPECT_EQ(first.receive(1).size(), 0U) << "ended";
  counts_.held = false;
  EXPECT_EQ(second.receive(17).size(), 17U);
}

constexpr std::uint32_t front_mib = 1 << 20;

TEST_F(NbdFront, SilentClientsThatMakeMemoryWaitAreEnded) {
  start({.memory_bytes_max = payload_bytes_max,
         .memory_wait_max = std::chrono::milliseconds(5),
         .holder_silence_max = std::chrono::milliseconds(5)});
  Peer writer(name_);
  writer.enter();
  writer.send(Peer::request(command::write, 1, payload_bytes_max / 2));
  Peer reader(name_);
  reader.enter();
  reader.send(Peer::request(command::read, 1, payload_bytes_max / 2));
  EXPECT_EQ(reader.receive(1).size(), 1U);
  Peer other(name_);
  other.enter();
  other.send(Peer::request(command::read, 1, payload_bytes_max));
  EXPECT_EQ(writer.receive(1).size(), 0U) << "ended";
  EXPECT_EQ(other.receive(1).size(), 1U);
  EXPECT_LT(reader.receive(payload_bytes_max / 2).size(), payload_bytes_max / 2) << "ended";
}

// Without a silent one, the client ends that has most to move, and not the one with the largest request.
TEST_F(NbdFront, AClientThatMovesItsBytesIsNotEnded) {
  start({.memory_bytes_max = payload_bytes_max,
         .memory_wait_max = std::chrono::milliseconds(5),
         .holder_silence_max = std::chrono::hours(1)});
  Peer active(name_);
  active.enter();
  active.send(Peer::request(command::write, 1, 20 * front_mib) + std::string(19 * front_mib, 'x'));
  Peer idle(name_);
  idle.enter();
  idle.send(Peer::request(command::write, 1, 10 * front_mib));
  Peer other(name_);
  other.enter();
  other.send(Peer::request(command::read, 1, 8 * front_mib));
  EXPECT_EQ(idle.receive(1).size(), 0U) << "ended";
  EXPECT_EQ(other.receive(16 + 8 * front_mib).size(), 16 + 8 * front_mib);
  active.send(std::string(front_mib, 'x'));
  EXPECT_EQ(active.receive(16).size(), 16U);
}

TEST_F(NbdFront, ANegotiationIsEndedInTime) {
  start({.session = {.handshake_timeout = std::chrono::milliseconds(20)}});
  Peer peer(name_);
  EXPECT_EQ(peer.receive(19).size(), 18U) << "the greeting, and the end";
}

TEST(NbdListening, TheFileOfAnotherSocketStays) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "nbd";
  const std::string address = "unix:" + path.string();
  auto first = std::make_unique<Result<NbdListening>>(NbdListening::open(address));
  ASSERT_TRUE(*first);
  std::filesystem::remove(path);
  {
    const Result<NbdListening> second = NbdListening::open(address);
    ASSERT_TRUE(second);
    first.reset();
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

// As for the servers of the library, whose lock has the same name.
TEST(NbdListening, NoFileIsReplacedWhileAnotherServerStarts) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "nbd").string();
  const std::string lock = (folder.path() / ".nbd.starting").string();
  {
    const Result<NbdListening> killed = NbdListening::open("unix:" + path);
    ASSERT_TRUE(killed);
    std::filesystem::rename(path, path + "2");
  }
  std::filesystem::rename(path + "2", path);
  {
    const SocketDescriptor other(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
    const Result<NbdListening> refused = NbdListening::open("unix:" + path);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().text.find("locked " + lock), std::string::npos) << refused.error().text;
  }
  EXPECT_TRUE(NbdListening::open("unix:" + path));
}

// As systemd passes sockets.
TEST(NbdListening, APassedSocketKeepsItsAddressAndItsFile) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "nbd";
  for (const std::string& address : {"unix:" + path.string(), std::string("127.0.0.1:0"), std::string("[::1]:0")}) {
    const Result<NbdListening> original = NbdListening::open(address);
    ASSERT_TRUE(original) << address;
    const std::string passed = "fd:" + std::to_string(::dup(original->descriptor()));
    EXPECT_EQ(NbdListening::resolve(passed), original->address());
    const Result<NbdListening> listening = NbdListening::open(passed);
    ASSERT_TRUE(listening) << listening.error().text;
    EXPECT_EQ(listening->address(), original->address());
  }
  {
    const Result<NbdListening> original = NbdListening::open("unix:" + path.string());
    ASSERT_TRUE(original);
    ASSERT_TRUE(NbdListening::open("fd:" + std::to_string(::dup(original->descriptor()))));
    EXPECT_TRUE(std::filesystem::exists(path)) << "the file is that of the process that made the socket";
  }
  EXPECT_EQ(NbdListening::resolve("unix:/some/path"), "unix:/some/path");
}

TEST(NbdListening, WhatIsNotAPassedSocketIsAnError) {
  const TemporaryFolder folder;
  const Result<NbdListening> one = NbdListening::open("unix:" + (folder.path() / "nbd").string());
  ASSERT_TRUE(one);
  const int connecting = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const std::string number = std::to_string(one->descriptor());
  for (const std::string& address : {"fd:" + number + ',' + number, std::string("fd:"), "fd:" + number + 'x',
                                     "fd:" + std::to_string(connecting), std::string("fd:1000000")}) {
    const Result<NbdListening> wrong = NbdListening::open(address);
    ASSERT_FALSE(wrong) << address;
    EXPECT_NE(wrong.error().text.find(address), std::string::npos) << wrong.error().text;
  }
  ::close(connecting);
}

TEST_F(NbdFront, AStopEndsConnections) {
  start({});
  Peer negotiating(name_);
  Peer other(name_);
  other.enter();
  front_->stop(std::chrono::milliseconds(1));
  EXPECT_EQ(negotiating.receive(19).size(), 18U);
  EXPECT_EQ(other.receive(1).size(), 0U);
}

}  // namespace
}  // namespace hawser::block::nbd
