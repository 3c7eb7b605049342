#include "bench/baseline/baseline_client.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "bench/baseline/baseline_ring.h"
#include "bench/baseline/baseline_socket.h"
#include "bench/baseline/baseline_tls.h"
#include "bench/load/client_role.h"
#include "bench/load/handlers.h"
#include "bench/load/meter.h"

namespace hawser::bench {
namespace {

using Clock = Meter::Clock;

// Send times of the messages in flight: a ring of batches, since the messages of one send have the same time.
class Starts {
 public:
  explicit Starts(unsigned messages_max) : ring_(messages_max) {}

  void begin(std::uint64_t count, Clock::time_point now) noexcept {
    ring_[(first_ + batches_) % ring_.size()] = {now, count};
    ++batches_;
  }
  // Removes the oldest `count` messages and calls `take(start, count)` with the send time of each batch.
  template <class Take>
  void end(std::uint64_t count, Take take) {
    while (count > 0) {
      Batch& batch = ring_[first_];
      const std::uint64_t part = std::min(count, batch.count);
      take(batch.start, part);
      batch.count -= part;
      count -= part;
      if (batch.count > 0) return;
      if (++first_ == ring_.size()) first_ = 0;
      --batches_;
    }
  }

 private:
  struct Batch {
    Clock::time_point start;
    std::uint64_t count;
  };
  std::vector<Batch> ring_;  // No batch is empty.
  std::size_t first_ = 0;
  std::size_t batches_ = 0;
};

// State that all connections share. They run in turn, on one thread.
struct BaselineShared {
  explicit BaselineShared(Meter& of) : meter(of) {}
  Meter& meter;
  BaselineStream stream;
  Clock::time_point now = Clock::now();
  char buffer[BaselineStream::bytes_max];  // Receive buffer of all sockets.
};

// Keeps messages in flight on one connection: sends another message for each complete reply.
template <class Channel>
class BaselineCaller {
 public:
  BaselineCaller(Channel channel, std::size_t size_bytes, std::size_t reply_bytes, unsigned in_flight,
                 BaselineShared& shared)
      : channel_(std::move(channel)),
        size_bytes_(size_bytes),
        reply_bytes_(reply_bytes),
        in_flight_(in_flight),
        shared_(shared),
        starts_(in_flight) {}

  int descriptor() const noexcept { return channel_.descriptor(); }
  bool ended() const noexcept { return channel_.lost(); }
  bool blocked() const noexcept { return to_send_bytes_ > 0; }

  bool pump() {
    if (!begun_) [[unlikely]] {
      begun_ = true;
      begin(in_flight_);
    }
    const std::string_view bytes = channel_.receive(BaselineStream::bytes_max);
    if (!bytes.empty()) take(bytes);
    const bool sent = to_send_bytes_ > 0 && send();
    return !bytes.empty() || sent;
  }

 private:
  void begin(std::uint64_t messages) {
    starts_.begin(messages, shared_.now);
    to_send_bytes_ += messages * size_bytes_;
  }

  void take(std::string_view bytes) {
    if (!shared_.stream.matches(received_bytes_, bytes)) [[unlikely]]
      shared_.meter.fail("what comes back is not what was sent");
    received_bytes_ += bytes.size();
    partial_bytes_ += bytes.size();
    if (partial_bytes_ < reply_bytes_) return;
    const std::uint64_t ended = partial_bytes_ / reply_bytes_;
    partial_bytes_ -= ended * reply_bytes_;
    const Clock::time_point now = shared_.now = Clock::now();
    if (cold_ > 0) [[unlikely]] {
      const auto warmed = static_cast<unsigned>(std::min<std::uint64_t>(cold_, ended));
      cold_ -= warmed;
      shared_.meter.warm(warmed);
    }
    starts_.end(ended, [&](Clock::time_point start, std::uint64_t part) { shared_.meter.record(start, now, part); });
    begin(ended);
  }

  bool send() {
    bool any = false;
    while (to_send_bytes_ > 0) {
      const std::size_t most = std::min<std::uint64_t>(to_send_bytes_, BaselineStream::bytes_max);
      const std::size_t sent = channel_.send(shared_.stream.window(sent_bytes_).substr(0, most));
      sent_bytes_ += sent;
      to_send_bytes_ -= sent;
      any = any || sent > 0;
      // The socket or ring is full. After a large part it is worthwhile to receive before the next attempt.
      if (sent < most || most == BaselineStream::bytes_max) break;
    }
    return any;
  }

