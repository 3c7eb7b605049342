#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "hawser/grpc.h"
#include "hawser/grpc_health.h"
#include "hawser/hawser.h"
#include "hawser/http.h"
#include "hawser/tls.h"
#include "tests/grpc_interop/service.h"

// The server of tests/world: gRPC's interoperability service, and routes. Options are the default ones, except that
// handshakes may take longer: a busy machine needs more than 5 s for the TLS handshakes of 1000 connections, and
// net/http keeps connections that it has opened and not used.
//
//   hawser_test_world_server HOST:PORT [CERTIFICATE_FILE KEY_FILE]
namespace {

using hawser::HttpBodyReader;
using hawser::HttpBodyWriter;
using hawser::HttpRequest;
using hawser::HttpResponse;
using hawser::Task;

// A parameter of the query, between 0 and 64 Mi.
std::size_t number(const HttpRequest& request, std::string_view name, std::size_t otherwise = 0) {
  constexpr std::size_t most = std::size_t{64} << 20;
  const auto text = hawser::query_value(request.query(), name);
  std::size_t value = otherwise;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return std::min(value, most);
}

Task<void> pause(HttpRequest& request, std::string_view parameter) {
  static_cast<void>(
      co_await request.loop().sleep(std::chrono::milliseconds(number(request, parameter)), request.token()));
}

// ?n=BYTES&ms=PAUSE
Task<HttpResponse> bytes(HttpRequest& request) {
  co_await pause(request, "ms");
  co_return HttpResponse{.body = std::string(number(request, "n"), 'b'), .content_type = "application/octet-stream"};
}

// ?n=PARTS&size=BYTES&ms=PAUSE. The parts are numbered lines.
Task<HttpResponse> parts(HttpRequest& request) {
  HttpResponse response;
  response.stream = [&request](HttpBodyWriter& writer) -> Task<void> {
    const std::size_t size = std::max<std::size_t>(number(request, "size", 16), 16);
    for (std::size_t i = 0; i < number(request, "n", 1); ++i) {
      std::string line = std::to_string(i);
      line.resize(size - 1, ' ');
      if (!co_await writer.write(line + '\n')) co_return;
      co_await pause(request, "ms");
    }
  };
  co_return response;
}

// Answers with the number of bytes that it has received. ?ms=PAUSE before each part.
Task<HttpResponse> upload(HttpRequest& request, HttpBodyReader& body) {
  std::size_t received = 0;
  while (true) {
    co_await pause(request, "ms");
    const auto part = co_await body.read();
    if (!part) co_return HttpResponse{.status = 503, .body = part.error().text};
    if (part->empty()) break;
    received += part->size();
  }
  co_return HttpResponse{.body = std::to_string(received)};
}

// Answers with the values of the field ?name=, one a line.
Task<HttpResponse> field(HttpRequest& request) {
  HttpResponse response;
  for (const std::string_view value :
       request.header_values(hawser::query_value(request.query(), "name").value_or(""))) {
    response.body += std::string(value) + '\n';
  }
  co_return response;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    std::puts("usage: hawser_test_world_server HOST:PORT [CERTIFICATE_FILE KEY_FILE]");
    return 2;
  }
  // Blocked in each thread that the server starts.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  hawser::grpc_interop::Service service;
  hawser::ServerOptions options;
  options.listen = argv[1];
  if (argc == 4) {
    hawser::TlsServerOptions tls;
    tls.certificates.push_back({.certificate_file = argv[2], .key_file = argv[3]});
    options.security = hawser::TlsServer(tls);
  }
  hawser::Server server(options);
  service.add_to(server);
  server.enable(hawser::grpc());
  const hawser::GrpcHealth health(server);
  server.enable(hawser::http()
                    .route("GET", "/bytes", bytes)
                    .route("GET", "/parts", parts)
                    .route("POST", "/upload", hawser::HttpBodyHandler(upload))
                    .route("GET", "/field", field));
  if (const auto started = server.start(); !started) {
    std::puts(started.error().describe().c_str());
    return 1;
  }
  std::printf("listening on %s\n", server.address().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ends, &signal);
  server.stop(std::chrono::seconds(2));
  return 0;
}
