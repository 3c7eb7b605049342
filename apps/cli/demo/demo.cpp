#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "cli/demo/protocols.h"
#include "cli/demo/services.h"
#include "hawser/hawser.h"
#include "hawser/http.h"

namespace demo {

// The name on the wire is demo::echo.
std::string_view echo(std::string_view text) { return text; }

}  // namespace demo

namespace hawser::cli {
namespace {

struct ServeOptions {
  std::string listen = "127.0.0.1:0";
  unsigned threads = 1;
};

Task<HttpResponse> welcome(HttpRequest&) {
  HttpResponse response;
  response.body =
      "hawser demo serve\n"
      "POST /example.EchoService/Echo {\"message\": \"...\"} as JSON or protobuf; GET /health\n";
  co_return response;
}

// Serves until SIGTERM or SIGINT. Both are blocked before the server starts its threads, which inherit that.
int serve(const ServeOptions& given) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  ServerOptions options;
  options.listen = given.listen;
  options.threads = given.threads;
  DemoServices services;
  Server server(options);
  server.register_handler<demo::echo>();
  services.add_to(server);
  server.enable(http().route("GET", "/", welcome));
  enable_grpc(server);
  enable_baidu_std(server);
  if (const Result<void> started = server.start(); !started) {
    fmt::print(stderr, "hawser demo serve: {}\n", started.error().text);
    return 1;
  }
  fmt::print("listening on {}\n", server.address());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ends, &signal);
  server.stop();
  return 0;
}

}  // namespace

Run add_demo(CLI::App& command) {
  command.require_subcommand(1);
  const auto options = std::make_shared<ServeOptions>();
  CLI::App* const added = command.add_subcommand("serve",
                                                 "Serve example.EchoService and demo.ShopService on every protocol of "
                                                 "this build, until SIGTERM; prints the address");
  added->add_option("--listen", options->listen, "Address: HOST:PORT, port 0 for a free one, or unix:/path")
      ->capture_default_str();
  added->add_option("--threads", options->threads, "Number of threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  return [options] { return serve(*options); };
}

}  // namespace hawser::cli
