#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "block/nbd/remote_exports.h"
#include "hawser/client.h"

namespace hawser::block {

// Options of commands that serve the volumes of a block server to others.
struct VolumeServerOptions {
  std::string connect = "127.0.0.1:7750";
  std::string transport = "auto";
  std::int64_t outage_max_s = nbd::outage_max_usual.count();
  std::string client = {};  // Empty: the default of the command.
  std::shared_ptr<transport::ClientSecurity> security = {};

  ClientOptions client_options() const;
  std::chrono::seconds outage_max() const noexcept { return std::chrono::seconds(outage_max_s); }
};

// `options` outlive the parsing. Adds --connect, --transport and the options of TLS.
void add_server_and_transport(CLI::App& command, VolumeServerOptions& options);
// Adds all of them. `client_default`: what the name of the client is made of without --client.
void add_volume_server_options(CLI::App& command, VolumeServerOptions& options, const std::string& client_default);

}  // namespace hawser::block
