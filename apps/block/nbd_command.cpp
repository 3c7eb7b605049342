#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "block/command.h"
#include "block/nbd/client_name.h"
#include "block/nbd/front.h"
#include "block/nbd/listening.h"
#include "block/nbd/remote_exports.h"
#include "block/reload_rules.h"
#include "block/request_memory.h"
#include "block/stop_signal.h"
#include "block/volume_rules.h"
#include "block/volume_server_options.h"
#include "hawser/service_manager.h"
#include "process/program.h"
#include "tls/server_options.h"

namespace hawser::block {
namespace {

struct NbdOptions {
  VolumeServerOptions remote = {};
  std::string listen = "127.0.0.1:10809";
  Wait wait = Wait::spin;
  std::size_t connections = nbd::NbdLimits{}.connections_max;
  std::string rules = {};
  programs::TlsServerGiven tls = {};  // For connections of clients of NBD.
};

int failed(const Error& error, int status) {
  fmt::print(stderr, "hawser-block: {}\n", error.text);
  return status;
}

int serve_nbd(const NbdOptions& options) {
  keep_request_memory();
  const StopSignal stop(!options.rules.empty());
  Result<VolumeRules> rules = VolumeRules::load_if_given(options.rules);
  if (!rules) return failed(rules.error(), wrong_options_status);
  ServiceManager manager;
  ServerOptions tls;
  if (const Result<void> secured = programs::enable_tls(tls, options.tls); !secured) {
    return failed(secured.error(), wrong_options_status);
  }
  const VolumeServerOptions& remote = options.remote;
  const std::string listen = manager.listen(options.listen);
  const std::string name =
      remote.client.empty() ? nbd::client_name_at(nbd::NbdListening::resolve(listen)) : remote.client;
  const Result<std::unique_ptr<nbd::Front>> front =
      nbd::Front::start({.listen = listen,
                         .loop = {.wait = options.wait},
                         .limits = {.connections_max = options.connections},
                         .security = tls.security},
                        [&](Loop& loop) {
                          return std::make_unique<nbd::RemoteExports>(loop, remote.connect, remote.client_options(),
                                                                      *rules, remote.outage_max(), name);
                        });
  if (!front) return failed(front.error(), 1);
  const std::string status =
      fmt::format("serving the volumes of {} for NBD at {}", remote.connect, (*front)->address());
  process::announce(fmt::format("hawser-block: {}\n", status));
  manager.ready(status);
  stop.wait([&] { reload_rules(*rules, options.rules); });
  manager.stopping();
  (*front)->stop(std::chrono::seconds(1));
  return 0;
}

void add_tls_of_clients(CLI::App& command, programs::TlsServerGiven& given) {
  CLI::Option* const certificate = command.add_option(
      "--nbd-tls-cert", given.certificate_file, "Certificate in PEM format: clients of NBD begin TLS with STARTTLS");
  CLI::Option* const key = command.add_option("--nbd-tls-key", given.key_file, "Key of --nbd-tls-cert");
  certificate->needs(key);
  key->needs(certificate);
  command
      .add_option("--nbd-tls-client-ca", given.client_ca_file,
                  "Certificates of issuers: clients of NBD within TLS must have a certificate of one")
      ->needs(certificate);
  command
      .add_option("--nbd-tls", given.policy,
                  "Whether plain text is refused, except at a Unix socket: required or allowed")
      ->capture_default_str()
      ->check(CLI::IsMember({"required", "allowed"}))
      ->needs(certificate);
}

}  // namespace

Run add_nbd(CLI::App& command) {
  auto options = std::make_shared<NbdOptions>();
  add_volume_server_options(command, options->remote, "the machine and --listen");
  command
      .add_option("--listen", options->listen,
                  "Address for clients of NBD: HOST:PORT, unix:/path or unix:@name. A socket that systemd passes "
                  "takes its place")
      ->capture_default_str();
  command.add_option("--connections", options->connections, "Connections of clients; further ones wait")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command.add_option("--rules", options->rules,
                     "File that says which client of NBD may read and write which volumes. SIGHUP reads it again");
  add_wait(command, options->wait);
  add_tls_of_clients(command, options->tls);
  return [options] { return serve_nbd(*options); };
}

}  // namespace hawser::block
