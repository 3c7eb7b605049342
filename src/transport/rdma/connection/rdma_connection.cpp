#include "transport/rdma/connection/rdma_connection.h"

#include <algorithm>
#include <utility>

#include "base/kernel_random.h"
#include "base/try.h"
#include "transport/rdma/device/address.h"

namespace hawser::transport::rdma {
namespace {

Error broken(std::string why) {
  return Error::of_transport(Initiator::peer, ErrorCode::unavailable, "the RDMA connection broke: " + std::move(why));
}

std::unexpected<Error> failed_already() {
  return hawser::fail(Error::of_connection(ErrorCode::unavailable, "the pending RDMA connection has failed"));
}

}  // namespace

// ---- Construction

Result<std::unique_ptr<RdmaConnection>> RdmaConnection::begin(std::shared_ptr<RdmaWorker> worker,
                                                              const MessageLimits& limits) {
  auto connection = std::make_unique<RdmaConnection>(std::move(worker), limits);
  TRY(connection->reserve());
  return connection;
}

RdmaConnection::RdmaConnection(std::shared_ptr<RdmaWorker> worker, const MessageLimits& limits)
    : worker_(std::move(worker)),
      loop_(worker_->loop()),
      options_(worker_->device().options),
      terms_({.options = options_,
              .limits = limits,
              .address = worker_->port().address(),
              .domain = worker_->device().domain,
              .reads_outstanding = worker_->device().device->limits().reads_outstanding,
              .mtu_bytes = worker_->port().mtu_bytes(),
              // Random, because a party that guesses it can write packets into the connection.
              .sequence = static_cast<std::uint32_t>(kernel_random()) & 0xffffffU}) {
  parts_.ring = worker_->shared_ring();
}

RdmaConnection::~RdmaConnection() {
  end_now(dropped(), false);
  if (memory_) memory_->release(*worker_->device().pool);
  loop_.remove_tick_end(*this);
}

Result<void> RdmaConnection::reserve() {
  RdmaDevice& device = worker_->device();
  if (device.dead()) {
    return hawser::fail(Error::of_transport(ErrorCode::unavailable, device.device->name() + " is gone"));
  }
  if (!device.acquire_queue_pair()) {
    return hawser::fail(
        Error::of_transport(ErrorCode::overloaded, std::to_string(options_.queue_pairs_max) +
                                                       " queue pairs (RdmaOptions::queue_pairs_max) are in use on " +
                                                       device.device->name()));
  }
  state_.enter(Phase::reserved);
  const std::size_t entries = terms_.sends() + terms_.receives();
  TRY(worker_->entries().acquire(entries));
  parts_.entries = entries;
  draining_.push_back(std::make_unique<DrainingQueuePair>(*worker_));
  return {};
}

void RdmaConnection::make(PendingConnection::Ready ready) {
  QueuePairSetUp::Needs needs{.sends = terms_.sends(), .receives = terms_.receives()};
  needs.memory = {terms_.chunk_bytes(), ControlSlots::bytes, RdmaReceiver::staging_floor_bytes};
  needs.memory.insert(needs.memory.end(), terms_.receives(), terms_.chunk_bytes());
  const bool begun = set_up_.make(
      std::move(needs), [this, ready](Result<std::unique_ptr<QueuePair>> pair) { ready(prepare(std::move(pair))); });
  if (!begun) ready(QueuePairSetUp::too_much_work());
}

Result<void> RdmaConnection::prepare(Result<std::unique_ptr<QueuePair>> pair) {
  if (state_.ended()) return failed_already();
  TRY(pair);
  RdmaDevice& device = worker_->device();
  parts_.pair = std::move(*pair);
  state_.enter(Phase::made);
  worker_->add(parts_.pair->number(), *this);
  TRY(const auto& memory, RdmaChannel::Memory::acquire(*device.pool, terms_.chunk_bytes()));
  memory_ = memory;
  if (options_.shared_receive_queue) {
    TRY(worker_->grow_shared(terms_.receives()));
    parts_.shared_receives = terms_.receives();
    return {};
  }
  parts_.ring = std::make_shared<ReceiveRing>(device.pool, terms_.chunk_bytes(), static_cast<ReceiveRingOwner&>(*this));
  TRY(parts_.ring->grow(terms_.receives()));
  return repost();
}

RdmaParameters RdmaConnection::parameters() const noexcept {
  return terms_.parameters(worker_->port().status(), parts_.pair == nullptr ? 0 : parts_.pair->number());
}

void RdmaConnection::connect(const RdmaParameters& peer, PendingConnection::Ready ready) {
  if (state_.phase() != Phase::made) {
    return ready(hawser::fail(Error::of_connection(ErrorCode::protocol_error,
                                                   "the pending RDMA connection is connected already, or has failed")));
  }
  const auto route = terms_.route_to(peer, worker_->port().status());
  if (!route) return ready(hawser::fail(route.error()));
  state_.enter(Phase::connecting);
  // It is set even if connecting fails, because the queue pair may be ready to receive but not to send.
  parts_.connecting = true;
  parts_.busy = set_up_.connect(
      *parts_.pair, *route, [this, peer, ready](const Result<void>& done) { ready(done ? connected(peer) : done); });
  if (parts_.busy == nullptr) ready(QueuePairSetUp::too_much_work());
}

// Completes the connection after its queue pair was connected.
Result<void> RdmaConnection::connected(const RdmaParameters& peer) {
  if (state_.ended()) return failed_already();
  parts_.channel = std::make_unique<RdmaChannel>(static_cast<RdmaReceiverOwner&>(*this), *parts_.pair,
                                                 worker_->device().pool, *parts_.ring, *memory_,
                                                 terms_.channel_to(peer, worker_->send_segments(), loop_.poller()));
  memory_.reset();
  state_.enter(Phase::connected);
  return {};
}

Error RdmaPendingConnection::gave_way() {
  return Error::of_transport(
      ErrorCode::overloaded,
      "the RDMA handshake took longer than a second, and gave way to newer ones (RdmaOptions::half_open_max)");
}

void RdmaPendingConnection::give_way() noexcept {
  connection_.reset();
  if (!ready_) return;
  loop_.post([watch = alive_.watch()] {
    if (RdmaPendingConnection* const self = watch.get()) self->finish(hawser::fail(gave_way()));
  });
}

void RdmaPendingConnection::finish(const Result<void>& outcome) {
  if (const Ready ready = std::exchange(ready_, nullptr)) ready(outcome);
}

void RdmaPendingConnection::when_ready(Ready ready) {
  ready_ = std::move(ready);
  if (connection_ == nullptr) return finish(hawser::fail(gave_way()));
  connection_->make([this](const Result<void>& made) {
    if (!made || !server_) return finish(made);
    connection_->connect(*server_, [this](const Result<void>& outcome) { finish(outcome); });
  });
}

Result<RdmaParameters> RdmaPendingConnection::check_client(Bytes client) const {
  if (connection_ == nullptr) return hawser::fail(gave_way());
  auto theirs = RdmaParameters::decode(client);
  if (!theirs) return theirs;
  // The queue pair must lead to the address that was judged in the offer. The kernel may need a second to find a route
  // to an address.
  if (offer_ && (theirs->gid != offer_->gid || theirs->lid != offer_->lid || theirs->ethernet != offer_->ethernet)) {
    return hawser::fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                             "the client's RDMA parameters have the address " + to_string(theirs->gid) +
                                                 ", and its offer had " + to_string(offer_->gid)));
  }
  return theirs;
}

