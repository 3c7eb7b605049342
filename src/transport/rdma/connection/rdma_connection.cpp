#include "transport/rdma/connection/rdma_connection.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/kernel_random.h"
#include "base/try.h"
#include "transport/rdma/device/address.h"

namespace hawser::transport::rdma {
namespace {

Error broken(std::string why) {
  return Error::of_transport(Initiator::peer, ErrorCode::unavailable, "the RDMA connection broke: " + std::move(why));
}

Result<void> too_much_side_work() {
  return hawser::fail(Error::of_transport(
      ErrorCode::overloaded,
      "too many RDMA handshakes wait for the kernel (the device's helper thread): try again later"));
}

Error no_memory() { return Error::of_transport(ErrorCode::overloaded, "no memory"); }

// Minimum of work requests per connection. With a shared receive queue there are many connections, and most are idle.
constexpr unsigned shared_depth = 24;

unsigned send_queue_of(const RdmaOptions& options) noexcept {
  return options.shared_receive_queue ? std::min(options.send_queue_depth, shared_depth) : options.send_queue_depth;
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
      limits_(limits),
      address_(worker_->address()),
      chunk_bytes_(options_.shared_receive_queue ? options_.shared_chunk_bytes : options_.chunk_bytes),
      receives_(options_.shared_receive_queue ? options_.shared_receives_per_connection : options_.recv_queue_depth),
      mtu_bytes_(worker_->mtu_bytes()) {
  // Random, because a party that guesses it can write packets into the connection.
  sequence_ = static_cast<std::uint32_t>(kernel_random()) & 0xffffffU;
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
  counted_ = true;
  const std::size_t entries = send_queue_of(options_) + receives_;
  TRY(worker_->acquire_entries(entries));
  entries_ = entries;
  draining_.push_back(std::make_unique<DrainingQueuePair>(*worker_));
  return {};
}

void RdmaConnection::make(PendingConnection::Ready ready) {
  struct Job {
    Watch<RdmaConnection> watch;
    PendingConnection::Ready ready;
    Result<std::unique_ptr<QueuePair>> made = nullptr;
  };
  const auto job = std::make_shared<Job>(Job{.watch = alive_.watch(), .ready = ready});
  // The helper thread also registers memory, so that the loop does not have to.
  std::vector<std::size_t> stretches = {chunk_bytes_, RdmaSender::control_bytes, RdmaReceiver::staging_floor_bytes};
  stretches.insert(stretches.end(), receives_, chunk_bytes_);
  const unsigned sends = send_queue_of(options_);
  const bool begun = worker_->side_work().run([worker = worker_.get(), sends, receives = receives_, job,
                                               gone = cancelled_, wanted = std::move(stretches)]() -> SideWork::After {
    // A cancelled connection skips the work, because other work waits for the thread.
    if (gone->load(std::memory_order_relaxed)) return [job] {};
    try {
      static_cast<void>(worker->device().pool->make_room(wanted, MemoryPool::Use::connection));
      job->made = worker->make_pair(sends, receives);
    } catch (const std::bad_alloc&) {
      job->made = hawser::fail(no_memory());
    }
    return [worker, job] {
      RdmaConnection* const self = job->watch.get();
      if (self == nullptr) return worker->discard(job->made ? std::move(*job->made) : nullptr);
      job->ready(self->prepare(std::move(job->made)));
    };
  });
  if (!begun) ready(too_much_side_work());
}

Result<void> RdmaConnection::prepare(Result<std::unique_ptr<QueuePair>> pair) {
  if (ended_)
    return hawser::fail(Error::of_connection(ErrorCode::unavailable, "the pending RDMA connection has failed"));
  TRY(pair);
  RdmaDevice& device = worker_->device();
  pair_ = std::move(*pair);
  worker_->add(pair_->number(), *this);
  TRY(const auto& memory, RdmaChannel::Memory::acquire(*device.pool, chunk_bytes_));
  memory_ = memory;
  if (options_.shared_receive_queue) {
    TRY(worker_->grow_shared(receives_));
    shared_ = true;
    return {};
  }
  own_ring_ = std::make_shared<ReceiveRing>(device.pool, chunk_bytes_, static_cast<ReceiveRingOwner&>(*this));
  TRY(own_ring_->grow(receives_));
  return repost();
}

RdmaParameters RdmaConnection::parameters() const noexcept {
  const RdmaDevice& device = worker_->device();
  const PortStatus& port = worker_->port();
  return {.ethernet = port.ethernet,
          .lid = port.lid,
          .queue_pair = pair_ == nullptr ? 0 : pair_->number(),
          .sequence = sequence_,
          .mtu_bytes = mtu_bytes_,
          .chunk_bytes = static_cast<std::uint32_t>(chunk_bytes_),
          .receives = receives_,
          .reads = reads(),
          .domain = device.domain,
          .gid = address_.gid};
}

std::uint32_t RdmaConnection::reads_with(const RdmaParameters& peer) const noexcept {
  return std::min(parameters().reads, peer.reads);
}

// Afterwards the queue pair counts as connecting.
Result<QueuePairRoute> RdmaConnection::route_to(const RdmaParameters& peer) {
  const RdmaParameters ours = parameters();
  if (ended_ || connecting_) {
    return hawser::fail(Error::of_connection(ErrorCode::protocol_error,
                                             "the pending RDMA connection is connected already, or has failed"));
  }
  if (peer.ethernet != ours.ethernet) {
    return hawser::fail(Error::of_transport(ErrorCode::unavailable, "one side has RoCE and the other InfiniBand"));
  }
  const std::uint32_t reads = reads_with(peer);
  QueuePairRoute route = route_with(options_);
  route.port = worker_->port().number;
  route.gid_index = address_.index;
  route.global = ours.ethernet || !peer.gid.zero();
  route.peer_gid = peer.gid;
  route.peer_lid = peer.lid;
  route.peer_queue_pair = peer.queue_pair;
  route.rq_psn = peer.sequence;
  route.sq_psn = sequence_;
  route.mtu_bytes = std::min(ours.mtu_bytes, peer.mtu_bytes);
  route.max_rd_atomic = reads;
  route.max_dest_rd_atomic = ours.reads;
  // Without reads there are no rendezvous and no one-sided operations.
  if (reads != 0) route.access = RdmaRemoteAccess::always;
  // It is set even if connecting fails, because the queue pair may be ready to receive but not to send.
  connecting_ = true;
  return route;
}

// Runs on any thread that side_work() uses. DrainingQueuePair::destroy_pair() withdraws the access.
Result<void> RdmaConnection::connect_pair(RdmaWorker& worker, QueuePair& pair, const QueuePairRoute& route) {
  try {
    auto done = pair.connect(route);
    if (done && route.access.remote_read) worker.device().access.add(pair);
    return done;
  } catch (const std::bad_alloc&) {
    return hawser::fail(no_memory());
  }
}

void RdmaConnection::connect(const RdmaParameters& peer, PendingConnection::Ready ready) {
  const auto route = route_to(peer);
  if (!route) return ready(hawser::fail(route.error()));
  struct Job {
    Watch<RdmaConnection> watch;
    std::shared_ptr<bool> busy = std::make_shared<bool>(true);
    PendingConnection::Ready ready;
    Result<void> outcome = {};
  };
  const auto job = std::make_shared<Job>(Job{.watch = alive_.watch(), .ready = ready});
  // The queue pair is not destroyed while it is busy.
  busy_ = job->busy;
  const bool begun = worker_->side_work().run(
      [worker = worker_.get(), pair = pair_.get(), way = *route, peer, job, gone = cancelled_]() -> SideWork::After {
        if (!gone->load(std::memory_order_relaxed)) {
          job->outcome = connect_pair(*worker, *pair, way);
        } else {
          job->outcome = hawser::fail(
              Error::of_connection(ErrorCode::cancelled, "the pending RDMA connection ended before it was connected"));
        }
        return [peer, job] {
          *job->busy = false;
          RdmaConnection* const self = job->watch.get();
          if (self == nullptr) return;
          job->ready(job->outcome ? self->connected(peer) : job->outcome);
        };
      });
  if (begun) return;
  *busy_ = false;
  ready(too_much_side_work());
}

// Completes the connection after its queue pair was connected.
Result<void> RdmaConnection::connected(const RdmaParameters& peer) {
  if (ended_)
    return hawser::fail(Error::of_connection(ErrorCode::unavailable, "the pending RDMA connection has failed"));
  const std::uint32_t reads = reads_with(peer);

  RdmaChannelOptions channel;
  channel.sender = {.packet_bytes_max = std::min<std::size_t>(chunk_bytes_, peer.chunk_bytes),
                    .chunk_bytes = chunk_bytes_,
                    .send_window = options_.send_window,
                    // Without reads the peer cannot read payloads from this side's memory.
                    .eager_bytes_max = reads == 0 ? SIZE_MAX : options_.eager_bytes_max,
                    .copied_bytes_max = options_.copied_bytes_max,
                    .rendezvous_max = options_.rendezvous_max};
  channel.receiver = {.message_limit = wire::MessageLimit::without_prefix(limits_.receive_bytes_max),
                      .receive_buffer_bytes_min = receive_buffer_bytes_min,
                      .read_bytes_max = options_.read_bytes_max,
                      .reads_max = reads,
                      .ahead_bytes_max = options_.read_ahead_bytes_max,
                      .staging_bytes = chunk_bytes_,
                      .held_chunks_max = RdmaCredits::held_max(receives_)};
  // Without reads the peer's device answers none.
  channel.one_sided = {.peer_domain = reads == 0 ? 0 : peer.domain,
                       .operations_max = options_.one_sided_max,
                       .part_bytes_max = 2 * options_.read_bytes_max,
                       .segments_max = worker_->send_segments(),
                       .parts_max = std::max<std::size_t>(reads, 1),
                       .clock = &loop_.poller()};
  channel.send_slots = send_queue_of(options_);
  channel.signal_every = std::min(options_.signal_every, send_queue_of(options_) / 2);
  channel.peer_receives = peer.receives;
  channel.own_receives = receives_;
  ReceiveRing& ring = own_ring_ != nullptr ? *own_ring_ : *worker_->shared_ring();
  channel_ = std::make_unique<RdmaChannel>(static_cast<RdmaReceiverOwner&>(*this), *pair_, worker_->device().pool, ring,
                                           *memory_, channel);
  memory_.reset();
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
  liveness_ = std::make_unique<Liveness>(std::move(stream), [watch = alive_.watch()](const Error& reason) {
    RdmaConnection* const self = watch.get();
    if (self != nullptr && !self->ended_) self->on_peer_gone(reason);
  });
  if (ended_) liveness_->close();
}

Capabilities RdmaConnection::capabilities() const noexcept {
  return {.head_bytes_max = limits_.send_bytes_max,
          .message_bytes_max = limits_.send_bytes_max,
          .receive_buffer_bytes_min = receive_buffer_bytes_min,
          .gathers = true,
          .charges = true,
          .remote_memory = true};
}

OneSidedMemory* RdmaConnection::remote_memory() noexcept {
  if (ended_ || channel_ == nullptr) return nullptr;
  loop_.at_tick_end(*this);  // Posts the requested operations.
  return &channel_->one_sided();
}

void RdmaConnection::start(MessageSink& sink) {
  sink_ = &sink;
  if (ended_) return loop_.at_tick_end(*this);  // The tick's end reports the reason.
  channel_->receiver().start(sink);
  resume();
}

// ---- Sending

std::byte* RdmaConnection::reserve(std::size_t head_bytes) {
  if (ended_ || closing_) return nullptr;
  return channel_->sender().reserve(head_bytes);
}

void RdmaConnection::commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) {
  channel_->sender().commit(head_bytes, payload, owner);
  if (ended_) return;
  watermark_.on_commit(backlog());
  loop_.at_tick_end(*this);
}

void RdmaConnection::copy_and_release(SendCompletion& owner) {
  if (!ended_ && channel_ != nullptr) channel_->sender().copy_and_release(owner);
}

void RdmaConnection::drained() {
  if (watermark_.on_sent(backlog()) && sink_ != nullptr) sink_->on_drained();
}

void RdmaConnection::on_tick_end() {
  if (ended_) {
    if (unannounced_ && sink_ != nullptr) sink_->on_closed(*std::exchange(unannounced_, std::nullopt));
    return;
  }
  flush();
}

void RdmaConnection::flush() {
  if (ended_ || channel_ == nullptr) return;
  if (own_ring_ != nullptr) {
    own_ring_->collect();
    const std::size_t waiting = own_ring_->waiting();
    if (waiting != 0 && (waiting * 4 >= receives_ || channel_->peer_is_short())) {
      if (const auto posted = repost(); !posted) return fail(broken(posted.error().text), true);
    }
  }
  // Otherwise chunks are posted again when the shared queue has fallen to its low watermark.
  if (own_ring_ == nullptr && worker_->shared_ring()->waiting() != 0 && channel_->peer_is_short())
    worker_->repost_soon();
  const std::optional<Error> failed = channel_->flush();
  if (ended_) return;
  if (failed) return fail(broken(failed->text), true);
  drained();
}

Result<void> RdmaConnection::repost() {
  return own_ring_->repost([this](std::span<const ReceiveRequest> requests) { return pair_->post_receive(requests); },
                           [this](const ReceiveChunk& chunk, std::uint32_t) { channel_->on_posted(chunk); });
}

void RdmaConnection::on_posted(const ReceiveChunk& chunk) {
  --unposted_;
  if (channel_ == nullptr) return;
  channel_->on_posted(chunk);
  loop_.at_tick_end(*this);
}

void RdmaConnection::chunks_returned() noexcept {
  if (Loop::current() == &loop_) return loop_.at_tick_end(*this);
  loop_.post([watch = alive_.watch()] {
    RdmaConnection* const self = watch.get();
    if (self != nullptr && !self->ended_) self->loop_.at_tick_end(*self);
  });
}

// ---- Receiving

void RdmaConnection::on_completion(const Completion& completion) {
  const bool receive = (completion.id & ReceiveRing::id_bit) != 0;
  ReceiveRing* const ring = own_ring_ != nullptr ? own_ring_.get() : worker_->shared_ring().get();
  if (completion.status != WorkStatus::success) {
    if (receive && ring != nullptr && own_ring_ == nullptr) {
      if (ReceiveChunk* const chunk = ring->completed(completion.id)) ring->finish(*chunk);
    }
    // remote_invalid: the peer's queue pair allows no such access at all, because nothing is exposed there any more.
    const bool refused =
        completion.status == WorkStatus::remote_access || completion.status == WorkStatus::remote_invalid;
    if (!receive && channel_ != nullptr && refused) {
      channel_->one_sided().refused(completion.id);
    }
    return fail(broken(std::string(to_string(completion.status))), true);
  }
  if (receive) {
    ReceiveChunk* const chunk = ring->completed(completion.id);
    if (chunk == nullptr) return;
    // A write with immediate puts nothing into the chunk, and the peer chooses the byte count.
    if (channel_ == nullptr || completion.opcode != Opcode::send_with_immediate ||
        completion.bytes > ring->chunk_bytes()) {
      ring->finish(*chunk);
      return on_protocol_violation(channel_ == nullptr ? "a packet before the handshake was over"
                                   : completion.opcode != Opcode::send_with_immediate
                                       ? "a receive was used up by something else than a send with immediate"
                                       : "a packet is longer than the chunk that it was received into");
    }
    chunk->queue_pair = completion.queue_pair;
    if (own_ring_ == nullptr) ++unposted_;
    channel_->receiver().on_packet(*chunk, completion.bytes, completion.immediate);
  } else if (channel_ != nullptr) {
    bool more = false;
    if (!channel_->on_completed(completion.id, more))
      return fail(broken("a completion for a work request that is not outstanding"), true);
  }
  if (!ended_) loop_.at_tick_end(*this);
}

void RdmaConnection::on_event(const DeviceEvent& event) {
  if (event.kind == DeviceEventKind::last_receive_reached) {
    // The queue pair failed by itself. A completion may give the reason.
    last_receive_reached_ = true;
    worker_->poll_all();
    if (ended_) return;
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
  if (channel_ == nullptr) return;
  channel_->receiver().revoke_receive_buffer(memory);
  loop_.at_tick_end(*this);
}

void RdmaConnection::pause() noexcept {
  paused_ = true;
  if (channel_ != nullptr) channel_->receiver().pause();
}

void RdmaConnection::resume() {
  if (!paused_) return;
  paused_ = false;
  if (ended_) return;
  channel_->receiver().resume();
  if (ended_) return;
  loop_.at_tick_end(*this);
  end_if_gone();
}

// ---- End

void RdmaConnection::close() {
  if (ended_ || closing_) return;
  closing_ = true;
  channel_->sender().close();
  flush();
}

// Messages that the peer's device sent before the end may still be in the completion queue.
void RdmaConnection::on_peer_gone(const Error& reason) {
  if (ended_) return;
  gone_ = reason;
  worker_->poll_all();
  end_if_gone();
}

void RdmaConnection::end_if_gone() {
  if (ended_ || !gone_ || channel_->receiver().held_back()) return;
  fail(Error(*gone_), false);
}

void RdmaConnection::fail(Error reason, bool broken_pair) {
  if (ended_) return;
  end_now(reason, broken_pair);
  if (sink_ != nullptr) {
    sink_->on_closed(reason);
  } else {
    unannounced_ = std::move(reason);
  }
}

Error RdmaConnection::dropped() { return Error::of_connection(ErrorCode::unavailable, "it was closed here"); }

void RdmaConnection::end_now(const Error& reason, bool broken_pair) noexcept {
  if (std::exchange(ended_, true)) return;
  cancelled_->store(true, std::memory_order_relaxed);
  loop_.remove_tick_end(*this);
  if (channel_ != nullptr) {
    committed_ = channel_->sender().committed();
    sent_ = channel_->sender().sent();
    arrived_ = channel_->receiver().arrived();
  }
  if (own_ring_ != nullptr) own_ring_->close();
  if (pair_ == nullptr) {
    if (counted_) worker_->device().release_queue_pair();
    worker_->release_entries(entries_);
    return;
  }
  RdmaChannel* const channel = channel_.get();
  bool broken_off = broken_pair || gone_.has_value();
  if (channel != nullptr && !broken_off) {
    try {
      channel->sender().mark_end();
    } catch (...) {
      broken_off = true;  // There is no memory: nothing would report that all has been sent.
    }
  }
  std::shared_ptr<ReceiveRing> ring = own_ring_ != nullptr ? std::move(own_ring_) : worker_->shared_ring();
  draining_.front()->start({.pair = std::move(pair_),
                            .channel = std::move(channel_),
                            .ring = std::move(ring),
                            .liveness = std::move(liveness_),
                            .entries = entries_,
                            .shared_receives = shared_ ? receives_ : 0,
                            .unposted = unposted_,
                            .connecting = connecting_,
                            .broken = broken_off,
                            .last_receive_reached = last_receive_reached_,
                            .busy = std::move(busy_)},
                           loop_.poller().now());
  worker_->drain(std::move(draining_));
  // The owners are notified last: they may do anything except destroy this.
  if (channel != nullptr) channel->end(reason);
}

}  // namespace hawser::transport::rdma
