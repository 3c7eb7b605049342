#include "transport/sim/sim_transport.h"

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

// Carries messages over the transport's own stream, beside the stream that shows the peer's liveness.
class SimTransportConnection final : public Connection, MessageSink {
 public:
  SimTransportConnection(Loop& loop, std::shared_ptr<SimLink> link, std::unique_ptr<Stream> carrier,
                         std::unique_ptr<Stream> stream, const MessageLimits& limits)
      : link_(std::move(link)),
        framed_(loop, std::move(carrier),
                {.message_limit = wire::MessageLimit::without_prefix(limits.receive_bytes_max)}),
        liveness_(std::move(stream), [this](Error reason) {
          const ErrorScope scope = reason.scope;
          end(std::move(reason), scope);
        }) {}

  std::string_view transport() const noexcept override { return "simpath"; }
  Capabilities capabilities() const noexcept override { return framed_.capabilities(); }
  std::string peer() const override { return liveness_.peer(); }
  void start(MessageSink& sink) override {
    sink_ = &sink;
    framed_.start(*this);
  }
  std::byte* reserve(std::size_t head_bytes) override { return framed_.reserve(head_bytes); }
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) override {
    std::size_t bytes = head_bytes;
    for (const ConstBuffer& piece : payload) bytes += piece.size;
    if (std::min(bytes, packet_bytes_) > link_->state->options.path_mtu_max) link_->vanish();
    framed_.commit(head_bytes, payload, owner);
  }
  void copy_and_release(SendCompletion& owner) override { framed_.copy_and_release(owner); }
  void revoke_receive_buffer(const std::byte* memory) noexcept override { framed_.revoke_receive_buffer(memory); }
  std::uint64_t committed() const noexcept override { return framed_.committed(); }
  std::uint64_t sent() const noexcept override { return framed_.sent(); }
  std::uint64_t arrived() const noexcept override { return framed_.arrived(); }
  std::size_t backlog() const noexcept override { return framed_.backlog(); }
  void set_high_watermark(std::size_t bytes) noexcept override { framed_.set_high_watermark(bytes); }
  void pause() noexcept override { framed_.pause(); }
  void resume() override { framed_.resume(); }
  bool paused() const noexcept override { return framed_.paused(); }
  void flush() override { framed_.flush(); }
  void close() override { framed_.close(); }
  void abort() noexcept override {
    sink_ = nullptr;
    framed_.abort();
    liveness_.close(link_->was_reset ? Liveness::Why::transport_broke : Liveness::Why::ended);
  }

 private:
  void on_message(const Message& message) override {
    if (sink_ != nullptr) sink_->on_message(message);
  }
  ReceiveBuffer select_receive_buffer(Bytes head, std::size_t payload_bytes) override {
    return sink_ != nullptr ? sink_->select_receive_buffer(head, payload_bytes)
                            : ReceiveBuffer{ReceiveBuffer::Kind::discard, {}};
  }
  hawser::detail::ReceiveAccount* receive_account() noexcept override { return sink_->receive_account(); }
  void on_drained() override {
    if (sink_ != nullptr) sink_->on_drained();
  }
  void on_closed(const Error& reason) override {
    end(reason, link_->was_reset ? ErrorScope::transport : ErrorScope::connection);
  }
  void end(Error reason, ErrorScope scope) {
    MessageSink* const sink = std::exchange(sink_, nullptr);
    framed_.abort();
    liveness_.close(scope == ErrorScope::transport ? Liveness::Why::transport_broke : Liveness::Why::ended);
    reason.scope = scope;
    if (sink != nullptr) sink->on_closed(reason);
  }

  const std::shared_ptr<SimLink> link_;
  const std::size_t packet_bytes_ = link_->state->transport_packet_bytes;
  FramedConnection framed_;
  Liveness liveness_;
  MessageSink* sink_ = nullptr;
};

class SimPendingConnection final : public PendingConnection, StreamSink {
 public:
  SimPendingConnection(Loop& loop, std::shared_ptr<SimState> state, std::shared_ptr<SimLink> link,
                       std::unique_ptr<SimStream> carrier, const MessageLimits& limits)
      : loop_(loop), state_(std::move(state)), link_(std::move(link)), carrier_(std::move(carrier)), limits_(limits) {
    carrier_->pause();
    carrier_->start(loop, *this);
  }
  ~SimPendingConnection() override { state_->unclaimed_connections.erase(link_->id); }