void RdmaPendingConnection::connect(Bytes client, Ready ready) {
  const auto theirs = check_client(client);
  if (!theirs) return ready(hawser::fail(theirs.error()));
  ready_ = std::move(ready);
  connection_->connect(*theirs, [this](const Result<void>& outcome) {
    if (outcome) leave();
    finish(outcome);
  });
}

std::unique_ptr<Connection> RdmaPendingConnection::open(std::unique_ptr<Stream> stream) {
  connection_->open(std::move(stream));
  return std::move(connection_);
}

void RdmaConnection::open(std::unique_ptr<Stream> stream) {
  peer_ = stream->peer();
  parts_.liveness = std::make_unique<Liveness>(std::move(stream), [watch = alive_.watch()](Error reason) {
    RdmaConnection* const self = watch.get();
    if (self != nullptr && !self->state_.ended()) self->on_peer_gone(std::move(reason));
  });
  if (state_.ended()) parts_.liveness->close();
}

Capabilities RdmaConnection::capabilities() const noexcept {
  return {.head_bytes_max = terms_.limits().send_bytes_max,
          .message_bytes_max = terms_.limits().send_bytes_max,
          .receive_buffer_bytes_min = RdmaTerms::receive_buffer_bytes_min,
          .gathers = true,
          .charges = true,
          .remote_memory = true};
}

