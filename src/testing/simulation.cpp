#include "hawser/testing/simulation.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "base/random.h"
#include "testing/host_network.h"
#include "testing/seconds.h"
#include "testing/virtual_poller.h"
#include "transport/network_access.h"

namespace hawser::testing {
namespace {

constexpr std::size_t failures_max = 100;
constexpr std::size_t log_lines_max = 50;

transport::SimOptions sim_options(const NetworkOptions& options) {
  transport::SimOptions sim;
  sim.delay_min = options.delay_min;
  sim.delay_max = options.delay_max;
  sim.bytes_per_second = options.bytes_per_second;
  sim.buffer_bytes_min = options.buffer_bytes_min;
  sim.buffer_bytes_max = options.buffer_bytes_max;
  sim.refuse = options.refuse;
  sim.unanswered = options.unanswered;
  sim.reset = options.reset;
  sim.vanish = options.vanish;
  sim.fault_bytes_max = options.fault_bytes_max;
  sim.fault_after_max = options.fault_after_max;
  if (options.delay_min < Duration::zero() || options.delay_min > options.delay_max) {
    throw std::invalid_argument("hawser: NetworkOptions::delay_min must lie between 0 and delay_max");
  }
  if (options.buffer_bytes_min < 512 || options.buffer_bytes_min > options.buffer_bytes_max) {
    throw std::invalid_argument("hawser: NetworkOptions::buffer_bytes_min must lie between 512 and buffer_bytes_max");
  }
  return sim;
}

std::string_view host_of(std::string_view address) { return transport::SimNetwork::host_of(address); }

std::string at(const std::source_location& where, std::string_view text) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": " + std::string(text);
}

// The last lines of the log. The sinks of clients and servers share it and may outlive the simulation.
struct Lines {
  std::deque<std::string> lines;
  const Loop* loop = nullptr;
  Time start{};
  void add(LogLevel level, std::string_view component, std::string_view text) {
    const Duration time = loop == nullptr ? Duration::zero() : loop->now() - start;
    if (lines.size() == log_lines_max) lines.pop_front();
    lines.push_back(seconds(time) + " " + std::string(to_string(level)) + " " + std::string(component) + ": " +
                    std::string(text));
  }
};

}  // namespace

struct SimServer::State {
  Simulation& simulation;
  const std::string address;
  const std::function<std::shared_ptr<void>(Server&)> setup;
  const ServerOptions options;
  std::shared_ptr<void> kept = {};  // Destroyed after the server.
  std::unique_ptr<Server> server = {};

  void end() {
    server.reset();
    kept.reset();
  }
};

struct Simulation::State {
  State(std::uint64_t with, const SimulationOptions& options)
      : seed(with),
        random(with),
        network(std::make_shared<transport::SimNetwork>(random.next(), sim_options(options.network))),
        choices(random.next()),
        poller(new VirtualPoller(random.next(), options.time_max, options.turns_max)),
        loop(std::unique_ptr<exec::Poller>(poller), loop_options()) {
    lines->loop = &loop;
    lines->start = loop.now();
    *loop_here = &loop;
  }
  ~State() {
    // The destructors of servers may log.
    servers.clear();
    lines->loop = nullptr;
    *loop_here = nullptr;
  }

  LogSink sink() {
    return [kept = lines](LogLevel level, std::string_view component, std::string_view text) {
      kept->add(level, component, text);
    };
  }
  LoopOptions loop_options() {
    LoopOptions made;
    made.log = sink();
    made.runtime = host("client");
    return made;
  }
  std::shared_ptr<Runtime> host(std::string_view name) {
    const auto found = hosts.find(name);
    if (found != hosts.end()) return found->second;
    auto over = std::make_shared<HostNetwork>(std::string(name), network, loop_here);
    auto runtime = transport::NetworkAccess::runtime(std::move(over), {.log = sink()});
    return hosts.emplace(std::string(name), std::move(runtime)).first->second;
  }

  const std::uint64_t seed;
  Random random;
  const std::shared_ptr<transport::SimNetwork> network;
  Random choices;
  const std::shared_ptr<Lines> lines = std::make_shared<Lines>();
  const std::shared_ptr<Loop*> loop_here = std::make_shared<Loop*>(nullptr);
  std::map<std::string, std::shared_ptr<Runtime>, std::less<>> hosts;
  VirtualPoller* const poller;  // Owned by the loop.
  Loop loop;
  std::deque<std::unique_ptr<SimServer>> servers;
  std::vector<std::string> failures;
};

