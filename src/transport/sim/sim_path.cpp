#include "transport/sim/sim_path.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/little_endian.h"
#include "transport/common/framed_connection.h"
#include "transport/common/liveness.h"
#include "transport/sim/sim_stream.h"

namespace hawser::transport {
namespace {

// Messages over the path's own stream, beside the one that shows whether the peer lives.
class SimPathConnection final : public Connection, MessageSink {
 public:
  SimPathConnection(Loop& loop, std::shared_ptr<SimLink> link, std::unique_ptr<Stream> carrier,
                    std::unique_ptr<Stream> stream, const PathLimits& limits)
      : link_(std::move(link)),
        framed_(loop, std::move(carrier),
                {.message_bytes_max = limits.receive_bytes_max + FramedConnection::prefix_bytes}),
        liveness_(std::move(stream), [this](const Error& reason) { end(reason, reason.scope); }) {}

  std::string_view transport() const noexcept override { return "simpath"; }
  Capabilities capabilities() const noexcept override { return framed_.capabilities(); }
  std::string peer() const override { return liveness_.peer(); }
  void start(MessageSink& sink) override {
    sink_ = &sink;
    framed_.start(*this);
  }
  std::byte* reserve(std::size_t head_bytes) override { return framed_.reserve(head_bytes); }
  void commit(std::size_t head_bytes, std::span<const Piece> payload, PayloadOwner* owner) override {
    std::size_t bytes = head_bytes;
    for (const Piece& piece : payload) bytes += piece.size;
    if (std::min(bytes, packet_bytes_) > link_->state->options.path_mtu_max) link_->vanish();
    framed_.commit(head_bytes, payload, owner);
  }
  void detach(PayloadOwner& owner) override { framed_.detach(owner); }
  void unplace(const std::byte* memory) noexcept override { framed_.unplace(memory); }
  std::uint64_t committed() const noexcept override { return framed_.committed(); }
  std::uint64_t sent() const noexcept override { return framed_.sent(); }
  std::uint64_t arrived() const noexcept override { return framed_.arrived(); }
  std::size_t backlog() const noexcept override { return framed_.backlog(); }
  void set_backlog_mark(std::size_t bytes) noexcept override { framed_.set_backlog_mark(bytes); }
  void pause() noexcept override { framed_.pause(); }
  void resume() override { framed_.resume(); }
  bool paused() const noexcept override { return framed_.paused(); }
  void flush() override { framed_.flush(); }
  void close() override { framed_.close(); }
  void abort() noexcept override {
    sink_ = nullptr;
    framed_.abort();
    liveness_.close(link_->was_reset ? Liveness::Why::path_broke : Liveness::Why::ended);
  }

 private:
  void on_message(const Message& message) override {
    if (sink_ != nullptr) sink_->on_message(message);
  }
  Placement place(Bytes head, std::size_t payload_bytes) override {
    return sink_ != nullptr ? sink_->place(head, payload_bytes) : Placement{Placement::Kind::discard, {}};
  }
  hawser::detail::ReceiveAccount* receive_account() noexcept override { return sink_->receive_account(); }
  void on_drained() override {
    if (sink_ != nullptr) sink_->on_drained();
  }
  void on_closed(const Error& reason) override {
    end(reason, link_->was_reset ? ErrorScope::transport : ErrorScope::connection);
  }
  void end(Error reason, ErrorScope scope) {
    MessageSink* const told = std::exchange(sink_, nullptr);
    framed_.abort();
    liveness_.close(scope == ErrorScope::transport ? Liveness::Why::path_broke : Liveness::Why::ended);
    reason.scope = scope;
    if (told != nullptr) told->on_closed(reason);
  }

  const std::shared_ptr<SimLink> link_;
  const std::size_t packet_bytes_ = link_->state->path_packet_bytes;
  FramedConnection framed_;
  Liveness liveness_;
  MessageSink* sink_ = nullptr;
};

class SimPathHalf final : public PathHalf, StreamSink, Timer {
 public:
  SimPathHalf(Loop& loop, std::shared_ptr<SimState> state, std::shared_ptr<SimLink> link,
              std::unique_ptr<SimStream> carrier, const PathLimits& limits)
      : Timer(&SimPathHalf::fire),
        loop_(loop),
        state_(std::move(state)),
        link_(std::move(link)),
        carrier_(std::move(carrier)),
        limits_(limits) {
    carrier_->pause();
    carrier_->start(loop, *this);
  }
  ~SimPathHalf() override { state_->waiting_halves.erase(link_->id); }

