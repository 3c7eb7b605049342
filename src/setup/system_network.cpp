#include "setup/system_network.h"

#include <stdexcept>

#include "hawser/client.h"
#include "hawser/client_pool.h"
#include "hawser/server.h"
#include "transport/tcp/tcp_network.h"

namespace hawser::setup {

std::shared_ptr<transport::Network> system_network() { return std::make_shared<transport::TcpNetwork>(); }

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
