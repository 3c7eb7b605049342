#include "runtime/system_network.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/client.h"
#include "hawser/client_pool.h"
#include "hawser/server.h"
#include "hawser/transport/factory.h"
#include "runtime/transports.h"
#include "transport/tcp/tcp_network.h"

namespace hawser::setup {
namespace {

class SystemNetwork final : public transport::Network {
 public:
  Result<std::unique_ptr<transport::Listener>> listen(Loop& loop, std::string_view address,
                                                      transport::AcceptSink& sink) override {
    return streams_.listen(loop, address, sink);
  }
  Task<Result<std::unique_ptr<transport::Stream>>> connect(Loop& loop, std::string address, Duration timeout) override {
    return streams_.connect(loop, std::move(address), timeout);
  }
  std::vector<std::shared_ptr<transport::Transport>> transports(const TransportOptions& options) override {
    const auto rank = [](const TransportSpec& one) { return one.factory().traits().rank; };
    std::vector<TransportSpec> wanted;
    for (const TransportSpec& one : options.enabled) {
      wanted.insert(std::ranges::upper_bound(wanted, rank(one), {}, rank), one);
    }
    std::vector<std::shared_ptr<transport::Transport>> all;
    const std::lock_guard lock(mutex_);
    for (const TransportSpec& one : wanted) {
      if (std::shared_ptr<transport::Transport> transport = get(one)) all.push_back(std::move(transport));
    }
    return all;
  }
  std::vector<std::string_view> transport_names() const override { return built_in_names(); }

 private:
  struct InUse {
    TransportSpec spec;
    std::weak_ptr<transport::Transport> transport;
  };

  // Connections with the same options share queues and memory.
  std::shared_ptr<transport::Transport> get(const TransportSpec& wanted) {
    std::erase_if(transports_, [](const InUse& one) { return one.transport.expired(); });
    for (const InUse& one : transports_) {
      if (one.spec.name() != wanted.name() || !one.spec.factory().same(wanted.factory())) continue;
      // Its last user may release it at this moment, on another thread.
      if (std::shared_ptr<transport::Transport> found = one.transport.lock()) return found;
    }
    std::shared_ptr<transport::Transport> made = wanted.factory().make();
    if (made == nullptr) return nullptr;
    if (made->name() != wanted.name()) {
      throw std::logic_error("hawser: the factory of transport \"" + std::string(wanted.name()) +
                             "\" made one named \"" + std::string(made->name()) + "\": both must have the same name");
    }
    transports_.push_back({wanted, made});
    return made;
  }

  transport::TcpNetwork streams_;
  std::mutex mutex_;  // Guards paths_.
  std::vector<InUse> transports_;
};

}  // namespace

// One for all clients and servers of the process that exist at a time: what they share, such as a device's memory, is
// shared by it.
std::shared_ptr<transport::Network> system_network() {
  static std::mutex mutex;
  static std::weak_ptr<transport::Network> in_use;
  const std::lock_guard lock(mutex);
  std::shared_ptr<transport::Network> network = in_use.lock();
  if (network == nullptr) in_use = network = std::make_shared<SystemNetwork>();
  return network;
}

}  // namespace hawser::setup

// The constructors that users call: what they are made of is decided here.
namespace hawser {

Server::Server(ServerOptions options) : Server(setup::system_network(), std::move(options)) {}
Server::Server(Loop& loop, ServerOptions options) : Server(loop, setup::system_network(), std::move(options)) {}

Client::Client(ClientOptions options) : Client(nullptr, setup::system_network(), std::move(options)) {}
Client::Client(Loop& loop, ClientOptions options) : Client(&loop, setup::system_network(), std::move(options)) {}

std::shared_ptr<ClientPool> ClientPool::create(Loop& loop, std::string address, PoolOptions options) {
  return create(loop, setup::system_network(), std::move(address), std::move(options));
}
std::shared_ptr<ClientPool> ClientPool::create(std::string address, PoolOptions options) {
  Loop* const loop = Loop::current();
  if (loop == nullptr) throw std::logic_error("hawser: no loop runs here: give ClientPool::create() a loop");
  return create(*loop, std::move(address), std::move(options));
}

}  // namespace hawser