OneSidedMemory* RdmaConnection::remote_memory() noexcept {
  if (state_.ended() || parts_.channel == nullptr) return nullptr;
  loop_.at_tick_end(*this);  // Posts the requested operations.
  return &parts_.channel->one_sided();
}

void RdmaConnection::start(MessageSink& sink) {
  sink_ = &sink;
  if (state_.ended()) return loop_.at_tick_end(*this);  // The tick's end reports the reason.
  parts_.channel->receiver().start(sink);
  resume();
}

// ---- Sending

std::byte* RdmaConnection::reserve(std::size_t head_bytes) {
  if (state_.phase() != Phase::connected) return nullptr;
  return parts_.channel->sender().reserve(head_bytes);
}

void RdmaConnection::commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) {
  parts_.channel->sender().commit(head_bytes, payload, owner);
  if (state_.ended()) return;
  watermark_.on_commit(backlog());
  loop_.at_tick_end(*this);
}

void RdmaConnection::copy_and_release(SendCompletion& owner) {
  if (!state_.ended() && parts_.channel != nullptr) parts_.channel->sender().copy_and_release(owner);
}

void RdmaConnection::drained() {
  if (watermark_.on_sent(backlog()) && sink_ != nullptr) sink_->on_drained();
}

void RdmaConnection::on_tick_end() {
  if (state_.ended()) {
    if (unannounced_ && sink_ != nullptr) sink_->on_closed(*std::exchange(unannounced_, std::nullopt));
    return;
  }
  flush();
}

void RdmaConnection::flush() {
  if (state_.ended() || parts_.channel == nullptr) return;
  if (owns_ring()) {
    parts_.ring->collect();
    const std::size_t waiting = parts_.ring->waiting();
    if (waiting != 0 && (waiting * 4 >= terms_.receives() || parts_.channel->peer_is_short())) {
      if (const auto posted = repost(); !posted) return fail(broken(posted.error().text), true);
    }
  } else if (parts_.ring->waiting() != 0 && parts_.channel->peer_is_short()) {
    // Otherwise chunks are posted again when the shared queue has fallen to its low watermark.
    worker_->repost_soon();
  }
  const std::optional<Error> failed = parts_.channel->flush();
  if (state_.ended()) return;
  if (failed) return fail(broken(failed->text), true);
  drained();
}

Result<void> RdmaConnection::repost() {
  return parts_.ring->repost(
      [this](std::span<const ReceiveRequest> requests) { return parts_.pair->post_receive(requests); },
      [this](const ReceiveChunk& chunk, std::uint32_t) { parts_.channel->on_posted(chunk); });
}

void RdmaConnection::on_posted(const ReceiveChunk& chunk) {
  --parts_.unposted;
  if (parts_.channel == nullptr) return;
  parts_.channel->on_posted(chunk);
  loop_.at_tick_end(*this);
}

void RdmaConnection::chunks_returned() noexcept {
  if (Loop::current() == &loop_) return loop_.at_tick_end(*this);
  loop_.post([watch = alive_.watch()] {
    RdmaConnection* const self = watch.get();
    if (self != nullptr && !self->state_.ended()) self->loop_.at_tick_end(*self);
  });
}

// ---- Receiving

void RdmaConnection::on_completion(const Completion& completion) {
  const bool receive = (completion.id & ReceiveRing::id_bit) != 0;
  ReceiveRing* const ring = parts_.ring.get();
  if (completion.status != WorkStatus::success) {
    if (receive && ring != nullptr && options_.shared_receive_queue) {
      if (ReceiveChunk* const chunk = ring->completed(completion.id)) ring->finish(*chunk);
    }
    // remote_invalid: the peer's queue pair allows no such access at all, because nothing is exposed there any more.
    const bool refused =
        completion.status == WorkStatus::remote_access || completion.status == WorkStatus::remote_invalid;
    if (!receive && parts_.channel != nullptr && refused) {
      parts_.channel->one_sided().refused(completion.id);
    }
    return fail(broken(std::string(to_string(completion.status))), true);
  }
  if (receive) {
    ReceiveChunk* const chunk = ring->completed(completion.id);
    if (chunk == nullptr) return;
    // A write with immediate puts nothing into the chunk, and the peer chooses the byte count.
    if (parts_.channel == nullptr || completion.opcode != Opcode::send_with_immediate ||
        completion.bytes > ring->chunk_bytes()) {
      ring->finish(*chunk);
      return on_protocol_violation(parts_.channel == nullptr ? "a packet before the handshake was over"
                                   : completion.opcode != Opcode::send_with_immediate
                                       ? "a receive was used up by something else than a send with immediate"
                                       : "a packet is longer than the chunk that it was received into");
    }
    chunk->queue_pair = completion.queue_pair;
    if (options_.shared_receive_queue) ++parts_.unposted;
    parts_.channel->receiver().on_packet(*chunk, completion.bytes, completion.immediate);
  } else if (parts_.channel != nullptr) {
    bool more = false;
    if (!parts_.channel->on_completed(completion.id, more))
      return fail(broken("a completion for a work request that is not outstanding"), true);
  }
  if (!state_.ended()) loop_.at_tick_end(*this);
}

