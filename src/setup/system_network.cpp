#include "setup/system_network.h"

#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "hawser/client.h"
#include "hawser/client_pool.h"
#include "hawser/server.h"
#include "transport/rdma/rdma_path.h"
#include "transport/shm/shm_path.h"
#include "transport/tcp/tcp_network.h"
#include "transport/ucx/ucx_path.h"

namespace hawser::setup {
namespace {

// Paths of one kind that are in use, so that connections with the same options share queues and memory.
template <class Options>
class PathsInUse {
 public:
  template <class Make>
  std::shared_ptr<transport::DataPath> get(const Options& options, Make make) {
    std::erase_if(paths_, [](const auto& one) { return one.second.expired(); });
    for (const auto& [with, path] : paths_) {
      // The last user may let go of it just now, on another thread.
      if (std::shared_ptr<transport::DataPath> found = with == options ? path.lock() : nullptr) return found;
    }
    std::shared_ptr<transport::DataPath> made = make(options);
    if (made != nullptr) paths_.emplace_back(options, made);
    return made;
  }

 private:
  std::vector<std::pair<Options, std::weak_ptr<transport::DataPath>>> paths_;
};

class SystemNetwork final : public transport::Network {
 public:
  Result<std::unique_ptr<transport::Listener>> listen(Loop& loop, std::string_view address,
                                                      transport::AcceptSink& sink) override {
    return streams_.listen(loop, address, sink);
  }
  Task<Result<std::unique_ptr<transport::Stream>>> connect(Loop& loop, std::string address, Duration timeout) override {
    return streams_.connect(loop, std::move(address), timeout);
  }
  std::vector<std::shared_ptr<transport::DataPath>> data_paths(const TransportOptions& options) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<transport::DataPath>> all;
    // A path that this build does not have is not there.
    const auto add = [&all](std::shared_ptr<transport::DataPath> path) {
      if (path != nullptr) all.push_back(std::move(path));
    };
    if (options.shm) {
      add(shm_.get(*options.shm, [](const ShmOptions& wanted) { return transport::make_shm_path(wanted); }));
    }
    if (options.ucx) add(ucx_.get(*options.ucx, transport::make_ucx_path));
    if (options.rdma) {
      add(rdma_.get(*options.rdma, [](const RdmaOptions& wanted) { return transport::make_rdma_path(wanted); }));
    }
    return all;
  }

 private:
  transport::TcpNetwork streams_;
  std::mutex mutex_;  // Guards the rest.
  PathsInUse<ShmOptions> shm_;
  PathsInUse<UcxOptions> ucx_;
  PathsInUse<RdmaOptions> rdma_;
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
