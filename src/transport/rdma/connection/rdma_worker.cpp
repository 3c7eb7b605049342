#include "transport/rdma/connection/rdma_worker.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/log_line.h"
#include "base/try.h"
#include "transport/rdma/connection/draining_queue_pair.h"
#include "transport/rdma/connection/rdma_connection.h"
#include "transport/rdma/rdma_transport.h"

namespace hawser::transport::rdma {
namespace {

// Periods of checking the memory pool, and of checking draining queue pairs.
constexpr Duration reclaim_period = std::chrono::seconds(2);
constexpr Duration drain_period = std::chrono::milliseconds(20);

// Handshakes in progress on one loop may hold this fraction of a device's registered memory.
constexpr std::size_t half_open_memory_divisor = 4;

std::size_t half_open_max(const RdmaOptions& options) noexcept {
  const std::size_t room = options.memory_bytes_max / half_open_memory_divisor / rdma_idle_connection_bytes(options);
  return std::clamp<std::size_t>(room, 1, options.half_open_max);
}

}  // namespace

// ---- Lifetime

Result<std::shared_ptr<RdmaWorker>> RdmaWorker::make(Loop& loop, std::shared_ptr<RdmaDevice> device) {
  const std::size_t entries = std::min(device->options.cq_entries, device->device->limits().completion_queue_entries);
  TRY(auto&& queue, device->device->create_completion_queue(entries));
  auto worker = std::make_shared<RdmaWorker>(loop, std::move(device), std::move(queue), entries);
  if (worker->device_->options.shared_receive_queue) {
    RdmaDevice& on = *worker->device_;
    TRY(worker->shared_,
        SharedReceives::make(*on.device, on.options, on.pool, static_cast<ReceiveRingOwner&>(*worker)));
  }
  return worker;
}

RdmaWorker::RdmaWorker(Loop& loop, std::shared_ptr<RdmaDevice> device, std::unique_ptr<CompletionQueue> queue,
                       std::size_t entries)
    : loop_(loop),
      device_(std::move(device)),
      port_(device_->options, *device_->device, device_->port, device_->gid),
      queue_(std::move(queue)),
      entries_(entries),
      events_(*this),
      half_open_(std::make_shared<HalfOpen>(half_open_max(device_->options))),
      polled_(device_->options.poll_burst),
      side_work_(loop_, device_->helper) {
  queue_->watch(loop_, *this);
  device_->device->watch_events(loop_, events_);
  loop_.add_source(*this);
  device_->add(*this);
  timer_.start(loop_, loop_.after(reclaim_period));
}

RdmaWorker::~RdmaWorker() {
  // Connections that ended together with their last user still send their posted requests. Their shared receives are
  // released with the queue.
  const Time give_up = loop_.poller().now() + DrainingQueuePair::sending_max;
  while (!draining_.empty() && loop_.poller().real_time() && loop_.poller().now() < give_up) reap(false);
  side_work_.close();
  discarded_.clear();
  for (Draining* const left : {&destroying_, &draining_}) {
    while (!left->empty()) destroy(*left, left->begin());
  }
  device_->remove(*this);
  loop_.remove_tick_end(*this);
  loop_.remove_source(*this);
  device_->device->unwatch_events(loop_, events_);
  queue_->unwatch(loop_, *this);
  shared_.reset();
  queue_.reset();
}

// Called at each handshake.
Result<void> RdmaWorker::check_port() {
  port_.refresh();
  if (!usable()) {
    return fail(Error::of_transport(
        ErrorCode::unavailable, device_->device->name() + " is gone, or a queue of this loop broke: try again later"));
  }
  return port_.check();
}

std::vector<std::byte> RdmaWorker::offer() {
  port_.refresh();
  return port_.offer().encode();
}

Result<RdmaOffer> RdmaWorker::check_client(Bytes offer) {
  auto theirs = RdmaOffer::decode(offer);
  if (!theirs) return theirs;
  TRY(check_port());
  TRY(port_.check(*theirs));
  return theirs;
}

Result<std::unique_ptr<PendingConnection>> RdmaWorker::select(Bytes offer, const MessageLimits& limits) {
  TRY(const auto& theirs, check_client(offer));
  auto pending = std::make_unique<RdmaPendingConnection>(loop_, theirs);
  TRY(half_open_->enter(*pending, loop_.now()));
  TRY(auto&& connection, RdmaConnection::begin(shared_from_this(), limits));
  pending->hold(std::move(connection));
  return pending;
}

Result<RdmaParameters> RdmaWorker::check_server(Bytes server) {
  auto theirs = RdmaParameters::decode(server);
  if (!theirs) return theirs;
  TRY(check_port());
  return theirs;
}

Result<std::unique_ptr<PendingConnection>> RdmaWorker::accept(Bytes server, const MessageLimits& limits) {
  TRY(const auto& theirs, check_server(server));
  TRY(auto&& connection, RdmaConnection::begin(shared_from_this(), limits));
  connection->limit_mtu(port_.limit(theirs.gid, loop_.now()));
  return std::make_unique<RdmaPendingConnection>(loop_, std::move(connection), theirs);
}

bool RdmaWorker::use_shorter_packets(Bytes server) {
  const auto theirs = RdmaParameters::decode(server);
  return theirs && port_.shorten(*theirs, loop_.now());
}

// ---- Resources of connections

Result<std::unique_ptr<QueuePair>> RdmaWorker::make_pair(unsigned send_requests, unsigned receive_requests) {
  return device_->device->create_queue_pair({.completions = queue_.get(),
                                             .shared_receives = shared_ == nullptr ? nullptr : &shared_->queue(),
                                             .send_requests = send_requests,
                                             .receive_requests = receive_requests,
                                             .send_segments = static_cast<unsigned>(send_segments()),
                                             .inline_bytes = static_cast<unsigned>(device_->options.inline_bytes),
                                             .pkey_index = device_->options.pkey_index},
                                            device_->port.number);
}

void RdmaWorker::drain(Draining one) noexcept {
  DrainingQueuePair& pair = *one.front();
  targets_.replace(pair.number(), pair);
  draining_.splice(draining_.end(), one);
  // Not immediately, because this may be called within a completion of the queue pair.
  try {
    repost_soon();
  } catch (...) {
    // There is no memory to schedule the end of this tick. The timer follows.
  }
}

void RdmaWorker::discard(std::unique_ptr<QueuePair> pair) {
  if (pair == nullptr) return;
  const auto at = discarded_.insert(discarded_.end(), std::move(pair));
  const bool begun = side_work_.run([this, at]() -> SideWork::After {
    at->reset();
    return [this, at] { discarded_.erase(at); };
  });
  if (!begun) discarded_.erase(at);
}

void RdmaWorker::reap(bool drain) {
  if (draining_.empty()) return;
  poll_all();
  const Time now = loop_.poller().now();
  for (auto at = draining_.begin(); at != draining_.end();) {
    at = (*at)->advance(now, drain) ? destroy_soon(at) : std::next(at);
  }
}

// The helper thread destroys it, because the kernel and the device take long.
RdmaWorker::Draining::iterator RdmaWorker::destroy_soon(Draining::iterator at) {
  const auto next = std::next(at);
  destroying_.splice(destroying_.end(), draining_, at);
  bool begun = false;
  try {
    begun = device_->helper != nullptr && side_work_.run([this, at]() -> SideWork::After {
      (*at)->destroy_pair();
      return [this, at] { destroy(destroying_, at); };
    });
  } catch (const std::bad_alloc&) {
    // It is destroyed here.
  }
  if (!begun) destroy(destroying_, at);
  return next;
}

// This is the only place that releases the remains of a connection's queue pair.
void RdmaWorker::destroy(Draining& from, Draining::iterator at) {
  Draining gone;
  gone.splice(gone.end(), from, at);
  DrainingQueuePair& pair = *gone.front();
  pair.destroy_pair();
  // Another queue pair may get its number, so none of its completions may be left. No queue pair with this number has
  // been connected yet, because that happens later on the same thread.
  poll_all();
  targets_.remove(pair.number());
  const DrainingQueuePair::Parts& parts = pair.parts();
  entries_.release(parts.entries);
  if (parts.shared_receives != 0) {
    if (parts.unposted != 0) shared_->ring()->disown(pair.number());
    // The device reports the end of draining, and did not do so in time. Chunks may be lost with this queue pair. Its
    // reserved share stays reserved to make up for them.
    if (pair.drained() || !shared_->raises_last_receive()) {
      shared_->release(parts.shared_receives);
    } else {
      log_line(loop_.options().log, LogLevel::warning, "rdma",
               [&] { return device_->device->name() + ": a queue pair was not drained in time"; });
    }
  }
}

// ---- The shared receive queue

Result<void> RdmaWorker::grow_shared(std::size_t receives) {
  repost_shared();
  TRY(shared_->promise(receives));
  repost_shared();
  return {};
}

void RdmaWorker::repost_shared() {
  const auto posted = shared_->repost([this](const ReceiveChunk& chunk, std::uint32_t queue_pair) {
    if (CompletionTarget* const target = targets_.find(queue_pair)) target->on_posted(chunk);
  });
  if (!posted) on_device_event({.kind = DeviceEventKind::shared_receive_queue_broken, .queue = &shared_->queue()});
}

void RdmaWorker::chunks_returned() noexcept {
  if (Loop::current() == &loop_) return repost_soon();
  loop_.post([watch = alive_.watch()] {
    if (RdmaWorker* const self = watch.get()) self->repost_soon();
  });
}

// ---- Completions

bool RdmaWorker::poll() {
  reap();
  return poll_once(polled_) != 0;
}

std::size_t RdmaWorker::poll_once(std::span<Completion> space) {
  const std::size_t count = queue_->poll(space);
  for (const Completion& completion : space.first(count)) hand_out(completion);
  if (shared_ != nullptr && shared_->refill_is_due()) repost_soon();
  return count;
}

void RdmaWorker::poll_all() {
  std::array<Completion, 32> space;
  while (poll_once(space) == space.size()) {
  }
}

void RdmaWorker::hand_out(const Completion& completion) {
  CompletionTarget* const target = targets_.find(completion.queue_pair);
  if (target == nullptr) return reclaim_receive(completion);
  target->on_completion(completion);
}

// The completion belongs to no connection. Its chunk of the shared queue must not be lost.
void RdmaWorker::reclaim_receive(const Completion& completion) {
  if (shared_ == nullptr || (completion.id & ReceiveRing::id_bit) == 0) return;
  ReceiveRing& ring = *shared_->ring();
  if (ReceiveChunk* const chunk = ring.completed(completion.id)) ring.finish(*chunk);
}

bool RdmaWorker::arm() {
  const auto armed = queue_->arm(false);
  if (!armed) {
    loop_.log(LogLevel::error, "rdma", armed.error().text);
    return true;
  }
  return poll_once(polled_) == 0;
}

// poll() processes the completions, in the tick that this starts.
void RdmaWorker::on_ready(exec::Readiness) {}

void RdmaWorker::on_tick_end() {
  if (shared_ != nullptr) repost_shared();
  reap();
  if (!draining_.empty()) timer_.start(loop_, loop_.after(drain_period));
}

void RdmaWorker::on_timer() {
  reap();
  reclaim();
  timer_.start(loop_, loop_.after(draining_.empty() ? reclaim_period : drain_period));
}

// The helper thread deregisters memory, because that takes long.
void RdmaWorker::reclaim() {
  if (!device_->pool->reclaim_is_due(loop_.now())) return;
  const bool begun = side_work_.run([pool = device_->pool, now = loop_.now()]() -> SideWork::After {
    pool->reclaim(now);
    return [] {};
  });
  if (!begun) device_->pool->reclaim(loop_.now());
}

// ---- Device events

void RdmaWorker::EventWatcher::on_ready(exec::Readiness) {
  while (const auto event = worker.device_->device->next_event()) worker.device_->notify(*event);
}

void RdmaWorker::post_event(const DeviceEvent& event) {
  loop_.post([watch = alive_.watch(), event] {
    if (RdmaWorker* const self = watch.get()) self->on_device_event(event);
  });
}

void RdmaWorker::on_device_event(const DeviceEvent& event) {
  switch (event.kind) {
    case DeviceEventKind::shared_receive_queue_low: return;
    case DeviceEventKind::addresses_changed: return port_.refresh();
    case DeviceEventKind::port_up:
      if (event.port != device_->port.number) return;
      grace_.stop();
      return port_.refresh();
    case DeviceEventKind::port_down:
      if (event.port != device_->port.number) return;
      port_.refresh();
      log_event(event);
      return grace_.start(loop_, loop_.after(device_->options.port_down_grace));
    case DeviceEventKind::last_receive_reached: {
      CompletionTarget* const target = targets_.find(event.queue_pair);
      if (target == nullptr) return;
      if (shared_ != nullptr) shared_->on_last_receive();
      target->on_event(event);
      return repost_soon();
    }
    case DeviceEventKind::queue_pair_fatal:
      if (CompletionTarget* const target = targets_.find(event.queue_pair)) target->on_event(event);
      return;
    case DeviceEventKind::completion_queue_overrun:
      if (event.queue != queue_.get()) return;
      broken_ = true;
      return break_down(event);
    case DeviceEventKind::shared_receive_queue_broken:
      if (shared_ == nullptr || event.queue != &shared_->queue()) return;
      broken_ = true;
      return break_down(event);
    case DeviceEventKind::device_fatal: return break_down(event);
  }
}

void RdmaWorker::log_event(const DeviceEvent& event) const noexcept {
  log_line(loop_.options().log, LogLevel::warning, "rdma",
           [&] { return device_->device->name() + ": " + std::string(to_string(event.kind)); });
}

// Ends every connection.
void RdmaWorker::break_down(const DeviceEvent& event) {
  const auto self = weak_from_this().lock();  // The last connection may release the last reference to this worker.
  log_event(event);
  for (const std::uint32_t number : targets_.numbers()) {
    if (CompletionTarget* const target = targets_.find(number)) target->on_event(event);
  }
}

void RdmaWorker::end_grace() {
  port_.refresh();
  // The event that reports the port's return may not have been read yet.
  if (port_.status().active) return;
  break_down({.kind = DeviceEventKind::port_down, .port = port_.status().number});
}

}  // namespace hawser::transport::rdma
