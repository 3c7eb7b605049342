// Calls over UCX when the peer, or its worker, disappears during them.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "hawser/rdma.h"
#include "hawser/runtime.h"
#include "hawser/transport/transport.h"
#include "tests/at_rest.h"
#include "tests/testing.h"
#include "transport/network.h"

namespace hawser::ucx_tests {

using namespace testing_tools;

inline std::string worked_at(std::string_view text) { return std::string(text); }

static TransportOptions over(UcxOptions options) { return {.enabled = {ucx(std::move(options))}, .retry_min = 200ms}; }

// Returns why UCX can't be used with these options; empty if it can. Loads UCX, which creates threads.
static std::string absent(const TransportOptions& options) {
  const Loop loop({.log = no_log()});
  for (const auto& transport : Runtime::process_default()->network()->transports(options)) {
    if (const auto end = transport->attach(const_cast<Loop&>(loop)); !end) return end.error().text;
  }
  return {};
}

// Returns null if the server can't be started.
static std::unique_ptr<Server> started(Loop& loop, const TransportOptions& transports) {
  ServerOptions options;
  options.transports = transports;
  auto server = std::make_unique<Server>(loop, std::move(options));
  server->register_handler<worked_at>();
  return server->start() ? std::move(server) : nullptr;
}

static unsigned port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

// Shuts down one of UCX's connected TCP sockets in this process: one that has `port` at neither end. Returns false if
// there is none.
static bool cut_one_but(unsigned port) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    sockaddr_storage own{};
    sockaddr_storage other{};
    socklen_t own_bytes = sizeof own;
    socklen_t other_bytes = sizeof other;
    if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0) continue;
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&other), &other_bytes) != 0) continue;
    if (port_of(own) == 0 || port_of(own) == port || port_of(other) == port) continue;
    return ::shutdown(descriptor, SHUT_RDWR) == 0;
  }
  return false;
}

struct Count {
  std::uint64_t begun = 0;
  std::uint64_t answered = 0;
  std::uint64_t unknown = 0;
  std::uint64_t not_sent = 0;
  std::uint64_t ended() const { return answered + unknown + not_sent; }
};

// Makes one call after another until `stop` is set, or until a call can't be sent any more.
static Task<void> call_on(Client& client, bool idempotent, Count& count, const bool& stop) {
  while (!stop) {
    ++count.begun;
    const std::string text = text_of(idempotent ? 200 : 150'000);
    const CallOptions reply_options{.timeout = patience, .idempotent = idempotent};
    auto reply = co_await client.call<worked_at>(reply_options, text);
    if (reply) {
      EXPECT_TRUE(*reply == text);
      ++count.answered;
    } else if (reply.error().code == ErrorCode::not_sent) {
      ++count.not_sent;
      co_return;
    } else {
      EXPECT_EQ(reply.error().code, ErrorCode::outcome_unknown) << reply.error().describe();
      ++count.unknown;
    }
  }
}

// Does the same with a large attachment in registered memory.
static Task<void> send_on(Client& client, const RegisteredBuffer& buffer, Count& count) {
  for (bool sent = true; sent;) {
    ++count.begun;
    const CallOptions reply_options{.timeout = patience, .attachment = buffer.memory()};
    auto reply = co_await client.call<worked_at>(reply_options, "with an attachment");
    count.answered += reply.has_value();
    sent = reply || reply.error().code != ErrorCode::not_sent;
    count.not_sent += !sent;
    count.unknown += !reply && sent;
  }
}

// Forked before anything else, so that the child has no threads of its parent.
class ServerProcess {
 public:
  explicit ServerProcess(const TransportOptions& transports) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) std::abort();
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      serve(transports, ends[1]);
    }
    ::close(ends[1]);
    for (char c = 0; ::read(ends[0], &c, 1) == 1 && c != '\n';) address_ += c;
    ::close(ends[0]);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  ~ServerProcess() { kill(); }

  const std::string& address() const { return address_; }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = -1;
  }

 private:
  [[noreturn]] static void serve(const TransportOptions& transports, int to) {
    Loop loop({.log = no_log()});
    const std::unique_ptr<Server> server = started(loop, transports);
    if (server == nullptr) ::_exit(1);
    const std::string line = server->address() + "\n";
    if (::write(to, line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::_exit(1);
    for (;;) loop.run(loop.sleep(1s, {}));
  }

  pid_t process_ = -1;
  std::string address_;
};

class KilledServer : public ::testing::TestWithParam<UcxOptions> {};

// The outcome of each call in flight is unknown, idempotent calls end too, and later calls are not sent.
TEST_P(KilledServer, EveryCallEnds) {
  const TransportOptions transports = over(GetParam());
  if (::dlopen("libucp.so.0", RTLD_NOW | RTLD_NOLOAD) != nullptr) {
    GTEST_SKIP() << "UCX is in this process already and does not survive a fork: run one test a process, as ctest does";
  }
  ServerProcess server(transports);
  if (const std::string why = absent(transports); !why.empty()) GTEST_SKIP() << why;
  Loop loop({.log = no_log()});
  loop.run([](Loop& on, ServerProcess& peer, TransportOptions with) -> Task<void> {
    // Without this error mode, UCX keeps operations towards a lost peer until its worker is destroyed.
    const bool lets_go = GetParam().error_mode == UcxErrorMode::peer;
    ClientOptions options;
    options.transports = std::move(with);
    Client client(on, std::move(options));
    auto connected = co_await client.connect(peer.address());
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "ucx") << (client.fallback_reasons().empty() ? ""
                                                                               : client.fallback_reasons()[0].reason);
    Count count;
    const bool stop = false;
    Scope scope;
    for (int i = 0; i < 8; ++i) scope.spawn(call_on(client, i % 2 == 0, count, stop));
    Count with_attachments;
    Result<RegisteredBuffer> buffer = RegisteredBuffer::allocate(client, std::size_t{1} << 20);
    REQUIRE_OK(buffer);
    for (int i = 0; i < 4; ++i) scope.spawn(send_on(client, *buffer, with_attachments));
    auto busy = co_await eventually(on, [&] { return count.answered > 100 && with_attachments.answered > 100; });
    EXPECT_TRUE(busy);
    EXPECT_GE(rdma_counters(client).at(0).buffer_sends, with_attachments.answered);
    peer.kill();
    co_await scope.join();
    EXPECT_EQ(count.ended(), count.begun);
    EXPECT_EQ(with_attachments.ended(), with_attachments.begun);
    if (lets_go) {
      auto free = co_await eventually(on, [&] { return !buffer->in_use(); });
      EXPECT_TRUE(free);
    }
    EXPECT_EQ(count.not_sent, 8U) << "each goes on until it is told that nobody is there";
    auto gone = co_await eventually(on, [&] { return !client.connected(); });
    EXPECT_TRUE(gone);
  }(loop, server, transports));
}

