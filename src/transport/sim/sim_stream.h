#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/loop.h"
#include "hawser/transport/stream.h"
#include "transport/sim/sim_state.h"

namespace hawser::transport {

class SimStream;

// One direction of a connection: bytes in transit, in order.
struct SimPipe {
  struct Chunk {
    std::vector<std::byte> bytes;
    std::size_t used = 0;
    Time arrival;
  };
  std::deque<Chunk> chunks;
  std::size_t capacity = 0;
  std::size_t held = 0;                   // Bytes in chunks.
  std::uint64_t sent = 0;                 // Since the start; may exceed `cut`.
  std::uint64_t cut = ~std::uint64_t{0};  // Bytes from this position on are lost.
  Time last_arrival;
  bool silent = false;    // Nothing arrives any more.
  bool finished = false;  // The end follows the last chunk,
  Time end_arrival;       // and does not arrive before this time.

  std::size_t room() const noexcept { return capacity - held; }
  // Returns the number of bytes of the first chunk that have arrived by `now`.
  std::size_t arrived(Time now) const noexcept;
  void read(MutableBytes into) noexcept;
  // `arrival` is the arrival time of the first byte.
  void push(Bytes bytes, Time arrival, std::uint64_t bytes_per_second);
};

// A connection: two pipes, and its fault. Its ends own it.
class SimLink {
 public:
  enum class Kind : std::uint8_t { stream, transport };  // From SimNetwork::connect(), or from a SimTransport.
  SimLink(Loop& loop, std::shared_ptr<SimState> state, std::string client, std::string server,
          Kind kind = Kind::stream);
  SimLink(const SimLink&) = delete;
  SimLink& operator=(const SimLink&) = delete;
  ~SimLink();

  // Breaks the connection. Each end learns of it after a delay.
  void reset();
  void vanish();
  // Nothing that the client or the server sends arrives any more.
  void fall_silent(bool client, bool server);
  // Follows SimState::partitions.
  void update_partition();
  // True while bytes, ends and resets of a side do not arrive.
  bool separated(unsigned side) const noexcept { return separated_[side]; }
  // Returns whether one end is on that host.
  bool concerns(std::string_view host) const noexcept {
    return SimNetwork::host_of(addresses[0]) == host || SimNetwork::host_of(addresses[1]) == host;
  }
  // `side` has sent bytes. The fault may be due.
  void check_fault(unsigned side);

  Loop& loop;
  const std::shared_ptr<SimState> state;
  const std::uint64_t id;
  const std::array<std::string, 2> addresses;  // The client's and the server's. All pairs here have this order.
  std::array<SimPipe, 2> pipes;                // The bytes that each side sends.
  std::array<SimStream*, 2> ends{};            // Null once destroyed.
  const Kind kind;
  bool was_reset = false;

 private:
  enum class Fault : std::uint8_t { none, reset, vanish };
  void draw_fault();
  void trip();

  bool separated_from(unsigned side) const;
  std::array<bool, 2> separated_{};
  Fault fault_ = Fault::none;
  unsigned fault_side_ = 0;
  std::uint64_t fault_at_ = ~std::uint64_t{0};
  MemberTimer<&SimLink::trip> timer_;
};

// One end of a connection. It may be destroyed at any time between events. Bytes that it has sent still arrive,
// followed by its end.
class SimStream final : public Stream {
 public:
  SimStream(std::shared_ptr<SimLink> link, unsigned side);
  ~SimStream() override;

  void start(Loop& loop, StreamSink& sink) override;
  void set_sink(StreamSink& sink) noexcept override { sink_ = &sink; }
  std::size_t send(std::span<const ConstBuffer> pieces) override;
  void pause() noexcept override { paused_ = true; }
  void resume() override;
  void finish() noexcept override;
  bool reports_every_receive() const noexcept override { return true; }
  std::string_view transport() const noexcept override { return "sim"; }
  std::string peer() const override { return link_->addresses[1 - side_]; }
  std::string local() const override { return link_->addresses[side_]; }

  // ---- For the other end and the link
  void wake_reader();
  void room_freed();
  // The hosts are joined again: what was sent meanwhile arrives now.
  void partition_ended();
  // The hosts are joined again: what this end has sent meanwhile arrives now.
  void sent_arrives();
  // Sent bytes reach no receiver. Like TCP, a reset answers them after this time, if they arrive.
  void lose(Duration answer);
  // The connection is broken. The sink is notified at `when`.
  void break_at(Time when);

 private:
  SimState& state() const noexcept { return *link_->state; }
  SimPipe& outgoing() const noexcept { return link_->pipes[side_]; }
  SimPipe& incoming() const noexcept { return link_->pipes[1 - side_]; }
  SimStream* other() const noexcept { return link_->ends[1 - side_]; }
  Time now() const noexcept { return link_->loop.now(); }
  bool broken() const noexcept { return broken_at_ && *broken_at_ <= now(); }
  void receive();
  void receive_later();
  void notify_sendable();
  void notify_broken();
  void end(const char* text);

  const std::shared_ptr<SimLink> link_;
  const unsigned side_;
  StreamSink* sink_ = nullptr;  // Null until start().
  bool paused_ = false;
  bool ended_ = false;
  bool half_closed_ = false;  // The peer has ended its direction, and the sink still sends.
  bool blocked_ = false;      // A send was short, and sendable() must follow.
  std::optional<Time> broken_at_;
  bool break_waits_ = false;  // For the end of a partition.
  bool lost_waits_ = false;   // Bytes for an end that is gone wait for the end of a partition.
  MemberTimer<&SimStream::receive> reading_{*this};
  MemberTimer<&SimStream::notify_sendable> sending_{*this};
  MemberTimer<&SimStream::notify_broken> breaking_{*this};
};

}  // namespace hawser::transport
