#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/call/outcome.h"
#include "cli/command.h"
#include "cli/demo/protocols.h"
#include "cli/demo/services.h"
#include "hawser/hawser.h"
#include "hawser/pages.h"
#include "hawser/structured_log.h"
#include "process/program.h"
#include "tls/server_options.h"

namespace demo {

// The name on the wire is demo::echo.
std::string_view echo(std::string_view text) { return text; }

}  // namespace demo

namespace hawser::cli {
namespace {

struct DemoServeOptions {
  std::string listen = "127.0.0.1:0";
  unsigned threads = 1;
  std::vector<std::string> peers = {};
  unsigned rate = 200;
  std::string pages = "loopback";
  std::string log_format = "text";
  bool recorder = false;
  std::string token_file = {};
  programs::TlsServerGiven tls;
};

// Calls another demo server `rate` times a second, and again after a pause if the connection ends.
Task<void> load(std::string peer, unsigned rate, std::stop_token stopping) {
  Loop& loop = *Loop::current();
  Client client;
  const Duration pause = std::chrono::duration_cast<Duration>(std::chrono::seconds(1)) / std::max(rate, 1U);
  for (std::size_t i = 0; !stopping.stop_requested(); ++i) {
    if (!client.connected()) {
      static_cast<void>(co_await client.connect(peer));
    }
    if (client.connected()) {
      const std::string text(i % 100 == 99 ? 100'000 : i % 10 * 20, 'x');
      static_cast<void>(co_await client.call<demo::echo>(text));
    }
    static_cast<void>(co_await loop.sleep(client.connected() ? pause : Duration(std::chrono::seconds(1)), stopping));
  }
}

// The page /log has the level, so these accept all lines.
Result<LogSink> log_output(const std::string& format) {
  if (format == "json") return json_log(LogLevel::debug);
  if (format == "journal") return journal_log({.least = LogLevel::debug, .identifier = "hawser-demo"});
  return text_log(LogLevel::debug);
}

// Serves until a signal that ends servers. They are blocked before the server starts its threads, which inherit that.
int serve(const DemoServeOptions& given) {
  const sigset_t ends = process::ending_signals();
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  ServerOptions options;
  options.listen = given.listen;
  options.threads = given.threads;
  if (Result<void> secured = programs::enable_tls(options, given.tls); !secured) {
    fmt::print(stderr, "hawser demo serve: {}\n", secured.error().text);
    return wrong_options_status;
  }
  DemoServices services;
  const Result<LogSink> output = log_output(given.log_format);
  if (!output) {
    fmt::print(stderr, "hawser demo serve: --log-format {}: {}\n", given.log_format, output.error().text);
    return 1;
  }
  const RecentLog log(rate_limited(*output));
  options.loop.log = log.sink();
  Server server(options);
  server.register_handler<demo::echo>();
  services.add_to(server);
  PagesOptions pages{.title = "hawser demo", .log = log};
  pages.pages = pages.metrics = given.pages == "off"   ? PageAccess::off
                                : given.pages == "all" ? PageAccess::all
                                                       : PageAccess::loopback;
  if (given.token_file.empty()) {
    pages.change_token = new_change_token();
  } else {
    pages.change_token_file = given.token_file;
  }
  const std::string token = pages.change_token;
  if (given.recorder) {
    const Recorder recorder;
    server.use(recorder.calls());
    pages.recorder = recorder;
  }
  try {
    enable_pages(server, std::move(pages));
  } catch (const std::exception& error) {
    fmt::print(stderr, "hawser demo serve: {}\n", error.what());
    return wrong_options_status;
  }
  enable_grpc(server);
  enable_baidu_std(server);
  if (const Result<void> started = server.start(); !started) {
    fmt::print(stderr, "hawser demo serve: {}\n", started.error().text);
    return 1;
  }
  for (const std::string& peer : given.peers) {
    const Result<void> begun = server.spawn(
        [peer, rate = given.rate](Background background) { return load(peer, rate, background.stopping); });
    if (!begun) fmt::print(stderr, "hawser demo serve: {}\n", begun.error().text);
  }
  std::string announcement = fmt::format("listening on {}\n", server.address());
  if (!token.empty() && given.pages != "off") {
    announcement += fmt::format("changes need the header field Hawser-Token: {}\n", token);
  }
  process::announce(announcement);
  int signal = 0;
  sigwait(&ends, &signal);
  server.stop();
  return 0;
}

}  // namespace

Run add_demo(CLI::App& command) {
  command.require_subcommand(1);
  const auto options = std::make_shared<DemoServeOptions>();
  CLI::App* const added = command.add_subcommand("serve",
                                                 "Serve example.EchoService and demo.ShopService on every protocol of "
                                                 "this build, until SIGTERM; prints the address");
  added->add_option("--listen", options->listen, "Address: HOST:PORT, port 0 for a free one, or unix:/path")
      ->capture_default_str();
  added->add_option("--threads", options->threads, "Number of threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  added->add_option("--pages", options->pages, "Who may see the pages and /metrics: loopback, all or off")
      ->capture_default_str()
      ->check(CLI::IsMember({"loopback", "all", "off"}));
  added
      ->add_option("--log-format", options->log_format,
                   "Lines of the log: text or json to stderr, or journal (systemd)")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json", "journal"}));
  added->add_option("--token-file", options->token_file,
                    "File of the token that changes need; made if it does not exist. Without it, the token is printed");
  added->add_flag("--recorder", options->recorder, "Let clients of this machine record requests (hawser record)");
  added->add_option("--load", options->peers, "Addresses of demo servers that this one calls");
  added->add_option("--rate", options->rate, "Calls a second to each of them")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  programs::add_tls_server_options(*added, options->tls);
  struct ClientOptionsGiven {
    std::string address;
    double timeout_s = 10;
  };
  const auto given = std::make_shared<ClientOptionsGiven>();
  CLI::App* const client =
      command.add_subcommand("client", "Make a call of each kind over each protocol to `hawser demo serve`");
  client->add_option("address", given->address, "Server: HOST:PORT, unix:/path or unix:@name")->required();
  client->add_option("--timeout", given->timeout_s, "Seconds for connecting, and for each call")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 86'400.0));
  client->footer(statuses);
  return [options, given, client] {
    if (client->parsed()) return show_calls(given->address, duration_of(given->timeout_s));
    return serve(*options);
  };
}

}  // namespace hawser::cli