  std::vector<std::byte> parameters() const override {
    std::vector<std::byte> bytes(8);
    store_le(bytes.data(), link_->id);
    return bytes;
  }
  void when_ready(Ready ready) override { later(std::move(ready), {}); }
  void connect(Bytes client, Ready ready) override { later(std::move(ready), check_client(client)); }
  std::unique_ptr<Connection> open(std::unique_ptr<Stream> stream) override {
    return std::make_unique<SimTransportConnection>(loop_, link_, std::move(carrier_), std::move(stream), limits_);
  }

 private:
  MutableBytes receive_space() override { return MutableBytes(space_); }
  void received(std::size_t) override {}
  void sendable(std::size_t) override {}
  void ended(const Error&) override {}

  Result<void> check_client(Bytes client) const {
    if (client.size() == 8 && load_le<std::uint64_t>(client.data()) == link_->id) return {};
    return fail(ErrorCode::protocol_error, "the client answers with another half's id");
  }
  void later(Ready ready, Result<void> outcome) {
    const Duration most = state_->options.transport_ready_max;
    if (most == Duration::zero()) return ready(outcome);
    ready_ = std::move(ready);
    outcome_ = std::move(outcome);
    timer_.start(loop_, loop_.after(state_->between(Duration::zero(), most)));
  }
  void finish() noexcept {
    const Ready ready = std::exchange(ready_, nullptr);
    const Result<void> outcome = outcome_;
    ready(outcome);  // This may destroy the pending connection.
  }

  Loop& loop_;
  const std::shared_ptr<SimState> state_;
  const std::shared_ptr<SimLink> link_;
  std::unique_ptr<SimStream> carrier_;
  const MessageLimits limits_;
  std::array<std::byte, 1> space_{};
  Ready ready_;
  Result<void> outcome_;
  MemberTimer<&SimPendingConnection::finish> timer_{*this};
};

class SimTransportWorker final : public TransportWorker {
 public:
  SimTransportWorker(Loop& loop, std::shared_ptr<SimState> state) : loop_(loop), state_(std::move(state)) {}

  std::vector<std::byte> offer() override { return {}; }
  std::size_t probe_bytes() const noexcept override { return transport_probe_bytes_max; }
  bool use_shorter_packets(Bytes) override {
    if (state_->transport_packet_bytes == 256) return false;
    state_->transport_packet_bytes /= 4;
    return true;
  }

  Result<std::unique_ptr<PendingConnection>> select(Bytes, const MessageLimits& limits) override {
    if (state_->random.chance(state_->options.transport_declined)) {
      return fail(ErrorCode::overloaded, "the simulation declines");
    }
    const auto link = std::make_shared<SimLink>(loop_, state_, "path", "path", SimLink::Kind::transport);
    auto client = std::make_unique<SimStream>(link, 0);
    auto pending =
        std::make_unique<SimPendingConnection>(loop_, state_, link, std::make_unique<SimStream>(link, 1), limits);
    state_->unclaimed_connections.emplace(link->id, SimState::UnclaimedConnection{link, std::move(client)});
    return pending;
  }

  Result<std::unique_ptr<PendingConnection>> accept(Bytes server, const MessageLimits& limits) override {
    if (state_->random.chance(state_->options.transport_declined)) {
      return fail(ErrorCode::overloaded, "the simulation does not accept");
    }
    const auto at = server.size() == 8 ? state_->unclaimed_connections.find(load_le<std::uint64_t>(server.data()))
                                       : state_->unclaimed_connections.end();
    if (at == state_->unclaimed_connections.end()) return fail(ErrorCode::unavailable, "there is no such half");
    SimState::UnclaimedConnection taken = std::move(at->second);
    state_->unclaimed_connections.erase(at);
    return std::make_unique<SimPendingConnection>(loop_, state_, std::move(taken.link), std::move(taken.stream),
                                                  limits);
  }

 private:
  Loop& loop_;
  const std::shared_ptr<SimState> state_;
};

class SimTransport final : public Transport {
 public:
  explicit SimTransport(std::shared_ptr<SimState> state) : state_(std::move(state)) {}
  std::string_view name() const noexcept override { return "simpath"; }
  Result<std::shared_ptr<TransportWorker>> attach(Loop& loop) override {
    if (state_->random.chance(state_->options.transport_absent)) {
      return fail(ErrorCode::unavailable, "the simulation has none here");
    }
    return std::make_shared<SimTransportWorker>(loop, state_);
  }

 private:
  const std::shared_ptr<SimState> state_;
};

}  // namespace

std::shared_ptr<Transport> make_sim_transport(std::shared_ptr<SimState> state) {
  return std::make_shared<SimTransport>(std::move(state));
}

}  // namespace hawser::transport
