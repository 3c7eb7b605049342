#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "block/command.h"
#include "block/nbd/client_name.h"
#include "block/nbd/front.h"
#include "block/nbd/remote_exports.h"
#include "block/reload_rules.h"
#include "block/service.h"
#include "block/stop_signal.h"
#include "block/volume_rules.h"
#include "process/program.h"
#include "tls/client_options.h"
#include "tls/server_options.h"

namespace hawser::block {
namespace {

struct NbdOptions {
  std::string connect = "127.0.0.1:7750";
  std::string listen = "127.0.0.1:10809";
  std::string transport = "auto";
  Wait wait = Wait::spin;
  std::size_t connections = nbd::NbdLimits{}.connections_max;
  std::int64_t outage_max_s = nbd::outage_max_usual.count();
  std::string client = {};  // Empty: client_name_at().
  std::string rules = {};
  std::shared_ptr<transport::ClientSecurity> security = {};
  programs::TlsServerGiven tls = {};  // For connections of clients of NBD.
};

int failed(const Error& error, int status) {
  fmt::print(stderr, "hawser-block: {}\n", error.text);
  return status;
}

// `auto`: shared memory on one host. Any other name is required.
TransportOptions transports_to_server(const std::string& name) {
  if (name == "tcp") return {.enabled = {}};
  if (name == "rdma") return {.enabled = {rdma()}, .required = name};
  if (name == "ucx") return {.enabled = {ucx()}, .required = name};
  return {};
}

int serve_nbd(const NbdOptions& options) {
  const StopSignal stop(!options.rules.empty());
  Result<VolumeRules> rules = VolumeRules::load_if_given(options.rules);
  if (!rules) return failed(rules.error(), wrong_options_status);
  ServerOptions tls;
  if (const Result<void> secured = programs::enable_tls(tls, options.tls); !secured) {
    return failed(secured.error(), wrong_options_status);
  }
  ClientOptions client{.security = options.security};
  client.transports = transports_to_server(options.transport);
  const std::string name = options.client.empty() ? nbd::client_name_at(options.listen) : options.client;
  const Result<std::unique_ptr<nbd::Front>> front =
      nbd::Front::start({.listen = options.listen,
                         .loop = {.wait = options.wait},
                         .limits = {.connections_max = options.connections},
                         .security = tls.security},
                        [&](Loop& loop) {
                          return std::make_unique<nbd::RemoteExports>(loop, options.connect, client, *rules,
                                                                      std::chrono::seconds(options.outage_max_s), name);
                        });
  if (!front) return failed(front.error(), 1);
  programs::announce(
      fmt::format("hawser-block: serving the volumes of {} for NBD at {}\n", options.connect, (*front)->address()));
  stop.wait([&] { reload_rules(*rules, options.rules); });
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
  command.add_option("--connect", options->connect, "Address of the server")->capture_default_str();
  programs::add_tls_client_options(command, options->connect, options->security);
  command.add_option("--listen", options->listen, "Address for clients of NBD: HOST:PORT, unix:/path or unix:@name")
      ->capture_default_str();
  command
      .add_option("--transport", options->transport,
                  "To the server: auto (shared memory on one host), or only tcp, rdma or ucx, which --transports of "
                  "serve permits")
      ->check(CLI::IsMember({"auto", "tcp", "rdma", "ucx"}))
      ->capture_default_str();
  command.add_option("--connections", options->connections, "Connections of clients; further ones wait")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command
      .add_option("--outage-max", options->outage_max_s,
                  "Seconds for which a request waits for a server that is gone, before it fails")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command
      .add_option(
          "--client", options->client,
          "Name of this process and of those that follow it, one after the other: requests that a killed one has "
          "left at the server end before the next one uses the volume. Default: the machine and --listen")
      ->check([](const std::string& name) {
        return name.empty() || name.size() > client_name_bytes_max ? "a name of 1 to 512 bytes" : "";
      });
  command.add_option("--rules", options->rules,
                     "File that says which client of NBD may read and write which volumes. SIGHUP reads it again");
  add_wait(command, options->wait);
  add_tls_of_clients(command, options->tls);
  return [options] { return serve_nbd(*options); };
}

}  // namespace hawser::block
