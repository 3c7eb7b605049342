// Tests of a peer that is not what it claims, or whose memory does not answer, and of both sides when a process forks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "transport/shm/helpers.h"
#include "transport/shm/memory/slab.h"
#include "transport/shm/test/hostile_testing.h"

namespace hawser::transport::shm {
namespace {

constexpr uid_t nobody = 65534;

// Runs `what` in a child and returns the child's exit status; 99 if a signal ended it.
template <class F>
int in_child(F what) {
  const pid_t child = fork();
  if (child == 0) _exit(what());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

void offer_read(HostileClient& client, const void* where, std::uint32_t bytes) {
  ReadSlot& slot = client.control().reads[client_side][0];
  slot.count.store(1);
  slot.pieces[0].address.store(reinterpret_cast<std::uintptr_t>(where));
  slot.pieces[0].bytes.store(bytes);
  slot.state.store(read_offered);
  client.put(0, {RingRecordKind::read, 16, bytes, 0});
  client.publish(32);
}
std::atomic<std::uint32_t>& read_state(HostileClient& client) { return client.control().reads[client_side][0].state; }

template <class F>
bool until(HostileClient& client, F condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition() && std::chrono::steady_clock::now() < end) client.turns(1);
  return condition();
}

// Copies the parts that the server requests, like an honest sender.
bool fill_parts(HostileClient& client, const std::string& payload) {
  for (std::size_t at = 0; at < payload.size(); at += part_bytes) {
    if (!until(client, [&] { return read_state(client).load() == read_wanted; })) return false;
    std::memcpy(client.memory->part(client_side), payload.data() + at, std::min(part_bytes, payload.size() - at));
    read_state(client).store(read_filled);
  }
  return until(client, [&] { return read_state(client).load() == read_done; });
}

// Memory whose first access blocks until resolve(), like memory of a file system that does not answer.
class HangingMemory {
 public:
  explicit HangingMemory(std::size_t size)
      : bytes((size + system_page_bytes() - 1) / system_page_bytes() * system_page_bytes()),
        descriptor_(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC))) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uffdio_api api{};
    api.api = UFFD_API;
    uffdio_register range{};
    range.range = {reinterpret_cast<std::uintptr_t>(data), bytes};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    works = descriptor_.valid() && ioctl(descriptor_.get(), UFFDIO_API, &api) == 0 &&
            ioctl(descriptor_.get(), UFFDIO_REGISTER, &range) == 0;
  }
  ~HangingMemory() {
    resolve();
    munmap(data, bytes);
  }
  // True if a reader is blocked now.
  bool is_touched() {
    if (touched_) return true;
    uffd_msg message{};
    fcntl(descriptor_.get(), F_SETFL, O_NONBLOCK);
    return touched_ = read(descriptor_.get(), &message, sizeof message) == sizeof message;
  }
  void resolve() { descriptor_ = Descriptor(); }

  const std::size_t bytes;
  void* data = nullptr;
  bool works = false;

 private:
  Descriptor descriptor_;
  bool touched_ = false;
};

// ---- Identity of the peer ----

