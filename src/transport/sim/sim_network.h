#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "transport/network.h"

namespace hawser::transport {

struct SimState;

// How a simulated network behaves. Chances lie in [0, 1]; what is drawn from a range is drawn evenly.
struct SimOptions {
  // One way, drawn for every send; bytes of one direction stay in order, connections overtake each other.
  Duration delay_min = std::chrono::microseconds(20);
  Duration delay_max = std::chrono::microseconds(200);
  std::uint64_t bytes_per_second = 0;  // Of each direction; 0 is no limit.
  // Drawn for each direction: bytes sent and not yet taken by the receiver. At least 512, so that a hello fits.
  std::size_t buffer_bytes_min = 64 * 1024;
  std::size_t buffer_bytes_max = 256 * 1024;

  double short_send = 0;     // A send takes a random part of what there is room for.
  double short_receive = 0;  // The receiver is handed 1 to short_receive_bytes_max bytes.
  std::size_t short_receive_bytes_max = 64;
  double slow_receive = 0;  // The receiver takes no notice of what has come for up to slow_receive_max.
  Duration slow_receive_max = std::chrono::milliseconds(5);

  double refuse = 0;      // An attempt to connect is refused.
  double unanswered = 0;  // An attempt to connect gets no answer until its timeout.

  // What becomes of a connection is drawn at its start, and happens when one direction has carried up to
  // fault_bytes_max bytes, or after up to fault_after_max.
  double reset = 0;   // Breaks: the bytes behind that point are lost, each end is told after a delay.
  double vanish = 0;  // Falls silent: bytes of one direction or both get lost, and nobody is told.
  // Of transports beside the streams (sim_transport.h).
  bool transports = false;        // There are any.
  double transport_absent = 0;    // A loop can't have its end, each time that it is tried.
  double transport_declined = 0;  // A pending connection can't be made.
  double transport_reset = 0;     // As reset and vanish.
  double transport_vanish = 0;
  // A transport whose packets are longer than this falls silent with the first message that is. They have 4096 bytes,
  // or 1024 or 256 once the client asked for shorter ones.
  std::size_t path_mtu_max = SIZE_MAX;
  // A pending connection takes up to so long to be made, and to be connected.
  Duration transport_ready_max = Duration::zero();
  std::size_t fault_bytes_max = 256 * 1024;
  Duration fault_after_max = std::chrono::seconds(2);
};

// A network within one process, over virtual time: everything that happens is a timer of the loop, drawn from a seed,
// so that a run replays. All its users live on one loop with the simulated poller. Sinks are called by timers only,
// never from within a call of a stream. Addresses are any "name:port"; port 0 takes a free one.
class SimNetwork final : public Network {
 public:
  explicit SimNetwork(std::uint64_t seed, SimOptions options = {});
  ~SimNetwork() override;

  Result<std::unique_ptr<Listener>> listen(Loop& loop, std::string_view address, AcceptSink& sink) override;
  Task<Result<std::unique_ptr<Stream>>> connect(Loop& loop, std::string address, Duration timeout) override;

  // "simpath" where TransportOptions::order names it.
  std::vector<std::shared_ptr<Transport>> transports(const TransportOptions& options) override;
  std::vector<std::string_view> transport_names() const override { return {"simpath"}; }

  // From now on; buffers and faults of connections that exist stay as they were drawn.
  void set_options(const SimOptions& options);
  // Breaks every connection, at the next turn of the loop.
  void reset_all();
  // Breaks the streams and leaves the transports.
  void reset_streams();
  // Breaks every transport; the streams stay.
  void reset_transports();
  // Every transport falls silent; the streams stay.
  void vanish_transports();
  // Every connection falls silent.
  void vanish_all();

  // A hash of all that has happened: times, connections, kinds, bytes.
  std::uint64_t trace() const noexcept;
  std::uint64_t events() const noexcept;
  // Ends of connections that exist.
  std::size_t streams() const noexcept;

 private:
  std::shared_ptr<SimState> state_;
};

}  // namespace hawser::transport
