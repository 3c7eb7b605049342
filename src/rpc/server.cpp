#include "hawser/server.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "base/pin_thread.h"
#include "rpc/server_state.h"

namespace hawser {

using rpc::ServerLoop;

Server::Server(Loop& loop, std::shared_ptr<transport::Network> network, ServerOptions options)
    : state_(std::make_unique<State>(std::move(network), std::move(options))) {
  state_->callers_loop = &loop;
}

Server::Server(std::shared_ptr<transport::Network> network, ServerOptions options)
    : state_(std::make_unique<State>(std::move(network), std::move(options))) {}

Server::~Server() {
  if (state_->callers_loop == nullptr) stop(Duration::zero());
}

void Server::add_handler(MethodKey key, std::unique_ptr<detail::Handler> handler) {
  if (state_->started) throw std::logic_error("hawser: register handlers before the server starts");
  state_->shared.dispatcher.add(
      key.id, {.signature = key.signature, .name = std::string(key.name), .handler = std::move(handler)});
}

void Server::enable_rdma(RdmaOptions options) { state_->transports().rdma = std::move(options); }
void Server::enable_ucx(UcxOptions options) { state_->transports().ucx = std::move(options); }
void Server::enable_shm(ShmOptions options) { state_->transports().shm = std::move(options); }

Result<void> Server::start() { return state_->start(); }

Result<void> Server::run() {
  if (state_->callers_loop != nullptr) {
    return fail(ErrorCode::invalid_argument, "this server is on a loop of the caller's: start() it and run that loop");
  }
  if (Result<void> started = start(); !started) return started;
  state_->ended.wait(false);
  return {};
}

void Server::stop(Duration grace) { state_->stop(grace); }

Task<void> Server::shut_down(Duration grace) { return state_->shut_down(grace); }

std::string Server::address() const { return state_->address; }

ServerCounters Server::counters() const { return state_->counters(); }

std::vector<std::shared_ptr<transport::DataPath>> Server::data_paths() const {
  return state_->shared.network->data_paths(state_->shared.options.transports);
}

// ---- State ----

TransportOptions& Server::State::transports() {
  if (started) throw std::logic_error("hawser: enable transports before the server starts");
  return shared.options.transports;
}

Result<void> Server::State::start() {
  if (std::exchange(started, true)) return fail(ErrorCode::invalid_argument, "the server was started before");
  const TransportOptions& chosen = shared.options.transports;
  if (Result<void> known = rpc::check_names(chosen, shared.network->data_paths(chosen)); !known) return known;
  if (Result<void> held = hold_latency(); !held) return held;
  if (callers_loop != nullptr) {
    loops.push_back(std::make_unique<ServerLoop>(*callers_loop, shared));
    loops.back()->prepare();
    return listen();
  }
  const unsigned count = shared.options.threads == 0 ? 1 : shared.options.threads;
  for (unsigned i = 0; i < count; ++i) {
    own_loops.push_back(std::make_unique<Loop>(shared.options.loop));
    loops.push_back(std::make_unique<ServerLoop>(*own_loops.back(), shared));
  }
  if (Result<void> listening = listen(); !listening) {
    loops.clear();
    own_loops.clear();
    cpu_latency.reset();
    return listening;
  }
  for (unsigned i = 0; i < count; ++i) {
    threads.emplace_back([this, i] {
      const std::vector<int>& cpus = shared.options.cpus;
      if (!cpus.empty()) {
        const int cpu = cpus[i % cpus.size()];
        if (!pin_thread(cpu)) {
          own_loops[i]->log(LogLevel::warning, "rpc", "cannot pin a thread to processor " + std::to_string(cpu));
        }
      }
      own_loops[i]->post([this, i] { loops[i]->prepare(); });
      own_loops[i]->run();
    });
  }
  return {};
}

Result<void> Server::State::hold_latency() {
  if (!shared.options.cpu_latency_max) return {};
  Result<CpuLatency> held = CpuLatency::hold(*shared.options.cpu_latency_max);
  if (!held) return std::unexpected(std::move(held.error()));
  cpu_latency = std::move(*held);
  return {};
}

Result<void> Server::State::listen() {
  Result<std::unique_ptr<transport::Listener>> made =
      shared.network->listen(loops.front()->loop(), shared.options.listen, *this);
  if (!made) return std::unexpected(std::move(made.error()));
  listener = std::move(*made);
  address = listener->address();
  return {};
}

// On the first loop: spreads connections in turn, which is even as long as they live alike.
void Server::State::accepted(std::unique_ptr<transport::Stream> stream) {
  ServerLoop& target = *loops[next_loop++ % loops.size()];
  if (&target == loops.front().get()) return target.adopt(std::move(stream));
  target.loop().post([&target, moved = std::move(stream)]() mutable { target.adopt(std::move(moved)); });
}

void Server::State::stop(Duration grace) {
  if (callers_loop != nullptr) {
    throw std::logic_error("hawser: a server on a loop of the caller's is stopped by co_await shut_down()");
  }
  const std::lock_guard lock(stopping);
  if (threads.empty()) return;
  std::vector<Scope> closing(loops.size());
  for (std::size_t i = 0; i < loops.size(); ++i) {
    Loop& loop = *own_loops[i];
    loop.post([this, i, grace, &loop, &closing] {
      if (i == 0) listener.reset();
      closing[i].spawn([](ServerLoop& part, Duration bound, Loop& its_loop) -> Task<void> {
        auto done = part.shut_down(bound);
        co_await std::move(done);
        its_loop.stop();
      }(*loops[i], grace, loop));
    });
  }
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  {
    const std::lock_guard guard(counting);
    ended_counters = sum();
    loops.clear();
  }
  own_loops.clear();
  cpu_latency.reset();
  ended.store(true);
  ended.notify_all();
}

Task<void> Server::State::shut_down(Duration grace) {
  if (callers_loop == nullptr) throw std::logic_error("hawser: a server with loops of its own is stopped by stop()");
  listener.reset();
  if (loops.empty()) co_return;
  auto done = loops.front()->shut_down(grace);
  co_await std::move(done);
  cpu_latency.reset();
}

ServerCounters Server::State::counters() const {
  const std::lock_guard guard(counting);
  return sum();
}

ServerCounters Server::State::sum() const {
  ServerCounters all = ended_counters;
  for (const auto& loop : loops) {
    const rpc::LoopCounters& one = loop->counters();
    all.connections_accepted += one.accepted.get();
    all.connections_open += one.open.get();
    all.connections_refused += one.refused.get();
    all.handshakes_failed += one.handshakes_failed.get();
    all.calls += one.calls.get();
    all.calls_refused += one.calls_refused.get();
    all.protocol_errors += one.protocol_errors.get();
    all.paths_declined += one.paths_declined.get();
  }
  all.calls_in_flight = shared.calls_in_flight.load();
  return all;
}

}  // namespace hawser