INSTANTIATE_TEST_SUITE_P(
    Ucx, KilledServer,
    ::testing::Values(
        UcxOptions{.tls = "tcp", .error_mode = UcxErrorMode::none, .wire_up = UcxWireUp::worker_address},
        UcxOptions{.tls = "tcp", .error_mode = UcxErrorMode::peer},
        UcxOptions{.tls = "posix,cma,self", .error_mode = UcxErrorMode::none, .wire_up = UcxWireUp::worker_address}),
    [](const auto& one) {
      return one.param.tls.substr(0, one.param.tls.find(',')) +
             (one.param.error_mode == UcxErrorMode::peer ? "_error_mode_peer" : "");
    });

// From 32 KiB if UCX can access the memory directly. Over TCP, from the size at which payloads are sent separately
// anyway.
class RegisteredPayloads : public ::testing::TestWithParam<std::string> {};

TEST_P(RegisteredPayloads, AreFetchedFromWhereTheyLie) {
  const bool reaches = GetParam() != "tcp";
  const UcxOptions ucx{.tls = GetParam(), .error_mode = UcxErrorMode::none, .wire_up = UcxWireUp::worker_address};
  const TransportOptions transports = over(ucx);
  if (const std::string why = absent(transports); !why.empty()) GTEST_SKIP() << why;
  Loop loop({.log = no_log()});
  const std::unique_ptr<Server> server = started(loop, transports);
  ASSERT_NE(server, nullptr);
  const auto expected = [&](std::size_t bytes) {
    return bytes >= (reaches ? ucx.registered_bytes_min : ucx.rendezvous_bytes_min);
  };
  loop.run([](std::string address, TransportOptions with, const auto& fetched) -> Task<void> {
    ClientOptions options;
    options.transports = std::move(with);
    Client client(*Loop::current(), std::move(options));
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    REQUIRE(client.transport() == "ucx");
    Result<RegisteredBuffer> buffer = RegisteredBuffer::allocate(client, std::size_t{1} << 20);
    REQUIRE_OK(buffer);
    std::uint64_t sends = 0;
    for (const std::size_t bytes : {4UL << 10, (32UL << 10) - 1, 32UL << 10, (128UL << 10) - 1, 128UL << 10}) {
      const CallOptions reply_options{.attachment = buffer->memory().first(bytes)};
      auto reply = co_await client.call<worked_at>(reply_options, "with an attachment");
      EXPECT_OK(reply);
      sends += fetched(bytes);
      EXPECT_EQ(rdma_counters(client).at(0).buffer_sends, sends) << bytes;
    }
    // Ordinary memory is never registered.
    const std::string text = text_of(std::size_t{1} << 20);
    const CallOptions reply_options{.attachment = as_bytes(text)};
    auto reply = co_await client.call<worked_at>(reply_options, "with an attachment");
    EXPECT_OK(reply);
    EXPECT_EQ(rdma_counters(client).at(0).buffer_sends, sends);
  }(server->address(), transports, expected));
  loop.run(reach_rest(loop, *server));
}

