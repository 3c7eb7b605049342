#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/tls/kernel_peer.h"

// Peers that are slow, end early, or demand small records, also while the kernel encrypts.
namespace hawser {
namespace {

using namespace testing_tools;
using tls::Session;

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
    server->enable(http().route("GET", "/hello", hello).route("GET", "/large", large));
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
    tls::ContextOptions of_peer{.ca_file = authority.ca_file(), .peer_certificate_bytes_max = 32 * 1024};
    auto end = std::make_unique<OpensslEnd>(fd, std::make_unique<Session>(load(of_peer), "localhost", "", nullptr));
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
      std::this_thread::sleep_for(2500ms);
      std::size_t size = 400'000;
      for (const std::unique_ptr<OpensslEnd>& end : ends) {
        const std::string all = end->receive_all();
        EXPECT_GE(all.size() + (half_closed ? 16'384 : 0), size) << half_closed;
        EXPECT_EQ(end->end(), Session::Read::closed) << size << " " << half_closed;
        size += 16'000;
      }
    }
  }
};

class KernelEdgesInRdmaGuest : public KernelEdges {
 protected:
  void SetUp() override {
    if (const std::string problem = tls::examine_kernel().problem; !problem.empty()) GTEST_SKIP() << problem;
  }
};

TEST_F(KernelEdges, ASlowPeerReceivesAllWhenOpensslEncrypts) { all_is_received(TlsKernel::off); }
TEST_F(KernelEdgesInRdmaGuest, ASlowPeerReceivesAllWhenTheKernelEncrypts) { all_is_received(TlsKernel::required); }

}  // namespace
}  // namespace hawser
