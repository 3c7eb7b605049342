#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "block/nbd/exports.h"
#include "block/nbd/remote_server.h"
#include "hawser/client.h"
#include "hawser/loop.h"

namespace hawser::block::nbd {

inline constexpr std::chrono::seconds outage_max_usual{60};

// The volumes of a block server, over any transport of a client of Hawser, with the rights that the server gives to
// this process: its clients are not known there, and the rules of this object are for them. Connects when it is first
// asked, and again after the connection was lost: see RemoteDevice.
//
// If the server has another medium than before, writes that had not been flushed may be lost. Then all devices are
// lost: a client with several connections finds that they have ended, before a flush of a new connection succeeds
// without their writes.
class RemoteExports final : public Exports {
 public:
  // `options`, `outage_max`, `client_name`: see RemoteServer.
  RemoteExports(Loop& loop, const std::string& address, ClientOptions options, VolumeRules rules = {},
                Duration outage_max = outage_max_usual, std::string client_name = {})
      : Exports(std::move(rules)), server_(loop, address, std::move(options), outage_max, std::move(client_name)) {}

  void close() override { server_.close(); }

 private:
  Task<Result<std::vector<std::string>>> list() override { return server_.list(); }
  Task<Result<std::shared_ptr<NbdDevice>>> find(std::string name, bool writable) override;

  RemoteServer server_;
};

}  // namespace hawser::block::nbd