Simulation::Simulation(std::uint64_t seed, SimulationOptions options)
    : state_(std::make_unique<State>(seed, options)) {}
Simulation::~Simulation() = default;

std::uint64_t Simulation::seed() const noexcept { return state_->seed; }
Loop& Simulation::loop() noexcept { return state_->loop; }
Duration Simulation::elapsed() const noexcept { return state_->poller->elapsed(); }

std::uint64_t Simulation::below(std::uint64_t bound) noexcept { return state_->choices.below(bound); }
bool Simulation::chance(double probability) noexcept { return state_->choices.chance(probability); }
Duration Simulation::between(Duration least, Duration most) noexcept {
  if (most <= least) return least;
  return least + Duration(static_cast<Duration::rep>(below(static_cast<std::uint64_t>((most - least).count()) + 1)));
}

std::shared_ptr<Runtime> Simulation::host(std::string_view name) { return state_->host(name); }

SimServer& Simulation::add_server(std::string address, std::function<std::shared_ptr<void>(Server&)> setup,
                                  ServerOptions options) {
  options.listen = address;
  options.runtime = host(host_of(address));
  auto state = std::unique_ptr<SimServer::State>(
      new SimServer::State{*this, std::move(address), std::move(setup), std::move(options)});
  std::unique_ptr<SimServer> server(new SimServer(std::move(state)));
  server->restart();
  state_->servers.push_back(std::move(server));
  return *state_->servers.back();
}

void Simulation::set_network(const NetworkOptions& options) { state_->network->set_options(sim_options(options)); }
void Simulation::partition(std::string_view a, std::string_view b) { state_->network->set_partition(a, b, true); }
void Simulation::partition(std::string_view host) { state_->network->set_partition(host, {}, true); }
void Simulation::partition_one_way(std::string_view from, std::string_view to) {
  state_->network->set_partition_one_way(from, to, true);
}
void Simulation::end_partition(std::string_view a, std::string_view b) { state_->network->set_partition(a, b, false); }
void Simulation::end_partition(std::string_view host) { state_->network->set_partition(host, {}, false); }
void Simulation::end_partitions() { state_->network->end_partitions(); }
void Simulation::reset_connections() { state_->network->reset_all(); }
void Simulation::reset_connections(std::string_view host) { state_->network->reset_host(host); }

bool Simulation::expect(bool condition, std::string_view text, std::source_location where) {
  if (!condition && state_->failures.size() < failures_max) state_->failures.push_back(at(where, text));
  return condition;
}

void Simulation::require(bool condition, std::string_view text, std::source_location where) {
  if (!condition) throw RunFailed(at(where, text));
}

const std::vector<std::string>& Simulation::failures() const noexcept { return state_->failures; }
std::uint64_t Simulation::trace() const noexcept { return state_->network->trace(); }
std::vector<std::string> Simulation::log_lines() const {
  return {state_->lines->lines.begin(), state_->lines->lines.end()};
}

// ---- SimServer ----

SimServer::SimServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
SimServer::~SimServer() { state_->server.reset(); }

const std::string& SimServer::address() const noexcept { return state_->address; }
bool SimServer::running() const noexcept { return state_->server != nullptr; }

Server& SimServer::server() {
  if (!running()) throw std::logic_error("hawser: the server " + address() + " does not run: restart() it first");
  return *state_->server;
}

void SimServer::crash(Crash how) {
  if (!running()) return;
  transport::SimNetwork& network = *state_->simulation.state_->network;
  const std::string_view host = host_of(address());
  if (how == Crash::process) {
    network.reset_server(address());
    state_->end();
    return;
  }
  network.power_off(host);
  for (const auto& other : state_->simulation.state_->servers) {
    if (host_of(other->address()) == host) other->state_->end();
  }
}

Task<void> SimServer::shut_down(Duration grace) {
  if (!running()) co_return;
  co_await state_->server->shut_down(grace);
  state_->end();
}

void SimServer::restart() {
  if (running()) throw std::logic_error("hawser: the server " + address() + " runs: crash() or shut_down() it first");
  state_->simulation.state_->network->power_on(host_of(address()));
  auto server = std::make_unique<Server>(state_->simulation.loop(), state_->options);
  std::shared_ptr<void> kept = state_->setup(*server);
  if (const Result<void> started = server->start(); !started) {
    throw RunFailed("the server " + address() + " did not start: " + started.error().describe());
  }
  state_->kept = std::move(kept);
  state_->server = std::move(server);
}

}  // namespace hawser::testing
