#include "agent.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <fstream>
#include <random>
#include <string_view>
#include <utility>

namespace hawser::nixl {
namespace {

std::uint64_t random_number() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

// Loopback addresses are of use to agents with the same text only.
std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string identity;
  std::getline(file, identity);
  return identity;
}

std::vector<std::string> interface_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return addresses;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || (entry->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    std::array<char, INET_ADDRSTRLEN> text = {};
    const auto* const address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    if (::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) != nullptr) {
      addresses.emplace_back(text.data());
    }
  }
  ::freeifaddrs(first);
  return addresses;
}

bool is_loopback(std::string_view address) { return address.starts_with("127."); }

std::vector<std::string> advertised(const std::string& listening) {
  constexpr std::string_view any = "0.0.0.0:";
  if (!listening.starts_with(any)) return {listening};
  // The shortest path first. A peer on another host leaves the loopback addresses out.
  std::vector<std::string> loopback;
  std::vector<std::string> others;
  for (const std::string& address : interface_addresses()) {
    (is_loopback(address) ? loopback : others).push_back(address + ':' + listening.substr(any.size()));
  }
  loopback.insert(loopback.end(), others.begin(), others.end());
  return loopback;
}

ServerOptions server_options(const AgentOptions& options, const std::shared_ptr<Runtime>& runtime) {
  ServerOptions server;
  server.listen = options.listen;
  server.threads = options.threads;
  server.loop = runtime->loop_options();
  server.transports = options.transports;
  server.handshake_timeout = options.connect_timeout;
  return server;
}

std::shared_ptr<Runtime> make_runtime(const AgentOptions& options) {
  RuntimeOptions runtime;
  runtime.log = options.log;
  runtime.loop.log = options.log;
  return Runtime::make(std::move(runtime));
}

}  // namespace

// The server and the clients share one runtime and have equal options of transports, so that memory that is registered
// for the server is registered for the clients too.
Agent::Agent(AgentOptions options)
    : options_(std::move(options)),
      runtime_(make_runtime(options_)),
      inbox_(random_number()),
      server_(server_options(options_, runtime_)) {
  server_.register_handler<&Inbox::identify, &Inbox::notify>(&inbox_);
}

Result<std::unique_ptr<Agent>> Agent::start(AgentOptions options) {
  std::unique_ptr<Agent> agent(new Agent(std::move(options)));
  BackgroundOptions background;
  background.threads = agent->options_.threads;
  background.loop = agent->runtime_->loop_options();
  agent->loops_ = BackgroundLoops::start(std::move(background));
  if (Result<void> started = agent->server_.start(); !started) return std::unexpected(std::move(started.error()));
  agent->information_ = {agent->inbox_.identify(), host_identity(), advertised(agent->server_.address())};
  return agent;
}

Agent::~Agent() {
  for (const auto& [name, peer] : std::exchange(peers_, {})) peer->close();
}

Result<std::unique_ptr<Registration>> Agent::add_memory(MutableBytes memory) {
  Result<RegisteredBuffer> buffer = RegisteredBuffer::wrap(server_, memory);
  if (!buffer) return std::unexpected(std::move(buffer.error()));
  Result<ExposedRegion> region = buffer->expose(0, memory.size(), RegionAccess::read_write);
  if (!region) return std::unexpected(std::move(region.error()));
  return std::make_unique<Registration>(std::move(*buffer), std::move(*region));
}

void Agent::add_peer(const std::string& name, AgentInformation information) {
  if (information.host != information_.host) {
    std::erase_if(information.addresses, [](const std::string& address) { return is_loopback(address); });
  }
  std::shared_ptr<Peer> replaced;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Peer>& peer = peers_[name];
    if (peer != nullptr && peer->information() == information) return;
    PeerOptions options{.own_name = options_.name, .timeout = options_.timeout};
    options.client.transports = options_.transports;
    options.client.runtime = runtime_;
    options.client.connect_timeout = options_.connect_timeout;
    replaced = std::exchange(peer, std::make_shared<Peer>(loops_, peers_made_++ % loops_->size(),
                                                          std::move(information), std::move(options)));
  }
  if (replaced != nullptr) replaced->close();
}

bool Agent::remove_peer(const std::string& name) {
  std::shared_ptr<Peer> removed;
  {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(name);
    if (found == peers_.end()) return false;
    removed = std::move(found->second);
    peers_.erase(found);
  }
  removed->close();
  return true;
}

std::shared_ptr<Peer> Agent::find_peer(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(name);
  return found == peers_.end() ? nullptr : found->second;
}

}  // namespace hawser::nixl
