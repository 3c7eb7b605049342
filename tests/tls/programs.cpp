#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "hawser/detail/protobuf_bodies.h"
#include "hawser/grpc.h"
#include "hawser/grpc_client.h"
#include "hawser/http_client.h"
#include "tests/grpc/raw_service.h"
#include "tests/repeat_handler.h"
#include "tests/tls/fixture.h"

// Other programs: openssl s_client and s_server, and curl.
namespace hawser {
namespace tls_remote {

Result<testing_tools::Raw> echo(testing_tools::Raw);

}  // namespace tls_remote

template <>
inline constexpr std::string_view method_name_override<&tls_remote::echo> = "test.Raw/Echo";

namespace {

using namespace testing_tools;

bool present(const std::string& program) { return !output_of("command -v " + program).empty(); }

class TlsPrograms : public TlsFixture {
 protected:
  void SetUp() override {
    if (!present("openssl") || !present("curl")) GTEST_SKIP() << "openssl or curl is not installed";
  }
  std::string s_client(const std::string& flags) {
    return output_of(
        "printf 'GET /hello HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n' | timeout 30 openssl "
        "s_client -ign_eof -connect " +
        server->address() + " -CAfile " + authority.ca_file() + " " + flags);
  }
  std::string curl(const std::string& flags, const std::string& host = "localhost") {
    return output_of("timeout 30 curl -sS --noproxy '*' --cacert " + authority.ca_file() + " --resolve " + host + ":" +
                     port() + ":127.0.0.1 " + flags + " https://" + host + ":" + port() + "/hello");
  }
};

TEST_F(TlsPrograms, OpensslIsServed) {
  start();
  for (const std::string version : {"-tls1_3", "-tls1_2"}) {
    const std::string text = s_client(version + " -verify_return_error -verify_hostname localhost -alpn http/1.1");
    EXPECT_HAS(text, "hello over http");
    EXPECT_HAS(text, "Verify return code: 0 (ok)");
    EXPECT_HAS(text, "ALPN protocol: http/1.1");
    EXPECT_HAS(text, "Secure Renegotiation IS");
    EXPECT_EQ(text.find("unexpected eof"), std::string::npos) << text;
  }
  EXPECT_HAS(s_client("-tls1_1 -cipher DEFAULT@SECLEVEL=0"), "alert");
  EXPECT_HAS(s_client("-tls1_2 -cipher AES128-SHA@SECLEVEL=0"), "alert handshake failure");
  EXPECT_HAS(s_client("-tls1_3 -alpn spdy/1"), "alert no application protocol");
  // A session of TLS 1.2 and of TLS 1.3 is resumed.
  for (const std::string version : {"-tls1_3", "-tls1_2"}) {
    const std::string file = folder.path().string() + "/session";
    EXPECT_HAS(s_client(version + " -sess_out " + file), "hello over http");
    const std::string text = s_client(version + " -sess_in " + file);
    EXPECT_HAS(text, "hello over http");
    EXPECT_HAS(text, "\nReused, ");
  }
  // Early data is not offered, and none is accepted.
  EXPECT_HAS(s_client("-tls1_3"), "Max Early Data: 0");
}

TEST_F(TlsPrograms, OpensslRefusesTls12WhereItIsOff) {
  tls_options.tls12 = false;
  start();
  EXPECT_HAS(s_client("-tls1_2"), "alert protocol version");
  EXPECT_HAS(s_client("-tls1_3"), "hello over http");
}

TEST_F(TlsPrograms, CurlIsServed) {
  start();
  EXPECT_EQ(curl(""), "hello over http");
  EXPECT_EQ(curl("--http1.1 --tls-max 1.2"), "hello over http");
  EXPECT_HAS(curl("", "other.example"), "no alternative certificate subject name matches");
  EXPECT_HAS(output_of("timeout 30 curl -sS --noproxy '*' http://" + server->address() + "/hello"), "requires TLS");
}

TEST_F(TlsPrograms, CurlProvesItselfByACertificate) {
  tls_options.client_ca_file = authority.ca_file();
  start();
  const TlsCertificate own = authority.issue("curl");
  EXPECT_EQ(curl("--cert " + own.certificate_file + " --key " + own.key_file), "hello over http");
  EXPECT_HAS(curl(""), "alert");
}

class TlsGrpc : public TlsPrograms {
 protected:
  void start_grpc() {
    if (tls_options.certificates.empty()) tls_options.certificates = {authority.issue("server")};
    security = std::make_unique<TlsServer>(tls_options);
    options.security = *security;
    server = std::make_unique<Server>(options);
    server->add_method({.id = 1,
                        .name = "test.Raw/Echo",
                        .handler = std::make_unique<Repeat>(),
                        .json = std::make_shared<detail::ProtobufBodies>()});
    server->enable(grpc());
    server->enable(http().route("GET", "/hello", hello));
    ASSERT_TRUE(server->start());
  }
};

TEST_F(TlsGrpc, IsCalledByThisLibrary) {
  start_grpc();
  Loop loop;
  GrpcClientOptions with;
  with.security = TlsClient(client_options());
  GrpcClient client(loop, with);
  const Result<void> connected = loop.run(client.connect(server->address()));
  ASSERT_TRUE(connected) << error_of(connected);
  const auto ask = [](GrpcClient& of, std::string text) -> Task<std::string> {
    const Raw sent(std::move(text));
    auto reply = co_await of.call<&tls_remote::echo>(sent);
    co_return reply ? reply->bytes : reply.error().text;
  };
  const std::string text = text_of(1'000'000);
  EXPECT_EQ(loop.run(ask(client, "hi")), "hi");
  EXPECT_EQ(loop.run(ask(client, text)), text);
  EXPECT_EQ(security->counters().handshakes, 1U);
  // A server in plain text is not a peer, and connect() says so.
  TlsClientOptions wrong = client_options();
  wrong.server_name = "other.example";
  with.security = TlsClient(wrong);
  GrpcClient other(loop, with);
  const Result<void> refused = loop.run(other.connect(server->address()));
  EXPECT_TRUE(is_error(refused, ErrorCode::unavailable, "not for 'other.example'"));
}

TEST_F(TlsGrpc, IsAskedByHttpClient) {
  start_grpc();
  Loop loop;
  HttpClientOptions with;
  with.security = TlsClient(client_options());
  HttpClient client(loop, with);
  const std::string url = "https://" + server->address() + "/hello";
  for (int i = 0; i < 2; ++i) {
    const Result<HttpClientResponse> reply = loop.run(client.get(url));
    EXPECT_EQ(reply ? reply->body : error_of(reply), "hello over http");
  }
  EXPECT_EQ(security->counters().handshakes, 1U);
  // The connection goes to an address, and the certificate must be that of the URL's host.
  HttpClientRequest request;
  request.url = "https://other.example/hello";
  request.address = server->address();
  const Result<HttpClientResponse> refused = loop.run(client.send(request));
  EXPECT_TRUE(is_error(refused, ErrorCode::unavailable, "not for 'other.example'")) << error_of(refused);
}

TEST_F(TlsGrpc, IsCalledByGrpcioWithACertificate) {
  if (output_of("/usr/bin/python3 -c 'import grpc'") != "") GTEST_SKIP() << "grpcio is not installed";
  tls_options.client_ca_file = authority.ca_file();
  start_grpc();
  const TlsCertificate own = authority.issue("python");
  const auto python = [&](const std::string& credentials) {
    return output_of("timeout 60 /usr/bin/python3 -c 'import grpc\nread = lambda name: open(name, \"rb\").read()\n" +
                     std::string("channel = grpc.secure_channel(\"localhost:") + port() +
                     "\", grpc.ssl_channel_credentials(" + credentials +
                     "), ((\"grpc.enable_http_proxy\", 0),))\ntry:\n  "
                     "print(channel.unary_unary(\"/test.Raw/Echo\")(b\"hello\", timeout=30))\n"
                     "except grpc.RpcError as error:\n  print(error.code())'");
  };
  const std::string ca = "read(\"" + authority.ca_file() + "\")";
  EXPECT_EQ(python(ca + ", read(\"" + own.key_file + "\"), read(\"" + own.certificate_file + "\")"), "b'hello'\n");
  EXPECT_HAS(python(ca), "UNAVAILABLE");
}

TEST_F(TlsGrpc, RefusesPlainTextWithAReason) {
  start_grpc();
  RawSocket socket = RawSocket::connected_to(server->address());
  socket.send(as_bytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
  const auto settings = socket.receive(9);
  ASSERT_TRUE(settings);
  EXPECT_EQ((*settings)[3], std::byte{4});
  const auto head = socket.receive(17);
  ASSERT_TRUE(head);
  EXPECT_EQ((*head)[3], std::byte{7});
  EXPECT_EQ((*head)[16], std::byte{12});  // INADEQUATE_SECURITY
  const std::size_t size =
      std::to_integer<std::size_t>((*head)[1]) * 256 + std::to_integer<std::size_t>((*head)[2]) - 8;
  const auto text = socket.receive(size);
  ASSERT_TRUE(text);
  EXPECT_NE(as_text(*text).find("requires TLS"), std::string_view::npos);
}

TEST_F(TlsGrpc, IsSelectedByAlpn) {
  start_grpc();
  EXPECT_HAS(s_client("-alpn h2"), "ALPN protocol: h2");
  // HTTP/2 carries both gRPC and the routes: clients that can use gRPC offer both.
  EXPECT_HAS(s_client("-alpn http/1.1,h2"), "ALPN protocol: h2");
  EXPECT_HAS(s_client("-alpn http/1.1"), "ALPN protocol: http/1.1");
  EXPECT_EQ(curl("--http2"), "hello over http");
}

// True if a needle lies in memory of this process that a core dump would contain. `hidden` is the needle with its
// letters moved by 13, so that looking for it adds no copy.
bool in_memory(const std::string& hidden) {
  constexpr std::size_t part_bytes = 1 << 20;
  // Shared, and therefore not looked into.
  char* const part =
      static_cast<char*>(mmap(nullptr, part_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const auto moved = [](char c) {
    if (c >= 'a' && c <= 'z') return static_cast<char>('a' + (c - 'a' + 13) % 26);
    if (c >= 'A' && c <= 'Z') return static_cast<char>('A' + (c - 'A' + 13) % 26);
    return c;
  };
  const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  EXPECT_GE(memory, 0);
  std::ifstream maps("/proc/self/maps");
  bool found = false;
  std::size_t looked_at = 0;
  for (std::string line; !found && std::getline(maps, line);) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, access) != 3) continue;
    // The reserved memory of a sanitizer is not that of the program.
    if (std::string_view(access) != "rw-p" || end - begin > std::uint64_t{1} << 32) continue;
    for (std::uint64_t at = begin; !found && at < end; at += part_bytes - hidden.size()) {
      const std::size_t wanted = std::min<std::uint64_t>(part_bytes, end - at);
      const ssize_t size = pread(memory, part, wanted, static_cast<off_t>(at));
      if (size <= 0) break;
      looked_at += static_cast<std::size_t>(size);
      found = std::search(part, part + size, hidden.begin(), hidden.end(),
                          [&](char here, char wanted_here) { return moved(here) == wanted_here; }) != part + size;
    }
  }
  EXPECT_GT(looked_at, 0U);
  close(memory);
  munmap(part, part_bytes);
  return found;
}

TEST_F(TlsPrograms, KeyFilesLeaveNoTextInMemory) {
  const std::string base = folder.path().string() + "/own";
  output_of("openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout " + base + ".key -out " +
            base + ".pem");
  // A line of the key, which this process reads through the library only.
  const std::string hidden = output_of("sed -n 9p " + base + ".key | tr 'A-Za-z' 'N-ZA-Mn-za-m' | tr -d '\\n'");
  ASSERT_EQ(hidden.size(), 64U);
  tls_options.certificates = {{base + ".pem", base + ".key"}};
  start();
  TlsClientOptions with = client_options();
  with.ca_file = base + ".pem";
  with.server_name = "localhost";
  EXPECT_EQ(call(with), "ok");
  EXPECT_FALSE(in_memory(hidden));
  // It is found once this process has read it in another way.
  const std::string known = output_of("sed -n 9p " + base + ".key");
  EXPECT_TRUE(in_memory(hidden)) << known.size();
}

// openssl s_server answers a client of this library in TLS, and shows what it received.
TEST_F(TlsPrograms, OpensslServesAClientAsFarAsItCan) {
  const TlsCertificate files = authority.issue("server");
  const TlsCertificate weak = authority.issue("weak", {.rsa_bits = 1024});
  for (const bool broken : {false, true}) {
    const std::string log_file = folder.path().string() + (broken ? "/s_server.weak" : "/s_server");
    const TlsCertificate& used = broken ? weak : files;
    // An input that does not end.
    int input[2];
    ASSERT_EQ(::pipe(input), 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(input[0], 0);
      close(input[1]);
      const std::string command = "exec openssl s_server -accept 127.0.0.1:0 -cipher DEFAULT@SECLEVEL=0 -cert " +
                                  used.certificate_file + " -key " + used.key_file + " > " + log_file + " 2>&1";
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    const auto written = [&] {
      std::ifstream file(log_file);
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    std::string address;
    EXPECT_TRUE(soon([&] {
      const std::string text = written();
      const std::size_t at = text.find("ACCEPT 127.0.0.1:");
      const std::size_t end = at == std::string::npos ? at : text.find('\n', at);
      if (end != std::string::npos) address = text.substr(at + 7, end - at - 7);
      return !address.empty();
    })) << written();
    std::string text;
    std::thread caller([&] {
      sync_wait([](std::string to, TlsClientOptions with, std::string& out) -> Task<void> {
        ClientOptions client_options;
        client_options.security = TlsClient(with);
        client_options.connect_timeout = patience;
        Client client(client_options);
        auto connected = co_await client.connect(to);
        out = connected ? "connected" : connected.error().text;
      }(address, client_options(), text));
    });
    // The HELLO arrives, which this server does not answer.
    if (!broken) {
      EXPECT_TRUE(soon([&] { return written().find("HWSR") != std::string::npos; })) << written();
      kill(child, SIGTERM);
    }
    caller.join();
    EXPECT_HAS(text, broken ? "has a weak key (RSA 1024 bits)" : "ended before the hello was complete");
    kill(child, SIGTERM);
    waitpid(child, nullptr, 0);
    close(input[0]);
    close(input[1]);
  }
}

}  // namespace
}  // namespace hawser
