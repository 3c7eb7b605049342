#include "transport/ucx/connection/ucx_connection.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/decimal_text.h"
#include "base/try.h"
#include "transport/common/gather.h"

namespace hawser::transport {

Result<std::unique_ptr<UcxConnection>> UcxConnection::make(std::shared_ptr<UcxWorker> worker,
                                                           const MessageLimits& limits) {
  std::unique_ptr<UcxConnection> connection(new UcxConnection(std::move(worker), limits));
  TRY(const std::uint64_t token, connection->worker_->enter(*connection));
  connection->link_.token = token;
  return connection;
}

UcxConnection::UcxConnection(std::shared_ptr<UcxWorker> worker, const MessageLimits& limits)
    : worker_(std::move(worker)),
      loop_(worker_->loop()),
      limits_(limits),
      link_{.worker = *worker_, .target = *this},
      sender_(link_),
      receiver_(*this, link_, wire::MessageLimit::without_prefix(limits.receive_bytes_max)) {}

UcxConnection::~UcxConnection() { abort(); }

Capabilities UcxConnection::capabilities() const noexcept {
  return {.head_bytes_max = limits_.send_bytes_max,
          .message_bytes_max = limits_.send_bytes_max,
          .receive_buffer_bytes_min = std::min(UcxOptions::rendezvous_bytes_least, link_.peer.rendezvous_bytes_min),
          .gathers = true,
          .charges = true,
          .remote_memory = false};
}

std::string UcxConnection::link_details() const {
  if (ended_) return {};
  return std::to_string(link_.credits.in_flight()) + " of " + count_text(link_.peer.window_bytes, "byte") +
         " of the peer's window used; " + count_text(link_.credits.held(), "byte") + " received and not delivered";
}

void UcxConnection::set_endpoint(std::unique_ptr<UcxEndpoint> endpoint) {
  link_.endpoint = std::move(endpoint);
  sender_.on_endpoint();
  drained();
}

void UcxConnection::connected(std::unique_ptr<UcxEndpoint> endpoint) {
  if (has_endpoint()) return worker_->close(std::move(endpoint), UcxClose::cut);
  set_endpoint(std::move(endpoint));
}

void UcxConnection::open(std::unique_ptr<Stream> stream) {
  liveness_ = std::make_shared<Liveness>(std::move(stream), [watch = alive_.watch()](Error reason) {
    UcxConnection* const self = watch.get();
    if (self != nullptr && !self->ended_) self->stream_ended(std::move(reason));
  });
  wire_up_.start(loop_, loop_.after(link_.options().wire_up_timeout));
  sender_.open();
}

void UcxConnection::start(MessageSink& sink) {
  sink_ = &sink;
  receiver_.start(sink);
  link_.process_soon();
}

// ---- Sending ----

void UcxConnection::commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) {
  assert(head_bytes + total_bytes(payload) <= limits_.send_bytes_max);
  sender_.commit(head_bytes, payload, owner);
  if (ended_) return;  // The owner may have ended the connection.
  watermark_.on_commit(backlog());
  loop_.at_tick_end(*this);
}

void UcxConnection::on_tick_end() {
  sender_.flush();
  drained();
}

void UcxConnection::flush() {
  if (ended_) return;
  on_tick_end();
  // The loop does not poll UCX during this call, so the function waits until UCX has sent the data.
  const auto under_way = [this] { return sender_.under_way(); };
  if (!under_way()) worker_->progress_until(under_way, receiver_.heard() ? flush_max : first_flush_max);
}

void UcxConnection::drained() {
  if (!ended_ && watermark_.on_sent(backlog()) && sink_ != nullptr) sink_->on_drained();
}

// ---- Receiving ----

void UcxConnection::ended(UcxOperation& operation) {
  if (operation.kind == UcxOperation::Kind::fetch) return receiver_.on_ended(operation);
  const ucs_status_t status = operation.status;
  sender_.on_ended(operation);
  if (status != UCS_OK) return on_failure("sending to the peer", status);
  sender_.send_ready();
  drained();
}

void UcxConnection::process() {
  if (ended_ || sink_ == nullptr) return;
  if (receiver_.heard()) half_open_.reset();
  if (receiver_.heard() && !broken_) wire_up_.stop();
  receiver_.process();
  if (ended_) return;
  if (stream_end_ && !held_back()) return fail(*stream_end_);
  const ucs_status_t failed = has_endpoint() ? link_.endpoint->failed : UCS_OK;
  if (failed != UCS_OK) return on_failure("UCX lost the peer", failed);
  sender_.send_ready();
  drained();
  if (!ended_ && link_.credits.announcement_due(link_.options().window_bytes)) loop_.at_tick_end(*this);
}

void UcxConnection::resume() {
  if (!receiver_.paused()) return;
  receiver_.resume();
  link_.process_soon();
}

void UcxConnection::end_wire_up() noexcept {
  const UcxOptions& options = worker_->options();
  if (broken_) {
    if (held_back() || sink_ == nullptr) {
      return wire_up_.start(loop_, loop_.after(break_grace));
    }
    return fail(Error(*broken_));
  }
  if (sink_ == nullptr) {
    return wire_up_.start(loop_, loop_.after(options.wire_up_timeout));
  }
  fail(Error::of_transport(
      ErrorCode::unavailable,
      "UCX did not get through to the peer within wire_up_timeout (" +
          std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(options.wire_up_timeout).count()) +
          " ms) over transports '" + (options.tls.empty() ? "all" : options.tls) + "' and devices '" +
          (options.net_devices.empty() ? "all" : options.net_devices) + "'"));
}

// ---- The end ----

void UcxConnection::close() {
  if (ended_) return;
  sender_.close();
  drained();
}

// If the peer has ended, the stream ends at about the same time. Then the stream's error is reported.
void UcxConnection::on_failure(std::string_view what, ucs_status_t status) {
  if (ended_ || broken_) return;
  broken_ = ucx_error(worker_->core().ucp(), what, status, ErrorScope::transport);
  wire_up_.start(loop_, loop_.after(break_grace));
}

// Everything that the peer sent has arrived: the peer ends the stream only after it has flushed its endpoint.
void UcxConnection::stream_ended(Error reason) {
  stream_end_ = std::move(reason);
  for (int i = 0; i < 64 && worker_->poll(); ++i) {
  }
  if (!ended_) link_.process_soon();
}

void UcxConnection::on_protocol_violation(const std::string& how) {
  fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error, "the peer violated the UCX protocol: " + how));
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
  half_open_.reset();
  loop_.remove_tick_end(*this);
  worker_->leave(link_.token);
  if (liveness_ != nullptr) peer_name_ = liveness_->peer();
  const std::vector<SendCompletion*> owners = sender_.end();
  receiver_.end();
  if (has_endpoint()) {
    // The endpoint keeps the stream, so that the peer sees the end only after everything that was sent has arrived.
    link_.endpoint->kept = std::move(liveness_);
    link_.endpoint->heard = receiver_.heard();
    const UcxClose how = !worker_->options().close_with_flush ? UcxClose::cut
                         : stream_end_.has_value()            ? UcxClose::flush_peer_gone
                                                              : UcxClose::flush;
    worker_->close(std::move(link_.endpoint), how);
  } else if (liveness_ != nullptr) {
    loop_.post([gone = std::move(liveness_)] {});
  }
  for (SendCompletion* owner : owners) owner->on_send_complete();
}

}  // namespace hawser::transport
