#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "block/command.h"
#include "block/nbd/front.h"
#include "block/nbd/remote_exports.h"
#include "block/stop_signal.h"
#include "process/program.h"
#include "tls/client_options.h"

namespace hawser::block {
namespace {

struct NbdOptions {
  std::string connect = "127.0.0.1:7750";
  std::string listen = "127.0.0.1:10809";
  std::string transport = "auto";
  std::size_t connections = nbd::NbdLimits{}.connections_max;
  std::shared_ptr<transport::ClientSecurity> security = {};
};

int serve_nbd(const NbdOptions& options) {
  const StopSignal stop;
  ClientOptions client{.security = options.security};
  if (options.transport == "tcp") client.transports.enabled.clear();
  const Result<std::unique_ptr<nbd::Front>> front = nbd::Front::start(
      {.listen = options.listen, .limits = {.connections_max = options.connections}},
      [&](Loop& loop) { return std::make_unique<nbd::RemoteExports>(loop, options.connect, client); });
  if (!front) {
    fmt::print(stderr, "hawser-block: {}\n", front.error().text);
    return 1;
  }
  programs::announce(
      fmt::format("hawser-block: serving the volumes of {} for NBD at {}\n", options.connect, (*front)->address()));
  stop.wait();
  (*front)->stop(std::chrono::seconds(1));
  return 0;
}

}  // namespace

Run add_nbd(CLI::App& command) {
  auto options = std::make_shared<NbdOptions>();
  command.add_option("--connect", options->connect, "Address of the server")->capture_default_str();
  programs::add_tls_client_options(command, options->connect, options->security);
  command.add_option("--listen", options->listen, "Address for clients of NBD: HOST:PORT, unix:/path or unix:@name")
      ->capture_default_str();
  command.add_option("--transport", options->transport, "To the server: auto (shared memory on one host), or only tcp")
      ->check(CLI::IsMember({"auto", "tcp"}))
      ->capture_default_str();
  command.add_option("--connections", options->connections, "Connections of clients; further ones wait")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  return [options] { return serve_nbd(*options); };
}

}  // namespace hawser::block