INSTANTIATE_TEST_SUITE_P(Ucx, RegisteredPayloads, ::testing::Values("tcp", "posix,cma,self"),
                         [](const auto& one) { return one.param.substr(0, one.param.find(',')); });

// The server lives and UCX is cut off: calls continue over TCP, and return to UCX. All idempotent calls succeed, no
// other call is sent twice.
TEST(Ucx, ABrokenWorkerIsLeftForTcpAndComeBackTo) {
  const TransportOptions transports =
      over({.tls = "tcp", .error_mode = UcxErrorMode::peer, .wire_up = UcxWireUp::worker_address});
  if (const std::string why = absent(transports); !why.empty()) GTEST_SKIP() << why;
  Loop loop({.log = no_log()});
  const std::unique_ptr<Server> server = started(loop, transports);
  ASSERT_NE(server, nullptr);
  loop.run([](Loop& on, Server& served, TransportOptions with) -> Task<void> {
    const std::string address = served.address();
    ClientOptions options;
    options.transports = std::move(with);
    Client client(on, std::move(options));
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    REQUIRE(client.transport() == "ucx");
    Count count;
    bool stop = false;
    Scope scope;
    for (int i = 0; i < 8; ++i) scope.spawn(call_on(client, i % 2 == 0, count, stop));
    auto busy = co_await eventually(on, [&] { return count.answered > 100; });
    EXPECT_TRUE(busy);
    EXPECT_TRUE(cut_one_but(static_cast<unsigned>(std::atoi(address.c_str() + address.rfind(':') + 1))));
    auto moved = co_await eventually(on, [&] { return client.transport() == "tcp"; });
    EXPECT_TRUE(moved);
    const std::uint64_t answered_by_then = count.answered;
    auto goes_on = co_await eventually(on, [&] { return count.answered > answered_by_then + 100; });
    EXPECT_TRUE(goes_on);
    auto back = co_await eventually(on, [&] { return client.transport() == "ucx"; });
    EXPECT_TRUE(back) << (client.fallback_reasons().empty() ? "" : client.fallback_reasons()[0].reason);
    stop = true;
    co_await scope.join();
    EXPECT_EQ(count.ended(), count.begun);
    EXPECT_EQ(count.not_sent, 0U);
    EXPECT_LE(count.unknown, 4U) << "at most what was under way and is not idempotent";
    EXPECT_GE(client.failovers(), 2U);
  }(loop, *server, transports));
  loop.run(reach_rest(loop, *server));
}

// ---- Memory ----

// A client on a loop of its own.
static Task<void> connect_and_call(std::string address, const TransportOptions& transports) {
  Client client({.transports = transports});
  const auto connected = co_await client.connect(address);
  REQUIRE_OK(connected);
  const auto reply = co_await client.call<worked_at>(std::string(100'000, 'x'));
  EXPECT_OK(reply);
}

// Each loop has a worker of UCX.
TEST(UcxMemory, WorkersThatAreDestroyedKeepNone) {
#ifdef HAWSER_SANITIZED
  GTEST_SKIP() << "mallinfo2() does not count what the allocator of a sanitizer allocates";
#endif
  TransportOptions transports = over({});
  if (const std::string why = absent(transports); !why.empty()) GTEST_SKIP() << why;
  transports.required = "ucx";
  Server server({.listen = "127.0.0.1:0", .loop = {.log = no_log()}, .transports = over({})});
  server.register_handler<worked_at>();
  ASSERT_TRUE(server.start());
  const auto allocated = [] {
    const struct mallinfo2 info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  for (int i = 0; i < 3; ++i) sync_wait(connect_and_call(server.address(), transports));
  const std::size_t before = allocated();
  for (int i = 0; i < 16; ++i) sync_wait(connect_and_call(server.address(), transports));
  // A worker may exist for some time after its loop.
  EXPECT_TRUE(soon([&] { return allocated() < before + (std::size_t{16} << 20); })) << allocated() - before;
}

}  // namespace hawser::ucx_tests