  Channel channel_;
  const std::size_t size_bytes_;
  const std::size_t reply_bytes_;
  const unsigned in_flight_;
  BaselineShared& shared_;
  Starts starts_;
  unsigned cold_ = in_flight_;  // Messages in flight whose predecessors have had no reply yet.
  bool begun_ = false;
  std::uint64_t to_send_bytes_ = 0;
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t received_bytes_ = 0;
  std::uint64_t partial_bytes_ = 0;  // Bytes of the reply that has been received in part.
};

// Measures one cell; empty if the server was lost. `make` makes a channel from a socket, `pump` drives the callers
// until its condition is false.
template <class Channel, class Make, class Pump>
std::optional<CellResult> measure_over(const RunOptions& options, const std::string& address, pid_t server,
                                       const Cell& cell, Make make, Pump pump) {
  const unsigned calls = calls_at_once(options, cell);
  const unsigned connections = cell.mode == Mode::connections ? calls : 1;
  const bool ack = options.reply == ReplyKind::ack;
  const BaselineHello hello{.size_bytes = cell.size_bytes, .connections = connections, .ack = ack};
  const auto meter = std::make_unique<Meter>(options.seconds, calls, server);
  const auto shared = std::make_unique<BaselineShared>(*meter);
  std::vector<BaselineCaller<Channel>> callers;
  callers.reserve(connections);
  for (unsigned i = 0; i < connections; ++i) {
    callers.emplace_back(make(connect_baseline(address, hello), *shared), cell.size_bytes,
                         ack ? sizeof(Ack) : cell.size_bytes, calls / connections, *shared);
  }
  unsigned idle_polls = 0;
  Clock::time_point seen{};
  pump(std::span(callers), [&] {
    // Reading the clock is expensive, so polls without any reply do not read it each time.
    constexpr unsigned polls_per_clock = 64;
    if (shared->now == seen && (cell.wait == Wait::event || ++idle_polls % polls_per_clock == 0)) {
      return meter->go_on(Clock::now());
    }
    seen = shared->now;
    return meter->go_on(seen);
  });
  if (!meter->over()) return std::nullopt;
  return meter->result(cell);
}

std::optional<CellResult> measure(const RunOptions& options, const std::string& address, pid_t server,
                                  const Cell& cell) {
  if (cell.transport == "shm") {
    return measure_over<RingChannel>(
        options, address, server, cell,
        [](BaselineSocket socket, BaselineShared&) { return RingChannel::connect(std::move(socket)); },
        [](auto callers, auto go_on) { pump_rings(callers, go_on); });
  }
  if (cell.transport == "tls") {
    return measure_over<TlsChannel>(
        options, address, server, cell,
        [](BaselineSocket socket, BaselineShared& shared) {
          return TlsChannel::connect(std::move(socket), shared.buffer);
        },
        [&](auto callers, auto go_on) { pump_baseline(callers, cell.wait, go_on); });
  }
  return measure_over<SocketChannel>(
      options, address, server, cell,
      [](BaselineSocket socket, BaselineShared& shared) { return SocketChannel(std::move(socket), shared.buffer); },
      [&](auto callers, auto go_on) { pump_baseline(callers, cell.wait, go_on); });
}

}  // namespace

bool play_baseline_client(const RunOptions& options, const std::string& address, pid_t server,
                          const std::vector<Cell>& cells, const EventWriter& events) try {
  const std::string what = cells.front().transport == "shm" ? "baseline rings" : "baseline sockets";
  events.write(
      Connected{{.poller = what, .wait = std::string(to_string(cells.front().wait)), .version = HAWSER_VERSION},
                what,
                cells.front().transport});
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!events.write(CellBegun{i})) return false;
    const std::optional<CellResult> result = measure(options, address, server, cells[i]);
    if (!result) {
      events.write(Failed{"baseline: the server was lost"});
      return false;
    }
    events.write(*result);
  }
  return true;
} catch (const std::exception& error) {
  events.write(Failed{std::string("baseline: ") + error.what()});
  return false;
}

}  // namespace hawser::bench
