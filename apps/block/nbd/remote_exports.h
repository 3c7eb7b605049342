#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>

#include "block/nbd/exports.h"
#include "hawser/client.h"
#include "hawser/loop.h"
#include "hawser/sync.h"

namespace hawser::block::nbd {

// The server from one start to the next one.
struct ServerRun {
  const std::uint64_t instance;  // VolumeService::instance().
  std::stop_source lost = {};    // Another one has been found.
};

// The volumes of a block server, over any transport of a client of Hawser, with the rights that the server gives to
// this process: its clients are not known there, and the rules of this object are for them. Connects when it is first
// asked, and again after the connection was lost.
//
// A flush of a device fails if the server has been restarted since the device was opened: writes that had not been
// flushed may be lost, and the server that started later does not know of them. When a device is opened at the later
// server, those of earlier ones are lost: a client with several connections finds that they have ended, before a flush
// of the new connection succeeds without their writes.
class RemoteExports final : public Exports {
 public:
  // `options`: of the connection to the server. Calls have no deadline, whatever they say.
  RemoteExports(Loop& loop, std::string address, ClientOptions options, VolumeRules rules = {});
  ~RemoteExports() override;

  void close() override { client_.close(); }

 private:
  Task<Result<std::vector<std::string>>> list() override;
  Task<Result<std::shared_ptr<NbdDevice>>> find(std::string name, bool writable) override;
  Task<Result<std::shared_ptr<const ServerRun>>> find_run();

  const std::string address_;
  Loop& loop_;
  Client client_;
  std::shared_ptr<ServerRun> run_;  // The last one that is known.
};

}  // namespace hawser::block::nbd