// A client that names the server's own memory gets none of its bytes: a process does not read itself.
TEST(ShmForged, TheServerDoesNotReadItself) {
  HostileClient client({}, std::size_t{1} << 20, OwnProcess::copy);
  ASSERT_TRUE(client.answer().has_value());
  client.open();
  EXPECT_EQ(client.control().sides[server_side].reads.load(), 0U);
  const std::string secret(100'000, 's');
  std::string received;
  client.sink.on_each = [&](const Message& message) { received = TransportSink::text_of(message.payload); };
  offer_read(client, secret.data(), static_cast<std::uint32_t>(secret.size()));
  const std::string sent(secret.size(), 'p');
  ASSERT_TRUE(fill_parts(client, sent));
  ASSERT_TRUE(until(client, [&] { return client.sink.count.load() == 1; }));
  EXPECT_TRUE(received == sent) << "what the peer itself has copied";
}

TEST(ShmForged, AnotherUserIsNamedAndRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs to change the user";
  HostileClient client;
  const int memory = client.memory->fd();
  std::array<int, 2> go{};
  ASSERT_EQ(pipe2(go.data(), O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(nobody) != 0) _exit(2);
    const auto bell = meet(client.selection.socket, client.selection.secret, memory);
    const char byte = bell ? '1' : '0';
    if (write(go[1], &byte, 1) != 1) _exit(3);
    pause();
  }
  char met = 0;
  ASSERT_EQ(read(go[0], &met, 1), 1);
  EXPECT_EQ(met, '1');
  const Result<void> answered = client.answer_only();
  ASSERT_FALSE(answered.has_value());
  EXPECT_NE(answered.error().text.find("65534"), std::string::npos) << answered.error().text;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(go[0]);
  close(go[1]);
}

int ptrace_scope() {
  int scope = 0;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  return scope;
}

// The kernel decides whether a peer is read. A peer that may not be read is not an error.
void expect_kernels_answer_for_dumpable() {
  // With scope 2 and above, Yama refuses every process without CAP_SYS_PTRACE.
  const bool allowed = ptrace_scope() < 2;
  for (const bool dumpable : {true, false}) {
    const int status = in_child([dumpable, allowed] {
      if (setuid(nobody) != 0) return 2;
      prctl(PR_SET_DUMPABLE, 1);
      prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
      auto socket = MeetingSocket::listen();
      Helpers helpers;
      std::array<int, 2> met{};
      if (!socket || pipe2(met.data(), O_CLOEXEC) != 0) return 3;
      const Token secret{};
      const pid_t peer = fork();
      if (peer == 0) {
        prctl(PR_SET_DUMPABLE, dumpable ? 1 : 0);
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
        const auto memory = SharedMemory::create({ring_bytes_min, 0}, false);
        const auto bell = meet(socket->name(), secret, (*memory)->fd());
        if (!bell || write(met[1], "1", 1) != 1) _exit(2);
        pause();
      }
      char byte = 0;
      if (read(met[0], &byte, 1) != 1) return 4;
      const auto arrival = socket->accept(secret, helpers);
      if (!arrival || arrival->peer.pid != peer) return 5;
      const bool readable = PeerProcess(arrival->peer, arrival->bell).may_be_read();
      kill(peer, SIGKILL);
      waitpid(peer, nullptr, 0);
      const bool dead = !PeerProcess(arrival->peer, arrival->bell).may_be_read();
      return !dead ? 6 : readable == (dumpable && allowed) ? 0 : 7;
    });
    EXPECT_EQ(status, 0) << (dumpable ? "dumpable" : "not dumpable") << ", ptrace_scope is " << ptrace_scope();
  }
}

// Neither process is an ancestor of the other.
void expect_kernels_answer_for_strangers() {
  const int scope = ptrace_scope();
  const int status = in_child([scope] {
    if (setuid(nobody) != 0) return 2;
    prctl(PR_SET_DUMPABLE, 1);
    const auto socket = MeetingSocket::listen();
    std::array<int, 2> met{};
    if (!socket || pipe2(met.data(), O_CLOEXEC) != 0) return 3;
    // When its parent ends, the grandchild is no longer a descendant of this process.
    const pid_t between = fork();
    if (between == 0) {
      if (fork() != 0) _exit(0);
      prctl(PR_SET_DUMPABLE, 1);
      const auto memory = SharedMemory::create({ring_bytes_min, 0}, false);
      const auto bell = meet(socket->name(), {}, (*memory)->fd());
      if (!bell || write(met[1], "1", 1) != 1) _exit(2);
      sleep(60);
      _exit(0);
    }
    waitpid(between, nullptr, 0);
    char byte = 0;
    if (read(met[0], &byte, 1) != 1) return 4;
    Helpers helpers;
    const auto arrival = socket->accept({}, helpers);
    if (!arrival) return 5;
    const bool readable = PeerProcess(arrival->peer, arrival->bell).may_be_read();
    kill(arrival->peer.pid, SIGKILL);
    return readable == (scope == 0) ? 0 : 6;
  });
  EXPECT_EQ(status, 0) << "ptrace_scope is " << scope;
}

TEST(ShmForged, TheKernelDecidesWhetherAPeerIsRead) {
  if (geteuid() != 0) GTEST_SKIP() << "needs to change the user";
  expect_kernels_answer_for_dumpable();
  expect_kernels_answer_for_strangers();
}

// Runs in the guest only: the setting is that of the whole machine, and 3 remains until the machine is restarted.
TEST(ShmForged, EachYamaScopeDecidesWhetherAPeerIsRead) {
  if (std::getenv("HAWSER_RDMA_GUEST") == nullptr) GTEST_SKIP() << "sets kernel.yama.ptrace_scope of the machine";
  for (int scope = 0; scope <= 3; ++scope) {
    std::ofstream("/proc/sys/kernel/yama/ptrace_scope") << scope;
    ASSERT_EQ(ptrace_scope(), scope);
    expect_kernels_answer_for_dumpable();
    expect_kernels_answer_for_strangers();
  }
}

// Containers must share the network namespace, and nothing else.
TEST(ShmForged, OnlyTheNetworkNamespaceMustBeShared) {
  const struct {
    const char* what;
    int flags;
    bool meets;
  } cases[] = {{"nothing", 0, true},
               {"mounts, IPC and names", CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS, true},
               {"process numbers", CLONE_NEWPID, true},
               {"network", CLONE_NEWNET, false}};
  for (const auto& one : cases) {
    HostileClient client;
    const Result<HostIdentity> here = HostIdentity::here();
    const int status = in_child([&] {
      if (one.flags != 0 && unshare(one.flags) != 0) return 77;
      // A new PID namespace takes effect for children only.
      return in_child([&] {
        const Result<HostIdentity> there = HostIdentity::here();
        if (!there || (*there == *here) != one.meets) return 2;
        return meet(client.selection.socket, client.selection.secret, client.memory->fd()).has_value() == one.meets ? 0
                                                                                                                    : 3;
      });
    });
    if (status == 77) GTEST_SKIP() << "may not make namespaces: " << one.what;
    EXPECT_EQ(status, 0) << one.what;
    EXPECT_EQ(client.answer_only().has_value(), one.meets) << one.what;
  }
}

// ---- Memory that does not answer ----

TEST(ShmForged, MemoryThatHangsIsCopiedInstead) {
  HangingMemory memory(200'000);
  if (!memory.works) GTEST_SKIP() << "no userfaultfd for kernel faults here";
  HostileClient client;
  ASSERT_TRUE(client.answer().has_value());
  client.open();
  std::string received;
  client.sink.on_each = [&](const Message& message) { received = TransportSink::text_of(message.payload); };
  offer_read(client, memory.data, 200'000);
  ASSERT_TRUE(until(client, [&] { return memory.is_touched(); })) << "a helper thread reads, and the loop turns";
  const std::string sent = test_bytes(200'000, 1);
  ASSERT_TRUE(fill_parts(client, sent));
  ASSERT_TRUE(until(client, [&] { return client.sink.count.load() == 1; }));
  EXPECT_TRUE(received == sent);
  EXPECT_EQ(client.control().sides[server_side].reads.load(), 0U) << "this peer's memory is read no more";
  // The bytes that the helper reads at last are dropped.
  memory.resolve();
  client.turns();
  EXPECT_TRUE(client.sink.closed.empty());
}

// The destination may be revoked while a helper thread reads: with the connection, or because the call was cancelled.
TEST(ShmForged, TheDestinationMayGoWhileItIsRead) {
  for (const bool cancelled : {true, false}) {
    for (const bool given : {true, false}) {
      HangingMemory memory(300'000);
      if (!memory.works) GTEST_SKIP() << "no userfaultfd for kernel faults here";
      HostileClient client;
      ASSERT_TRUE(client.answer().has_value());
      client.open();
      auto place = std::make_unique<std::vector<std::byte>>(300'000);
      std::byte* const where = place->data();
      client.sink.where = [&](Bytes, std::size_t) {
        return given ? ReceiveBuffer{ReceiveBuffer::Kind::given, MutableBytes(*place)} : ReceiveBuffer{};
      };
      bool discarded = false;
      client.sink.on_each = [&](const Message& message) { discarded = message.discarded; };
      offer_read(client, memory.data, 300'000);
      ASSERT_TRUE(until(client, [&] { return memory.is_touched(); }));
      if (cancelled) {
        client.loop.on([&] { client.connection->revoke_receive_buffer(where); });
      } else {
        client.loop.on([&] { client.connection.reset(); });
      }
      place.reset();
      memory.resolve();
      if (cancelled) {
        ASSERT_TRUE(until(client, [&] { return client.sink.count.load() == 1; }));
        EXPECT_EQ(discarded, given);
      }
    }
  }
}

// The number of blocked helpers is limited. A payload that finds no free helper is copied at once.
TEST(ShmForged, HelpersThatHangAreBounded) {
  Helpers helpers;
  std::atomic<int> running{0};
  std::atomic<bool> go{false};
  const auto hang = [&] {
    running.fetch_add(1);
    while (!go.load()) usleep(1000);
    running.fetch_sub(1);
  };
  EXPECT_TRUE(helpers.start(1, hang));
  EXPECT_TRUE(helpers.start(1, hang));
  EXPECT_FALSE(helpers.start(1, hang)) << "two for one peer";
  EXPECT_TRUE(helpers.start(2, hang));
  EXPECT_TRUE(helpers.start(3, hang));
  EXPECT_FALSE(helpers.start(4, hang)) << "four in all";
  while (running.load() != 4) usleep(100);
  go.store(true);
  while (running.load() != 0) usleep(100);
  go.store(false);
  bool again = false;
  for (int i = 0; i < 10'000 && !again; ++i) {
    again = helpers.start(4, hang);
    usleep(1000);
  }
  EXPECT_TRUE(again);
  go.store(true);
  while (running.load() != 0) usleep(100);
}

// ---- Changes by a peer during a wait ----

TEST(ShmForged, ARecordThatGrowsWhileItsPlaceWaitsIsAProtocolViolation) {
  HostileClient client;
  ASSERT_TRUE(client.answer().has_value());
  client.open();
  std::vector<std::byte> place(20'000);
  client.sink.where = [&](Bytes, std::size_t bytes) {
    EXPECT_EQ(bytes, 20'000U);
    client.connection->pause();
    return ReceiveBuffer{ReceiveBuffer::Kind::given, MutableBytes(place)};
  };
  client.put(0, {RingRecordKind::slab, 16, 20'000, 0});
  client.publish(32);
  ASSERT_TRUE(until(client, [&] { return client.sink.selected == 1; }));
  client.put(0, {RingRecordKind::slab, 16, 1'000'000, 0});
  client.loop.on([&] { client.connection->resume(); });
  ASSERT_TRUE(until(client, [&] { return !client.sink.closed.empty(); }));
  EXPECT_EQ(client.sink.closed[0].code, ErrorCode::protocol_error);
  EXPECT_EQ(client.sink.count.load(), 0U);
}

TEST(ShmForged, ADoorbellThatIsClosedEndsTheConnection) {
  HostileClient client;
  ASSERT_TRUE(client.answer().has_value());
  client.open();
  client.turns();
  client.bell.reset();
  ASSERT_TRUE(until(client, [&] { return !client.sink.closed.empty(); }));
  EXPECT_EQ(client.sink.closed[0].code, ErrorCode::unavailable);
}

// ---- End ----

TEST(ShmWorker, CloseWithAFullRingEndsThePeer) {
  TransportPair pair({.name = "full", .make = [] { return make_shm_transport({.ring_bytes = 64 * 1024}); }});
  ASSERT_TRUE(pair.establish());
  pair.server.on([&] { pair.server.connection->pause(); });
  const std::string head(16, 'h');
  constexpr std::size_t fill = 64 * 1024 / 32;
  pair.client.on([&] {
    for (std::size_t i = 0; i < fill; ++i) ASSERT_TRUE(pair.client.send(head));
    pair.client.connection->close();
  });
  pair.client.loop->rest();
  EXPECT_TRUE(pair.server.sink.closed.empty());
  pair.server.on([&] { pair.server.connection->resume(); });
  ASSERT_TRUE(pair.server.until_closed());
  EXPECT_EQ(pair.server.sink.count.load(), fill);
  EXPECT_TRUE(pair.client.until_closed());
}

// ---- fork() ----

// A child of a process has copies of its connections. The parent's connections continue, whatever the child does with
// the copies.
TEST(ShmFork, AChildsCopiesTouchNothing) {
  TransportPair pair({.name = "fork", .make = [] { return make_shm_transport({}, OwnProcess::read); }});
  ASSERT_TRUE(pair.establish());
  pair.server.sink.keep = true;
  const std::string kept = test_bytes(100'000, 1);
  pair.client.on([&] { ASSERT_TRUE(pair.client.send("kept", kept)); });
  ASSERT_TRUE(pair.server.until_received(1));
  // It is offered to be read, and still offered in the child.
  const std::string large = test_bytes(2'000'000, 2);
  TransportCompletion owner;
  pair.server.on([&] { pair.server.connection->pause(); });
  pair.client.on([&] { ASSERT_TRUE(pair.client.send("large", large, &owner)); });
  const int status = in_child([&] {
    int wrong = 0;
    for (TransportSide* side : {&pair.client, &pair.server}) {
      side->sink.kept.clear();
      side->connection->resume();
      side->connection->flush();
      if (side->connection->reserve(16) != nullptr) wrong = 1;
      side->connection->close();
      side->connection->abort();
      side->connection.reset();
    }
    return wrong;
  });
  EXPECT_EQ(status, 0);
  pair.server.on([&] { pair.server.connection->resume(); });
  ASSERT_TRUE(pair.server.until_received(2));
  // If the child had returned the region, this payload would be written to it.
  const std::string other = test_bytes(100'000, 3);
  pair.client.on([&] { ASSERT_TRUE(pair.client.send("other", other)); });
  ASSERT_TRUE(pair.server.until_received(3));
  pair.server.on([&] {
    EXPECT_TRUE(pair.server.sink.kept[1].text() == kept);
    EXPECT_TRUE(pair.server.sink.messages[1].payload == large);
    EXPECT_TRUE(pair.server.sink.messages[2].payload == other);
    EXPECT_TRUE(pair.server.sink.closed.empty());
    ASSERT_TRUE(pair.server.send("back", std::string_view()));
  });
  EXPECT_TRUE(pair.client.until_received(1));
  EXPECT_TRUE(pair.client.sink.closed.empty());
  EXPECT_TRUE(pair.client.until([&] { return owner.notified.load() == 1; }));
}

// ---- Strict memory accounting ----

TEST(ShmStrict, RingsAreSuppliedBeforeTheyAreTouched) {
  const Sizes sizes{ring_bytes_min, std::size_t{1} << 20};
  const auto supplied = [&](const SharedMemory& memory) {
    std::vector<unsigned char> pages((sizes.total() + sizes.page - 1) / sizes.page);
    EXPECT_EQ(mincore(&memory.control(), sizes.total(), pages.data()), 0);
    std::size_t count = 0;
    for (const unsigned char page : pages) count += page & 1U;
    return count * sizes.page;
  };
  const auto lazy = *SharedMemory::create(sizes, false);
  EXPECT_EQ(supplied(*lazy), 0U);
  const auto strict = *SharedMemory::create(sizes, true);
  if (supplied(*strict) == 0) GTEST_SKIP() << "this kernel has no MADV_POPULATE_WRITE";
  EXPECT_EQ(supplied(*strict), sizes.slab_at(server_side));
  SlabWriter writer(*strict, server_side);
  EXPECT_EQ(writer.acquire(100'000), 0U);
  EXPECT_EQ(supplied(*strict), sizes.slab_at(server_side) + 7 * chunk_bytes_min);
}

}  // namespace
}  // namespace hawser::transport::shm
