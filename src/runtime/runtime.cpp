#include "hawser/runtime.h"

#include <atomic>
#include <stdexcept>
#include <utility>

#include "hawser/client.h"
#include "hawser/client_pool.h"
#include "hawser/server.h"
#include "os/process_id.h"
#include "runtime/runtime_network.h"

namespace hawser {
namespace {

// The default runtime of one process. It is never destroyed: clients and servers in static variables may outlive every
// static variable of the library.
struct ProcessRuntime {
  int process;
  std::shared_ptr<Runtime> runtime;
  ProcessRuntime* parents;  // The parent's, in a child by fork(); never used again.
};

LoopOptions without_runtime(LoopOptions options) {
  options.runtime.reset();
  return options;
}

// Returns the runtime that applies: that of the options, else that of the loop, else that of the process.
std::shared_ptr<transport::Network> network_of(const std::shared_ptr<Runtime>& chosen, const LoopOptions* loop) {
  if (chosen != nullptr) return chosen->network();
  if (loop != nullptr && loop->runtime != nullptr) return loop->runtime->network();
  return Runtime::process_default()->network();
}

std::shared_ptr<transport::Network> network_of(const std::shared_ptr<Runtime>& chosen, const Loop* loop) {
  return network_of(chosen, loop == nullptr ? nullptr : &loop->options());
}

}  // namespace

Runtime::Runtime(RuntimeOptions options)
    : loop_(without_runtime(std::move(options.loop))),
      network_(std::make_shared<runtime::RuntimeNetwork>(std::move(options.log))) {}

Runtime::Runtime(RuntimeOptions options, std::shared_ptr<transport::Network> network)
    : loop_(without_runtime(std::move(options.loop))), network_(std::move(network)) {}

Runtime::~Runtime() = default;

std::shared_ptr<Runtime> Runtime::make(RuntimeOptions options) {
  return std::shared_ptr<Runtime>(new Runtime(std::move(options)));
}

// No lock is taken: another thread could hold it during fork().
std::shared_ptr<Runtime> Runtime::process_default() {
  static constinit std::atomic<ProcessRuntime*> current{nullptr};
  const int process = process_id();
  ProcessRuntime* present = current.load(std::memory_order_acquire);
  if (present != nullptr && present->process == process) return present->runtime;
  auto made = std::make_unique<ProcessRuntime>(process, make(), present);
  while (!current.compare_exchange_weak(present, made.get(), std::memory_order_acq_rel, std::memory_order_acquire)) {
    if (present != nullptr && present->process == process) return present->runtime;  // Another thread was first.
    made->parents = present;
  }
  return made.release()->runtime;
}

RuntimeCounters Runtime::counters() const {
  const auto* const network = dynamic_cast<const runtime::RuntimeNetwork*>(network_.get());
  if (network == nullptr) return {};  // A simulated network.
  return {.transports = network->in_use(), .transports_not_shared = network->not_shared()};
}

LoopOptions Runtime::loop_options() {
  LoopOptions options = loop_;
  options.runtime = shared_from_this();
  return options;
}

// The constructors of the public API choose here what they are built from. Braces, since their elements are evaluated
// in order: the network is chosen before the options are moved.

Server::Server(ServerOptions options)
    : Server{nullptr, network_of(options.runtime, &options.loop), std::move(options)} {}
Server::Server(Loop& loop, ServerOptions options)
    : Server{&loop, network_of(options.runtime, &loop), std::move(options)} {}

Client::Client(ClientOptions options)
    : Client{nullptr, network_of(options.runtime, Loop::current()), std::move(options)} {}
Client::Client(Loop& loop, ClientOptions options)
    : Client{&loop, network_of(options.runtime, &loop), std::move(options)} {}

std::shared_ptr<ClientPool> ClientPool::create(Loop& loop, std::string address, PoolOptions options) {
  std::shared_ptr<transport::Network> network = network_of(options.client.runtime, &loop);
  return create(loop, std::move(network), std::move(address), std::move(options));
}
std::shared_ptr<ClientPool> ClientPool::create(std::string address, PoolOptions options) {
  Loop* const loop = Loop::current();
  if (loop == nullptr) throw std::logic_error("hawser: no loop runs here: give ClientPool::create() a loop");
  return create(*loop, std::move(address), std::move(options));
}

}  // namespace hawser