  std::vector<std::byte> parameters() const override {
    std::vector<std::byte> bytes(8);
    store_le(bytes.data(), link_->id);
    return bytes;
  }
  Result<void> connect(Bytes client) override {
    if (client.size() != 8 || load_le<std::uint64_t>(client.data()) != link_->id) {
      return fail(ErrorCode::protocol_error, "the client answers with another half's id");
    }
    return {};
  }
  void when_ready(Ready ready) override { later(std::move(ready), {}); }
  void begin_connect(Bytes client, Ready ready) override { later(std::move(ready), connect(client)); }
  std::unique_ptr<Connection> open(std::unique_ptr<Stream> stream) override {
    return std::make_unique<SimPathConnection>(loop_, link_, std::move(carrier_), std::move(stream), limits_);
  }

 private:
  MutableBytes receive_space() override { return MutableBytes(space_); }
  void received(std::size_t) override {}
  void sendable(std::size_t) override {}
  void ended(const Error&) override {}

  void later(Ready ready, Result<void> outcome) {
    const Duration most = state_->options.path_ready_max;
    if (most == Duration::zero()) return ready(outcome);
    ready_ = std::move(ready);
    outcome_ = std::move(outcome);
    Timer::start(loop_, loop_.after(state_->between(Duration::zero(), most)));
  }
  static void fire(Timer& timer) noexcept {
    SimPathHalf& self = static_cast<SimPathHalf&>(timer);
    const Ready ready = std::exchange(self.ready_, nullptr);
    const Result<void> outcome = self.outcome_;
    ready(outcome);  // May destroy this.
  }

  Loop& loop_;
  const std::shared_ptr<SimState> state_;
  const std::shared_ptr<SimLink> link_;
  std::unique_ptr<SimStream> carrier_;
  const PathLimits limits_;
  std::array<std::byte, 1> space_{};
  Ready ready_;
  Result<void> outcome_;
};

class SimPathEnd final : public PathEnd {
 public:
  SimPathEnd(Loop& loop, std::shared_ptr<SimState> state) : loop_(loop), state_(std::move(state)) {}

  std::vector<std::byte> offer() override { return {}; }
  std::size_t probe_bytes() const noexcept override { return path_probe_bytes_max; }
  bool use_shorter_packets(Bytes) override {
    if (state_->path_packet_bytes == 256) return false;
    state_->path_packet_bytes /= 4;
    return true;
  }

  Result<std::unique_ptr<PathHalf>> propose(Bytes, const PathLimits& limits) override {
    if (state_->random.chance(state_->options.path_declined)) {
      return fail(ErrorCode::overloaded, "the simulation declines");
    }
    const auto link = std::make_shared<SimLink>(loop_, state_, "path", "path", SimLink::Kind::path);
    auto client = std::make_unique<SimStream>(link, 0);
    auto half = std::make_unique<SimPathHalf>(loop_, state_, link, std::make_unique<SimStream>(link, 1), limits);
    state_->waiting_halves.emplace(link->id, SimState::WaitingHalf{link, std::move(client)});
    return half;
  }

  Result<std::unique_ptr<PathHalf>> accept(Bytes server, const PathLimits& limits) override {
    if (state_->random.chance(state_->options.path_declined)) {
      return fail(ErrorCode::overloaded, "the simulation does not accept");
    }
    const auto at = server.size() == 8 ? state_->waiting_halves.find(load_le<std::uint64_t>(server.data()))
                                       : state_->waiting_halves.end();
    if (at == state_->waiting_halves.end()) return fail(ErrorCode::unavailable, "there is no such half");
    SimState::WaitingHalf taken = std::move(at->second);
    state_->waiting_halves.erase(at);
    return std::make_unique<SimPathHalf>(loop_, state_, std::move(taken.link), std::move(taken.stream), limits);
  }

 private:
  Loop& loop_;
  const std::shared_ptr<SimState> state_;
};

class SimPath final : public DataPath {
 public:
  explicit SimPath(std::shared_ptr<SimState> state) : state_(std::move(state)) {}
  std::string_view name() const noexcept override { return "simpath"; }
  Result<std::shared_ptr<PathEnd>> attach(Loop& loop) override {
    if (state_->random.chance(state_->options.path_absent)) {
      return fail(ErrorCode::unavailable, "the simulation has none here");
    }
    return std::make_shared<SimPathEnd>(loop, state_);
  }

 private:
  const std::shared_ptr<SimState> state_;
};

}  // namespace

std::shared_ptr<DataPath> make_sim_path(std::shared_ptr<SimState> state) {
  return std::make_shared<SimPath>(std::move(state));
}

}  // namespace hawser::transport
