#include "transport/ucx/connection/ucx_connection.h"

#include <algorithm>
#include <utility>

namespace hawser::transport {

Result<std::unique_ptr<UcxConnection>> UcxConnection::make(std::shared_ptr<UcxWorker> worker,
                                                           const MessageLimits& limits) {
  std::unique_ptr<UcxConnection> connection(new UcxConnection(std::move(worker), limits));
  const Result<std::uint64_t> token = connection->worker_->enter(*connection);
  if (!token) return std::unexpected(token.error());
  connection->token_ = *token;
  return connection;
}

UcxConnection::UcxConnection(std::shared_ptr<UcxWorker> worker, const MessageLimits& limits)
    : worker_(std::move(worker)),
      loop_(worker_->loop()),
      limits_(limits),
      self_(std::make_shared<UcxConnection*>(this)) {}

UcxConnection::~UcxConnection() { abort(); }

Capabilities UcxConnection::capabilities() const noexcept {
  return {.head_bytes_max = limits_.send_bytes_max,
          .message_bytes_max = limits_.send_bytes_max,
          .receive_buffer_bytes_min = std::min(UcxOptions::rendezvous_bytes_least, peer_.rendezvous_bytes_min),
          .gathers = true,
          .charges = true,
          .remote_memory = false};
}

void UcxConnection::set_endpoint(std::unique_ptr<UcxEndpoint> endpoint) {
  endpoint_ = std::move(endpoint);
  if (!opened_) return;
  send_bare(UcxHeader::Kind::hello);
  send_queued();
}

void UcxConnection::connected(std::unique_ptr<UcxEndpoint> endpoint) {
  if (endpoint_ != nullptr) return worker_->close(std::move(endpoint), UcxClose::cut);
  set_endpoint(std::move(endpoint));
}

void UcxConnection::open(std::unique_ptr<Stream> stream) {
  liveness_ = std::make_shared<Liveness>(std::move(stream), [self = self_](const Error& reason) {
    if (*self != nullptr) (*self)->stream_ended(reason);
  });
  opened_ = true;
  if (!heard_) wire_up_.start(loop_, loop_.after(worker_->options().wire_up_timeout));
  if (endpoint_ != nullptr) send_bare(UcxHeader::Kind::hello);
}

void UcxConnection::start(MessageSink& sink) {
  sink_ = &sink;
  account_ = sink.receive_account();
  worker_->process_soon(token_);
}

void UcxConnection::WireUp::fire(Timer& timer) noexcept {
  UcxConnection& connection = static_cast<WireUp&>(timer).connection;
  const UcxOptions& options = connection.worker_->options();
  if (connection.broken_) {
    if (connection.held_back() || connection.sink_ == nullptr) {
      return timer.start(connection.loop_, connection.loop_.after(break_grace));
    }
    return connection.fail(Error(*connection.broken_));
  }
  if (connection.sink_ == nullptr) {
    return timer.start(connection.loop_, connection.loop_.after(options.wire_up_timeout));
  }
  connection.fail(
      {ErrorCode::unavailable, ErrorScope::transport, Initiator::local, 0,
       "UCX did not get through to the peer within wire_up_timeout (" +
           std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(options.wire_up_timeout).count()) +
           " ms) over transports '" + (options.tls.empty() ? "all" : options.tls) + "' and devices '" +
           (options.net_devices.empty() ? "all" : options.net_devices) + "'"});
}

// ---- The end ----

void UcxConnection::close() {
  if (ended_ || std::exchange(finishing_, true)) return;
  seal_up_to(used_);
  packets_.push_back({});
  ++packets_sealed_;
  send_ready();
  drained();
}

// The stream's end, if the peer has ended, comes at about the same time, and decides what is told.
void UcxConnection::broken(std::string_view what, ucs_status_t status) {
  if (ended_ || broken_) return;
  broken_ = ucx_error(worker_->core().ucp(), what, status, ErrorScope::transport);
  wire_up_.start(loop_, loop_.after(break_grace));
}

// What the peer sent before has arrived: it ends the stream only when its endpoint has been flushed.
void UcxConnection::stream_ended(const Error& reason) {
  stream_end_ = reason;
  for (int i = 0; i < 64 && worker_->poll(); ++i) {
  }
  if (!ended_) worker_->process_soon(token_);
}

void UcxConnection::protocol_violation(std::string text) {
  fail({ErrorCode::protocol_error, ErrorScope::connection, Initiator::peer, 0,
        "the peer breaks the rules of the UCX path: " + std::move(text)});
}

void UcxConnection::fail(Error reason) {
  if (ended_) return;
  if (reason.scope == ErrorScope::transport && liveness_ != nullptr && !stream_end_) {
    liveness_->close(Liveness::Why::transport_broke);
  }
  abort();
  if (sink_ != nullptr) sink_->on_closed(reason);
}

void UcxConnection::abort() noexcept {
  if (std::exchange(ended_, true)) return;
  wire_up_.stop();
  loop_.remove_tick_end(*this);
  worker_->leave(token_);
  *self_ = nullptr;
  if (liveness_ != nullptr) peer_name_ = liveness_->peer();
  // What is with UCX ends by itself, in memory that its operation keeps.
  std::vector<SendCompletion*> owners;
  for (UcxOperation* operation : operations_) {
    operation->receiver = nullptr;
    if (operation->owner != nullptr) owners.push_back(std::exchange(operation->owner, nullptr));
  }
  operations_.clear();
  drop_received();
  if (endpoint_ != nullptr) {
    // The peer is told when all that was sent is there.
    endpoint_->kept = std::move(liveness_);
    const UcxClose how = !worker_->options().close_with_flush ? UcxClose::cut
                         : stream_end_.has_value()            ? UcxClose::flush_peer_gone
                                                              : UcxClose::flush;
    worker_->close(std::move(endpoint_), how);
  } else if (liveness_ != nullptr) {
    loop_.post([gone = std::move(liveness_)] {});
  }
  for (const Packet& packet : packets_) release(packet.block);
  packets_.clear();
  release(std::exchange(block_, nullptr));
  for (Outgoing& outgoing : payloads_) {
    release(outgoing.block);
    if (outgoing.owner != nullptr) owners.push_back(outgoing.owner);
  }
  payloads_.clear();
  for (SendCompletion* owner : owners) owner->on_send_complete();
}

}  // namespace hawser::transport
