#include "block/volume_server_options.h"

#include "block/service.h"
#include "tls/client_options.h"

namespace hawser::block {
namespace {

// `auto`: shared memory on one host. Any other name is required.
TransportOptions transports_to_server(const std::string& name) {
  if (name == "tcp") return {.enabled = {}};
  if (name == "rdma") return {.enabled = {rdma()}, .required = name};
  if (name == "ucx") return {.enabled = {ucx()}, .required = name};
  return {};
}

}  // namespace

ClientOptions VolumeServerOptions::client_options() const {
  ClientOptions options{.security = security};
  options.transports = transports_to_server(transport);
  return options;
}

void add_server_and_transport(CLI::App& command, VolumeServerOptions& options) {
  command.add_option("--connect", options.connect, "Address of the server")->capture_default_str();
  programs::add_tls_client_options(command, options.connect, options.security);
  command
      .add_option("--transport", options.transport,
                  "To the server: auto (shared memory on one host), or only tcp, rdma or ucx, which --transports of "
                  "serve permits")
      ->check(CLI::IsMember({"auto", "tcp", "rdma", "ucx"}))
      ->capture_default_str();
}

void add_volume_server_options(CLI::App& command, VolumeServerOptions& options, const std::string& client_default) {
  add_server_and_transport(command, options);
  command
      .add_option("--outage-max", options.outage_max_s,
                  "Seconds for which a request waits for a server that is gone, before it fails")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command
      .add_option(
          "--client", options.client,
          "Name of this process and of those that follow it, one after the other: requests that a killed one has "
          "left at the server end before the next one uses the volume. Default: " +
              client_default)
      ->check([](const std::string& name) {
        return name.empty() || name.size() > client_name_bytes_max ? "a name of 1 to 512 bytes" : "";
      });
}

}  // namespace hawser::block
