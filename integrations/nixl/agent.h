#pragma once

#include <hawser/background_loops.h>
#include <hawser/bytes.h>
#include <hawser/log.h>
#include <hawser/registered_buffer.h>
#include <hawser/runtime.h>
#include <hawser/server.h>
#include <hawser/time.h>
#include <hawser/transports.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "inbox.h"
#include "information.h"
#include "peer.h"

namespace hawser::nixl {

struct AgentOptions {
  std::string name;
  // As ServerOptions::listen. With host 0.0.0.0, peers try each IPv4 address of this host.
  std::string listen = "0.0.0.0:0";
  TransportOptions transports = {};
  unsigned threads = 1;                          // Loops for the server, and as many for the connections to peers.
  Duration timeout = std::chrono::seconds(300);  // As PeerOptions::timeout.
  Duration connect_timeout = std::chrono::seconds(5);  // For each address of a peer.
  LogSink log = stderr_log();
};

// Memory that peers may access. Destroying it revokes the access.
class Registration {
 public:
  Registration(RegisteredBuffer buffer, ExposedRegion region) noexcept
      : buffer_(std::move(buffer)), region_(std::move(region)) {}
  const RemoteRegion& handle() const noexcept { return region_.handle(); }
  std::uintptr_t address() const noexcept { return reinterpret_cast<std::uintptr_t>(buffer_.addresses().data()); }

 private:
  RegisteredBuffer buffer_;
  ExposedRegion region_;
};

// One agent of NIXL: a server that exposes memory, and connections to other agents. Thread-safe. Knows no type of NIXL.
class Agent {
 public:
  // Error: the server does not start.
  static Result<std::unique_ptr<Agent>> start(AgentOptions options);
  ~Agent();

  const AgentInformation& information() const noexcept { return information_; }
  Inbox& inbox() noexcept { return inbox_; }

  // Registers memory and exposes all of it for reads and writes. Errors: as RegisteredBuffer::wrap() and expose().
  Result<std::unique_ptr<Registration>> add_memory(MutableBytes memory);

  // Makes an agent known. Replaces one of the same name with other information.
  void add_peer(const std::string& name, AgentInformation information);
  // Ends the transfers with this agent and forgets it. False if it is not known.
  bool remove_peer(const std::string& name);
  // Null if it is not known.
  std::shared_ptr<Peer> find_peer(const std::string& name) const;

 private:
  explicit Agent(AgentOptions options);

  const AgentOptions options_;
  const std::shared_ptr<Runtime> runtime_;
  Inbox inbox_;
  Server server_;
  std::shared_ptr<BackgroundLoops> loops_;
  AgentInformation information_;
  mutable std::mutex mutex_;  // Protects the peers.
  std::unordered_map<std::string, std::shared_ptr<Peer>> peers_;
  std::size_t peers_made_ = 0;
};

}  // namespace hawser::nixl