void RdmaConnection::on_event(const DeviceEvent& event) {
  if (event.kind == DeviceEventKind::last_receive_reached) {
    // The queue pair failed by itself. A completion may give the reason.
    parts_.last_receive_reached = true;
    worker_->poll_all();
    if (state_.ended()) return;
  }
  fail(broken(worker_->device().device->name() + ": " + std::string(to_string(event.kind))), true);
}

void RdmaConnection::on_protocol_violation(std::string_view how) {
  fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                            "the peer violated the RDMA protocol: " + std::string(how)),
       true);
}

void RdmaConnection::on_fin() {
  fail(Error::of_connection(Initiator::peer, ErrorCode::unavailable, "the peer closed the connection"), false);
}

void RdmaConnection::revoke_receive_buffer(const std::byte* memory) noexcept {
  if (parts_.channel == nullptr) return;
  parts_.channel->receiver().revoke_receive_buffer(memory);
  loop_.at_tick_end(*this);
}

void RdmaConnection::pause() noexcept {
  paused_ = true;
  if (parts_.channel != nullptr) parts_.channel->receiver().pause();
}

void RdmaConnection::resume() {
  if (!paused_) return;
  paused_ = false;
  if (state_.ended()) return;
  parts_.channel->receiver().resume();
  if (state_.ended()) return;
  loop_.at_tick_end(*this);
  end_if_gone();
}

// ---- End

void RdmaConnection::close() {
  if (state_.phase() != Phase::connected) return;
  state_.enter(Phase::closing);
  parts_.channel->sender().close();
  flush();
}

// Messages that the peer's device sent before the end may still be in the completion queue.
void RdmaConnection::on_peer_gone(Error reason) {
  if (state_.ended()) return;
  gone_ = std::move(reason);
  worker_->poll_all();
  end_if_gone();
}

void RdmaConnection::end_if_gone() {
  if (state_.ended() || !gone_ || parts_.channel->receiver().held_back()) return;
  fail(Error(*gone_), false);
}

void RdmaConnection::fail(Error reason, bool broken_pair) {
  if (state_.ended()) return;
  end_now(reason, broken_pair);
  if (sink_ != nullptr) {
    sink_->on_closed(reason);
  } else {
    unannounced_ = std::move(reason);
  }
}

Error RdmaConnection::dropped() { return Error::of_connection(ErrorCode::unavailable, "it was closed here"); }

void RdmaConnection::end_now(const Error& reason, bool broken_pair) noexcept {
  if (state_.ended()) return;
  const bool reserved = state_.reserved();
  state_.enter(Phase::ended);
  set_up_.cancel();
  loop_.remove_tick_end(*this);
  RdmaChannel* const channel = parts_.channel.get();
  if (channel != nullptr) {
    at_end_ = {.committed = channel->sender().committed(),
               .sent = channel->sender().sent(),
               .arrived = channel->receiver().arrived()};
  }
  if (owns_ring()) parts_.ring->close();
  if (parts_.pair == nullptr) {
    if (reserved) worker_->device().release_queue_pair();
    return worker_->entries().release(parts_.entries);
  }
  parts_.broken = broken_pair || gone_.has_value();
  if (channel != nullptr && !parts_.broken) {
    try {
      channel->sender().mark_end();
    } catch (...) {
      parts_.broken = true;  // There is no memory: nothing would report that all has been sent.
    }
  }
  draining_.front()->start(std::move(parts_), loop_.poller().now());
  worker_->drain(std::move(draining_));
  // The owners are notified last: they may do anything except destroy this.
  if (channel != nullptr) channel->end(reason);
}

}  // namespace hawser::transport::rdma
