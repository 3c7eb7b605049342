#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hawser/hawser.h"

namespace hawser::testing {

// Behaviour of the simulated network. Probabilities lie in [0, 1]. Values from a range are drawn uniformly. A
// connection is a byte stream as with TCP: it loses no bytes unless it breaks.
struct NetworkOptions {
  // One-way delay, drawn for every send. Bytes of one direction stay in order, but connections overtake each other.
  Duration delay_min = std::chrono::microseconds(20);
  Duration delay_max = std::chrono::microseconds(200);
  std::uint64_t bytes_per_second = 0;  // Limit of each direction of a connection; 0: no limit.
  // Drawn for each direction of a connection: limit of the bytes that were sent and that the receiver has not read yet.
  // At least 512.
  std::size_t buffer_bytes_min = 64 * 1024;
  std::size_t buffer_bytes_max = 256 * 1024;

  double refuse = 0;      // An attempt to connect is refused.
  double unanswered = 0;  // An attempt to connect gets no answer until its timeout.
  // The fault of a connection is drawn at its start. It happens when one direction has carried up to fault_bytes_max
  // bytes, or after up to fault_after_max.
  double reset = 0;   // The connection breaks. Bytes behind that point are lost, and both ends are notified.
  double vanish = 0;  // The connection falls silent: bytes of one direction or both are lost, and nobody is notified.
  std::size_t fault_bytes_max = 4096;
  Duration fault_after_max = std::chrono::milliseconds(100);
};

struct SimulationOptions {
  NetworkOptions network = {};
  // Limits of a run. Simulation::run() throws RunFailed when it exceeds one.
  Duration time_max = std::chrono::hours(24);  // In virtual time.
  std::uint64_t turns_max = 20'000'000;        // Turns of the loop: detects coroutines that run without a pause.
};

// Thrown by Simulation::run() if the body cannot end, and by Simulation::require().
class RunFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class SimServer;

// A loop in virtual time, and a network within the process, whose events follow from a seed. Clients, servers and pools
// that are created on the loop meet over this network, with any "host:port" as addresses, and with the same code as in
// production. Only waiting moves the time, so that a run takes no longer than its work. Everything belongs to the
// thread that runs the simulation. Handlers with HandlerOptions::offload, and Loop::offload(), run on that thread too.
// Servers that make threads of their own (a Server without a Loop) cannot use the network.
class Simulation {
 public:
  explicit Simulation(std::uint64_t seed, SimulationOptions options = {});
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;
  ~Simulation();

  std::uint64_t seed() const noexcept;
  Loop& loop() noexcept;
  // Virtual time since the start.
  Duration elapsed() const noexcept;

  // Runs the loop until `body` has ended, and returns its result. Exceptions of the body leave this function. If the
  // body waits and no event is due any more, or if a limit is exceeded, the body ends where it is suspended, and the
  // function throws RunFailed. No run is possible after that.
  template <class T>
  T run(Task<T> body) {
    return loop().run(std::move(body));
  }

  // ---- Random choices of the test. They follow from the seed and do not change those of the network.
  std::uint64_t below(std::uint64_t bound) noexcept;  // In [0, bound); bound is not 0.
  bool chance(double probability) noexcept;
  Duration between(Duration least, Duration most) noexcept;

  // ---- Hosts and servers
  // The runtime of a host, which is created by its first use. A client or pool whose ClientOptions::runtime it is
  // connects from that host. Without it, the host is "client".
  std::shared_ptr<Runtime> host(std::string_view name);
  // Starts a server at "host:port". `setup(server)` registers its handlers, now and at each restart. A value that it
  // returns, such as a std::unique_ptr to the object with the handlers, is destroyed after the server; state that a
  // crash must not lose lives outside. Throws RunFailed if the server does not start. The reference is valid as long as
  // the Simulation.
  template <class Setup>
  SimServer& serve(std::string address, Setup setup, ServerOptions options = {});

  // ---- Faults, from now on
  // Delays, buffers and faults of existing connections stay as they were drawn.
  void set_network(const NetworkOptions& options);
  // Separates two hosts, or one host from all others. Bytes that are sent meanwhile arrive when the partition has
  // ended, if their connections still exist. Attempts to connect are repeated each second until their timeout.
  void partition(std::string_view a, std::string_view b);
  void partition(std::string_view host);
  // Keeps what `from` sends from `to`; the other direction works. An empty name is every other host; two are all hosts,
  // each from all others. Acknowledgements are not modelled. Neither host can connect to the other one. end_partition()
  // and end_partitions() end it.
  void partition_one_way(std::string_view from, std::string_view to);
  void end_partition(std::string_view a, std::string_view b);
  void end_partition(std::string_view host);
  void end_partitions();
  // Breaks all connections, or those of a host.
  void reset_connections();
  void reset_connections(std::string_view host);

  // ---- Checks, for any test framework
  // Records a failure if `condition` is false, and returns it.
  bool expect(bool condition, std::string_view text, std::source_location where = std::source_location::current());
  // Throws RunFailed if `condition` is false.
  void require(bool condition, std::string_view text, std::source_location where = std::source_location::current());
  // Texts of failed expectations, in order; the first 100.
  const std::vector<std::string>& failures() const noexcept;

  // Hash of all events of the network so far. Two runs of one seed that differ depend on something besides the seed.
  std::uint64_t trace() const noexcept;
  // The last 50 lines of the log of clients, servers and loop, with their virtual times.
  std::vector<std::string> log_lines() const;

 private:
  friend class SimServer;
  struct State;
  SimServer& add_server(std::string address, std::function<std::shared_ptr<void>(Server&)> setup,
                        ServerOptions options);
  std::unique_ptr<State> state_;
};

// Kinds of crashes.
enum class Crash : std::uint8_t {
  process,  // The process ends. The host breaks its connections, and refuses new ones.
  // The host falls silent with all its servers. When one of them restarts, the host breaks the connections of its
  // earlier life.
  machine,
};

// A server of a simulation, with its crashes and restarts. Its functions are called by the body of the test or by its
// tasks, not by handlers of this server.
class SimServer {
 public:
  SimServer(const SimServer&) = delete;
  SimServer& operator=(const SimServer&) = delete;
  ~SimServer();

  const std::string& address() const noexcept;
  bool running() const noexcept;
  // Valid until the next crash() or shut_down(). Throws std::logic_error while it does not run.
  Server& server();
  // Ends the server at once. Its coroutines end where they are suspended; nothing that they would send arrives any
  // more. The value that `setup` returned is destroyed.
  void crash(Crash how = Crash::process);
  // Ends the server as Server::shut_down() does.
  Task<void> shut_down(Duration grace);
  // Starts a new server at the same address. Throws std::logic_error while it runs, RunFailed if it does not start.
  void restart();

 private:
  friend class Simulation;
  struct State;
  explicit SimServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

template <class Setup>
SimServer& Simulation::serve(std::string address, Setup setup, ServerOptions options) {
  auto begin = [setup = std::move(setup)](Server& server) mutable -> std::shared_ptr<void> {
    using Kept = std::invoke_result_t<Setup&, Server&>;
    if constexpr (std::is_void_v<Kept>) {
      setup(server);
      return nullptr;
    } else {
      return std::make_shared<Kept>(setup(server));
    }
  };
  return add_server(std::move(address), std::move(begin), std::move(options));
}

}  // namespace hawser::testing
