#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/tcp.h>
#include <linux/tls.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/tls/kernel_module.h"
#include "tests/tls/kernel_peer.h"

// Peers that are slow, end early, or demand small records, also while the kernel encrypts.
namespace hawser {
namespace {

using namespace testing_tools;
using security::tls::TlsSession;

// The body has as many bytes as the query says.
Task<HttpResponse> large(HttpRequest& request) {
  HttpResponse response;
  response.body = std::string(std::stoul(std::string(request.query())), 'x');
  co_return response;
}

class KernelEdges : public TlsFixture {
 protected:
  void serve(TlsKernel kernel) {
    tls_options.kernel = kernel;
    if (tls_options.certificates.empty()) tls_options.certificates = {authority.issue("server")};
    security = std::make_unique<TlsServer>(tls_options);
    options.security = *security;
    server = std::make_unique<Server>(options);
    server->register_handler<echo>();
    HttpOptions over_http;
    // Dozens of handshakes precede the time in which a peer takes what it is sent.
    over_http.half_closed_timeout = over_http.write_timeout = over_http.idle_timeout = 20 * patience;
    server->enable(http(over_http).route("GET", "/hello", hello).route("GET", "/large", large));
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  std::unique_ptr<OpensslEnd> connect(int receive_buffer_bytes = 0) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer_bytes != 0) {
      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port())));
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    security::tls::ContextOptions of_peer{.ca_file = authority.ca_file(), .peer_certificate_bytes_max = 32 * 1024};
    auto end = std::make_unique<OpensslEnd>(fd, std::make_unique<TlsSession>(load(of_peer), "localhost", "", nullptr));
    EXPECT_TRUE(end->handshake()) << end->session().error().text;
    return end;
  }
  // Connections that take nothing for longer than the server waits for their ends. The sizes are such that some replies
  // fit into the sockets but for their last bytes.
  void all_is_received(TlsKernel kernel) {
    serve(kernel);
    for (const bool half_closed : {false, true}) {
      std::vector<std::unique_ptr<OpensslEnd>> ends;
      for (std::size_t size = 400'000; size < 900'000; size += 16'000) {
        ends.push_back(connect(8192));
        ends.back()->send("GET /large?" + std::to_string(size) + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        if (!half_closed) continue;
        ends.back()->receive_some();
        ends.back()->session().shut_down();
        ends.back()->flush();
        shutdown(ends.back()->fd(), SHUT_WR);
      }
      std::this_thread::sleep_for(1500ms);
      std::size_t size = 400'000;
      for (const std::unique_ptr<OpensslEnd>& end : ends) {
        const std::string all = end->receive_all();
        EXPECT_GE(all.size() + (half_closed ? 16'384 : 0), size) << half_closed;
        EXPECT_EQ(end->end(), TlsSession::Read::closed) << size << " " << half_closed;
        size += 16'000;
      }
    }
  }
};

class KernelEdgesInRdmaGuest : public KernelEdges {
 protected:
  void SetUp() override {
    if (kernel_lacks_tls()) GTEST_SKIP() << "the kernel has no module tls";
    ASSERT_EQ(security::tls::examine_kernel().problem, "");
  }
};

// From now on, system calls of this thread, and of those that it starts, are treated by `action` if they have this
// number and these second and third arguments.
bool filter_calls(unsigned number, unsigned second, unsigned third, unsigned action) {
  const auto argument = [](unsigned index) {
    return static_cast<unsigned>(offsetof(seccomp_data, args) + sizeof(std::uint64_t) * index);
  };
  std::array<sock_filter, 8> code = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 5),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(1)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(2)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, third, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, action),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{code.size(), code.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

std::atomic<int> trials_on_loops{0};
std::atomic<int> trials_elsewhere{0};

void on_trial(int, siginfo_t*, void*) { ++(Loop::current() != nullptr ? trials_on_loops : trials_elsewhere); }

// The trial may load modules, for seconds.
TEST_F(KernelEdges, ALoopThatStartsAServerDoesNotTryTheKernelItself) {
  struct sigaction action{};
  struct sigaction before{};
  action.sa_sigaction = on_trial;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSYS, &action, &before);
  trials_on_loops = trials_elsewhere = 0;
  tls_options.kernel = TlsKernel::automatic;
  tls_options.certificates = {authority.issue("server")};
  std::thread([&] {
    ASSERT_TRUE(filter_calls(__NR_setsockopt, IPPROTO_TCP, TCP_ULP, SECCOMP_RET_TRAP));
    Loop loop(options.loop);
    options.security = TlsServer(tls_options);
    Server served(loop, options);
    served.register_handler<echo>();
    loop.run([&]() -> Task<void> {
      const Result<void> started = served.start();
      EXPECT_TRUE(started) << error_of(started);
      const Time end = loop.after(patience);
      while (trials_elsewhere == 0 && loop.now() < end) {
        co_await loop.sleep(1ms);
      }
      co_await served.shut_down(1s);
    }());
  }).join();
  sigaction(SIGSYS, &before, nullptr);
  EXPECT_EQ(trials_on_loops, 0);
  EXPECT_GE(trials_elsewhere, 1);
}

TEST_F(KernelEdges, WantOfDescriptorsIsNoPropertyOfTheKernel) {
  // A sanitizer needs two descriptors to examine a type that it sees for the first time, and a trial needs three. Types
  // that are seen only during a trial are seen before.
  security::tls::TlsShared({.kernel = TlsKernel::required}, forever, 1, 16).examine_kernel();
  security::tls::TlsShared shared({.kernel = TlsKernel::required}, forever, 1, 16);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int lowest = ::dup(STDERR_FILENO);
  ASSERT_GE(lowest, 0);
  ::close(lowest);
  const rlimit few{static_cast<rlim_t>(lowest) + 2, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  shared.examine_kernel();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_HAS(shared.kernel_support()->problem, "(Too many open files): it is tried again");
  shared.examine_kernel();
  EXPECT_EQ(shared.kernel_support()->problem, security::tls::examine_kernel().problem);
}

// The interface lo of this thread's network passes one packet, and then a byte a second, so that an answer takes more
// than a minute. Where Linux drops a packet itself, it gives up after 6 s, which the test would not notice.
TEST_F(KernelEdges, ATrialEndsThoughTheHostDropsItsPackets) {
  bool there = false;
  security::tls::TlsShared shared({.kernel = TlsKernel::automatic}, forever, 1, 16);
  const auto begun = std::chrono::steady_clock::now();
  std::thread([&] {
    there = ::unshare(CLONE_NEWNET) == 0 &&
            std::system(
                "ip link set lo up && tc qdisc add dev lo root tbf rate 8bit burst 80 limit 1000000 2>/dev/null") == 0;
    if (!there) return;
    shared.examine_kernel();
    // Handshakes do not wait for another trial now.
    for (int i = 0; i < 100; ++i) shared.examine_kernel();
  }).join();
  if (!there) GTEST_SKIP() << "this process may not make a network that drops packets";
  EXPECT_LT(std::chrono::steady_clock::now() - begun, patience);
  EXPECT_HAS(shared.kernel_support()->problem, "(Connection timed out): it is tried again");
}

// The ends of a connection after the handshake, without a socket.
class KernelSessions : public TlsFixture {
 protected:
  void shake(unsigned char fragment = TLSEXT_max_fragment_length_DISABLED) {
    security::tls::ContextOptions of_server{.server = true,
                                            .certificates = {authority.issue("server")},
                                            .peer_certificate_bytes_max = 32 * 1024,
                                            .kernel = TlsKernel::automatic};
    security::tls::ContextOptions of_client{.ca_file = authority.ca_file(), .peer_certificate_bytes_max = 32 * 1024};
    session = std::make_unique<TlsSession>(load(of_server), "");
    peer = std::make_unique<TlsSession>(load(of_client), "localhost", "", nullptr);
    SSL_set_tlsext_max_fragment_length(peer->ssl(), fragment);
    ASSERT_TRUE(shake_hands(*peer, *session));
    EXPECT_EQ(received_by(*peer), "");
  }
  std::unique_ptr<TlsSession> session;
  std::unique_ptr<TlsSession> peer;
};

TEST_F(KernelSessions, ThePeerMayDemandSmallRecordsWhichTheKernelDoesNotSend) {
  const Descriptor any(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (const unsigned char mode : {TLSEXT_max_fragment_length_512, TLSEXT_max_fragment_length_4096}) {
    shake(mode);
    KernelTls kernel;
    const security::tls::KernelBegun begun =
        security::tls::begin_kernel(kernel, any.get(), session->ssl(), session->notes(), {});
    EXPECT_EQ(begun.refusal, security::tls::KernelRefusal::record_size);
    EXPECT_HAS(begun.problem, "records of " + std::to_string(256 << mode) + " bytes at most (max_fragment_length)");
    EXPECT_TRUE(session->notes().secret.empty());
  }
}

// Without a limit, OpenSSL handles all of them in one call, and the loop does nothing else meanwhile.
TEST_F(KernelSessions, NewKeysWithoutDataAreBounded) {
  shake();
  const auto replace_keys = [this](std::size_t times) {
    for (std::size_t i = 0; i < times; ++i) {
      ASSERT_EQ(SSL_key_update(peer->ssl(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
      ASSERT_EQ(SSL_do_handshake(peer->ssl()), 1);
    }
    move_bytes(*peer, *session);
  };
  std::array<std::byte, 64> space{};
  std::size_t size = 0;
  // Data of either side ends the count.
  for (int i = 0; i < 3; ++i) {
    replace_keys(TlsSession::records_without_data_max - 1);
    EXPECT_EQ(session->read(space, size), TlsSession::Read::more);
    write_text(i == 0 ? *peer : *session, "x");
    move_bytes(*peer, *session);
    EXPECT_EQ(received_by(*session), i == 0 ? "x" : "");
  }
  replace_keys(2000);
  EXPECT_EQ(session->read(space, size), TlsSession::Read::failed);
  EXPECT_HAS(session->error().text, "the peer sent more than 64 records without data");
}

TEST_F(KernelEdges, ASlowPeerReceivesAllWhenOpensslEncrypts) { all_is_received(TlsKernel::off); }
TEST_F(KernelEdgesInRdmaGuest, ASlowPeerReceivesAllWhenTheKernelEncrypts) { all_is_received(TlsKernel::required); }

TEST_F(KernelEdgesInRdmaGuest, APeerThatDemandsSmallRecordsGetsThemFromOpenssl) {
  serve(TlsKernel::automatic);
  const std::string text = output_of(
      "printf 'GET /large?100000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n' | timeout 60 openssl s_client "
      "-quiet -tls1_3 -maxfraglen 512 -ign_eof -connect " +
      server->address() + " -CAfile " + authority.ca_file() + " 2>&1");
  EXPECT_HAS(text, std::string(100'000, 'x'));
  EXPECT_EQ(security->counters().kernel_refused, 1U);
  EXPECT_HAS(logged(), "records of 512 bytes at most");
}

TEST_F(KernelSessions, AnEarlyEndIsNoFaultOfTheKernelInRdmaGuest) {
  if (kernel_lacks_tls()) GTEST_SKIP() << "the kernel has no module tls";
  ASSERT_EQ(security::tls::examine_kernel().problem, "");
  shake();
  const Descriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Descriptor there(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listening.get(), where, size), 0);
  ASSERT_EQ(::listen(listening.get(), 1), 0);
  ASSERT_EQ(::getsockname(listening.get(), where, &size), 0);
  ASSERT_EQ(::connect(there.get(), where, size), 0);
  const Descriptor here(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_EQ(shutdown(there.get(), SHUT_WR), 0);
  pollfd end{here.get(), POLLIN, 0};
  ASSERT_EQ(poll(&end, 1, 30'000), 1);
  KernelTls kernel;
  const security::tls::KernelBegun begun =
      security::tls::begin_kernel(kernel, here.get(), session->ssl(), session->notes(), {});
  EXPECT_EQ(begun.refusal, security::tls::KernelRefusal::ended);
  EXPECT_HAS(begun.problem, "the peer ended its sending direction");
}

TEST_F(KernelEdgesInRdmaGuest, AKernelThatDoesNotTellItsNumbersIsNotUsed) {
  std::thread([] {
    ASSERT_TRUE(filter_calls(__NR_getsockopt, 282, TLS_TX, SECCOMP_RET_ERRNO | EINVAL));
    EXPECT_HAS(security::tls::examine_kernel().problem, "the kernel does not report how many records it has sent");
  }).join();
}

}  // namespace
}  // namespace hawser
