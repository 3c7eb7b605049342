#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "transport/network.h"

namespace hawser::transport {

struct SimState;

// Behaviour of a simulated network. Probabilities lie in [0, 1]. Values from a range are drawn uniformly.
struct SimOptions {
  // One-way delay, drawn for every send. Bytes of one direction stay in order, but connections overtake each other.
  Duration delay_min = std::chrono::microseconds(20);
  Duration delay_max = std::chrono::microseconds(200);
  std::uint64_t bytes_per_second = 0;  // Limit of each direction; 0: no limit.
  // Drawn for each direction: limit of the bytes that were sent and that the receiver has not read yet. At least 512,
  // so that a HELLO fits.
  std::size_t buffer_bytes_min = 64 * 1024;
  std::size_t buffer_bytes_max = 256 * 1024;

  double short_send = 0;     // A send accepts a random part of the bytes for which there is room.
  double short_receive = 0;  // The receiver gets only 1 to short_receive_bytes_max bytes.
  std::size_t short_receive_bytes_max = 64;
  double slow_receive = 0;  // The receiver notices arrived bytes only after up to slow_receive_max.
  Duration slow_receive_max = std::chrono::milliseconds(5);

  double refuse = 0;      // An attempt to connect is refused.
  double unanswered = 0;  // An attempt to connect gets no answer until its timeout.

  // The fault of a connection is drawn at its start. It happens when one direction has carried up to fault_bytes_max
  // bytes, or after up to fault_after_max.
  // The connection breaks: the bytes behind that point are lost, and each end is notified after a delay.
  double reset = 0;
  double vanish = 0;  // The connection falls silent: bytes of one direction or both are lost, and nobody is notified.
  // Faults of transports beside the streams (sim_transport.h).
  // Makes such transports: make_sim_transport, or null if there are none.
  std::shared_ptr<Transport> (*make_transport)(std::shared_ptr<SimState> state) = nullptr;
  double transport_absent = 0;    // A loop cannot get its worker; drawn for each attempt.
  double transport_declined = 0;  // A pending connection cannot be made.
  double transport_reset = 0;     // Like `reset` and `vanish`.
  double transport_vanish = 0;
  // Path MTU. A transport whose packets are longer falls silent with the first message that is longer than this.
  // Packets have 4096 bytes, or 1024 or 256 once the client requested shorter ones.
  std::size_t path_mtu_max = SIZE_MAX;
  // Limit of the time until a pending connection is made, and until it is connected.
  Duration transport_ready_max = Duration::zero();
  std::size_t fault_bytes_max = 256 * 1024;
  Duration fault_after_max = std::chrono::seconds(2);
};

// A network within one process, in virtual time. Every event is a timer of the loop and is drawn from a seed, so that a
// run can be replayed. All users live on one loop with the simulated poller. Sinks are called by timers only, never
// from within a call of a stream. Addresses are any "name:port"; port 0 selects a free one.
class SimNetwork final : public Network {
 public:
  explicit SimNetwork(std::uint64_t seed, SimOptions options = {});
  ~SimNetwork() override;

  Result<std::unique_ptr<Listener>> listen(Loop& loop, std::string_view address, AcceptSink& sink) override;
  Task<Result<std::unique_ptr<Stream>>> connect(Loop& loop, std::string address, Duration timeout) override {
    return connect_from(loop, "client", std::move(address), timeout);
  }
  // Returns the host of an address: its part before the last colon.
  static std::string_view host_of(std::string_view address) noexcept { return address.substr(0, address.rfind(':')); }
  // Connects from a host.
  Task<Result<std::unique_ptr<Stream>>> connect_from(Loop& loop, std::string host, std::string address,
                                                     Duration timeout);

  // Returns "simpath" if TransportOptions::order names it.
  std::vector<std::shared_ptr<Transport>> transports(const TransportOptions& options) override;
  std::vector<std::string_view> transport_names() const override { return {"simpath"}; }

  // Applies from now on. Buffers and faults of existing connections stay as they were drawn.
  void set_options(const SimOptions& options);
  // Breaks every connection in the next turn of the loop.
  void reset_all();
  // Breaks the streams but not the transports.
  void reset_streams();
  // Breaks every transport but not the streams.
  void reset_transports();
  // Makes every transport fall silent, but not the streams.
  void vanish_transports();
  // Makes every connection fall silent.
  void vanish_all();

  // Separates two hosts, or joins them again. An empty name stands for every host. As with TCP, bytes that are sent
  // meanwhile arrive afterwards, and attempts to connect are repeated each second until their timeout.
  void set_partition(std::string_view a, std::string_view b, bool separated);
  // Separates them in one direction only: what `from` sends does not arrive, and that of the other one does.
  void set_partition_one_way(std::string_view from, std::string_view to, bool separated);
  void end_partitions();
  // Breaks the connections of a host.
  void reset_host(std::string_view host);
  // Breaks the connections to a server whose process ends. Nothing that it sends from now on arrives.
  void reset_server(std::string_view address);
  // The host falls silent, and does not answer attempts to connect.
  void power_off(std::string_view host);
  // The host answers again. It does not know its earlier connections and breaks them.
  void power_on(std::string_view host);

  // Returns a hash of all events so far: times, connections, kinds, bytes.
  std::uint64_t trace() const noexcept;
  std::uint64_t events() const noexcept;
  // Returns the number of ends of connections that exist.
  std::size_t streams() const noexcept;

 private:
  std::shared_ptr<SimState> state_;
};

}  // namespace hawser::transport
