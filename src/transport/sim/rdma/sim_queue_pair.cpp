#include "transport/sim/rdma/sim_queue_pair.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace hawser::transport {

using Kind = SimFabric::Event::Kind;

namespace {

// Minimal time after "receiver not ready" for the verbs' codes 0 to 31, in units of 10 us (InfiniBand Architecture
// Specification, volume 1, table 45).
constexpr std::array<unsigned, 32> rnr_timers_10us = {
    65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

double rnr_ns(unsigned code) { return 10'000.0 * rnr_timers_10us[code % rnr_timers_10us.size()]; }

double ack_timeout_ns(unsigned code) { return 4096.0 * static_cast<double>(1ULL << std::min(code, 31u)); }

}  // namespace

SimQueuePair::SimQueuePair(SimDevice& device, const rdma::QueuePairOptions& options)
    : device_(device),
      options_(options),
      completions_(static_cast<SimCompletionQueue&>(*options.completions)),
      shared_(static_cast<SimSharedReceiveQueue*>(options.shared_receives)),
      inline_bytes_(std::min(options.inline_bytes, device.parameters().inline_bytes_max)),
      unit_(device.next_unit()) {
  own_receives_.capacity = options.receive_requests;
  number_ = device_.fabric().add(*this);
  if (shared_ != nullptr) ++shared_->queue_pairs;
}

SimQueuePair::~SimQueuePair() {
  if (receive_poster_ != nullptr) receive_poster_->receives_kept -= own_receives_.capacity;
  if (shared_ != nullptr) --shared_->queue_pairs;
  if (device_.parameters().destroy_drops_entries) completions_.drop(number_);
  device_.fabric().remove(number_);
}

Result<void> SimQueuePair::connect(const rdma::QueuePairRoute& route) {
  if (state_ != State::reset) return hawser::fail(ErrorCode::invalid_argument, "the queue pair is connected already");
  route_ = route;
  state_ = State::ready_to_receive;
  const std::size_t reads = std::min<std::size_t>(route.max_rd_atomic, device_.limits().reads_outstanding);
  read_free_ns_.assign(std::max<std::size_t>(1, reads), 0);
  if (device_.connects_refused != 0) {
    --device_.connects_refused;
    return hawser::fail(ErrorCode::unavailable, "a fault that the test set keeps the simulated queue pair from RTS");
  }
  state_ = State::ready_to_send;
  return {};
}

Result<void> SimQueuePair::accept(const rdma::SendRequest& request) {
  SimWork work{.id = request.id,
               .opcode = request.opcode,
               .is_inline = request.inlined,
               .signalled = request.signalled,
               .solicited = request.solicited,
               .fenced = request.fenced,
               .immediate = request.immediate,
               .remote_address = request.remote_address,
               .remote_key = request.remote_key};
  if (device_.sends_accepted == 0) {
    return hawser::fail(ErrorCode::unavailable, "a fault that the test set: the device accepts no more requests");
  }
  if (request.segments.size() > options_.send_segments) {
    return hawser::fail(ErrorCode::limit_exceeded, "more segments than the queue pair was made for");
  }
  for (const rdma::Segment& segment : request.segments) {
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(segment.data));
    if (!request.inlined && device_.resolve(segment.local_key, address, segment.bytes) == nullptr) {
      return hawser::fail(ErrorCode::invalid_argument, "a segment lies outside of its registered region");
    }
    work.segments[work.segment_count++] = segment;
    work.bytes += segment.bytes;
  }
  if (request.inlined) {
    if (work.bytes > inline_bytes_ || request.opcode == rdma::Opcode::read) {
      return hawser::fail(ErrorCode::limit_exceeded, "more inline bytes than the queue pair grants");
    }
    work.inlined.resize(work.bytes);
    std::byte* to = work.inlined.data();
    for (const rdma::Segment& segment : request.segments) {
      std::memcpy(to, segment.data, segment.bytes);
      to += segment.bytes;
    }
    device_.charge(device_.parameters().inline_byte_ns * work.bytes);
  }
  sends_.push(std::move(work));
  if (device_.sends_accepted != SIZE_MAX) --device_.sends_accepted;
  return {};
}

Result<void> SimQueuePair::post_send(std::span<const rdma::SendRequest> requests) {
  accepted_ = 0;
  if (state_ != State::ready_to_send && state_ != State::error) {
    return hawser::fail(ErrorCode::invalid_argument, "the queue pair is not connected");
  }
  if (sends_.used() + requests.size() > options_.send_requests) {
    return hawser::fail(ErrorCode::limit_exceeded, "the send queue is full: take completions, or make it larger");
  }
  const SimParameters& costs = device_.parameters();
  const std::uint64_t first = sends_.next();
  Result<void> all;
  for (const rdma::SendRequest& request : requests) {
    all = accept(request);
    if (!all) break;
    ++accepted_;
  }
  ++device_.doorbells;
  device_.send_requests += accepted_;
  const SimProcessor& processor =
      device_.charge(costs.doorbell_ns + costs.send_request_ns * static_cast<double>(requests.size()));
  for (std::uint64_t sequence = first; sequence < first + accepted_; ++sequence) {
    sends_.at(sequence).posted_ns = processor.now_ns;
    if (!refusals_.waiting() && state_ != State::error)
      transmit(sequence, processor.now_ns + costs.doorbell_latency_ns);
  }
  if (state_ == State::error) break_down(Status::flushed, processor.now_ns);
  return all;
}

Result<void> SimQueuePair::post_receive(std::span<const rdma::ReceiveRequest> requests) {
  if (shared_ != nullptr) {
    return hawser::fail(ErrorCode::invalid_argument, "the queue pair shares its receives: post them there");
  }
  if (own_receives_.posted.size() + requests.size() > own_receives_.capacity) {
    return hawser::fail(ErrorCode::limit_exceeded, "the receive queue is full: post fewer, or make it larger");
  }
  const SimParameters& costs = device_.parameters();
  SimProcessor& processor = device_.charge(costs.receive_doorbell_ns);
  if (receive_poster_ != &processor) {
    if (receive_poster_ != nullptr) receive_poster_->receives_kept -= own_receives_.capacity;
    receive_poster_ = &processor;
    processor.receives_kept += own_receives_.capacity;
  }
  const double misses = std::max(0.0, 1 - costs.cached_receives / static_cast<double>(processor.receives_kept));
  device_.charge((costs.receive_request_ns + misses * costs.cache_miss_ns) * static_cast<double>(requests.size()));
  for (const rdma::ReceiveRequest& request : requests) own_receives_.posted.push_back(request);
  if (state_ == State::error) flush_receives(processor.now_ns);
  return {};
}

void SimQueuePair::fail() noexcept { break_down(Status::flushed, device_.fabric().now_ns()); }

// ---- Sender

void SimQueuePair::transmit(std::uint64_t sequence, double ns) {
  const SimWork& work = sends_.at(sequence);
  const bool read = work.opcode == rdma::Opcode::read;
  if (read) {
    // Replaces the read that returned first.
    double& free_ns = *std::min_element(read_free_ns_.begin(), read_free_ns_.end());
    ns = std::max(ns, free_ns);
    const SimParameters& costs = device_.parameters();
    free_ns = ns + 2 * costs.link_ns + costs.fetch_ns + costs.byte_ns() * work.bytes + costs.gap_ns;
  } else if (work.fenced) {
    ns = std::max(ns, *std::max_element(read_free_ns_.begin(), read_free_ns_.end()));
  }
  const double left_ns = device_.transmit(unit_, ns, read ? 0 : work.bytes, !work.is_inline && !read);
  last_arrival_ns_ = std::max(last_arrival_ns_, left_ns + device_.fabric().link_ns());
  device_.fabric().schedule({.ns = last_arrival_ns_,
                             .kind = Kind::arrive,
                             .queue_pair = number_,
                             .epoch = refusals_.epoch(),
                             .sequence = sequence});
}

void SimQueuePair::on_event(const SimFabric::Event& event) {
  if (event.kind == Kind::last_receive) {
    device_.raise({.kind = rdma::DeviceEventKind::last_receive_reached, .queue_pair = number_});
    return;
  }
  if (state_ == State::error) return;
  switch (event.kind) {
    case Kind::arrive: arrive(event); break;
    case Kind::acknowledge: finish(event.sequence, event.ns); break;
    case Kind::refuse: refused(event.sequence); break;
    case Kind::resume: resume(); break;
    case Kind::read_done: read_arrived(event); break;
    case Kind::give_up: break_down(static_cast<Status>(event.sequence), event.ns); break;
    case Kind::last_receive: break;
  }
}

bool SimQueuePair::takes_receive(const SimWork& work) const noexcept {
  return work.opcode == rdma::Opcode::send || work.opcode == rdma::Opcode::send_with_immediate ||
         work.opcode == rdma::Opcode::write_with_immediate;
}

// A message of this side has arrived at the peer's device.
void SimQueuePair::arrive(const SimFabric::Event& event) {
  if (event.epoch != refusals_.epoch() || !sends_.has(event.sequence)) return;
  SimFabric& fabric = device_.fabric();
  SimQueuePair* const peer = fabric.find(route_.peer_queue_pair);
  const double link_ns = device_.parameters().link_ns;
  const std::size_t packet_bytes = std::min<std::size_t>(sends_.at(event.sequence).bytes, route_.mtu_bytes);
  if (peer == nullptr || !peer->receives() || packet_bytes > device_.packet_bytes_max()) {
    const double tries = 1 + route_.retries;
    fabric.schedule({.ns = event.ns + tries * ack_timeout_ns(route_.ack_timeout),
                     .kind = Kind::give_up,
                     .queue_pair = number_,
                     .sequence = static_cast<std::uint64_t>(Status::retry_exceeded)});
    return;
  }
  if (event.sequence != peer->expected_) return;  // The message followed one that was refused.
  const SimWork& work = sends_.at(event.sequence);
  const bool shared = peer->shared_ != nullptr && peer->shared_->queue_pairs > 1;
  SimReceives& receives = peer->shared_ != nullptr ? peer->shared_->receives() : peer->own_receives_;
  if (takes_receive(work) && receives.posted.empty()) {
    ++peer->device_.rnr_sent;
    fabric.schedule(
        {.ns = event.ns + link_ns, .kind = Kind::refuse, .queue_pair = number_, .sequence = event.sequence});
    return;
  }
  const double taken_ns = peer->device_.take_in(event.ns, work.bytes, shared);
  if (work.opcode == rdma::Opcode::read) {
    ++peer->expected_;
    const double left_ns = peer->device_.transmit(peer->unit_, taken_ns, work.bytes, true);
    fabric.schedule(
        {.ns = left_ns + link_ns, .kind = Kind::read_done, .queue_pair = number_, .sequence = event.sequence});
    return;
  }
  if (const Status status = deliver(work, *peer, taken_ns); status != Status::success) {
    peer->break_down(Status::remote_invalid, taken_ns);
    fabric.schedule({.ns = taken_ns + link_ns,
                     .kind = Kind::give_up,
                     .queue_pair = number_,
                     .sequence = static_cast<std::uint64_t>(status)});
    return;
  }
  ++peer->expected_;
  fabric.schedule({.ns = taken_ns + device_.parameters().acknowledge_ns + link_ns,
                   .kind = Kind::acknowledge,
                   .queue_pair = number_,
                   .sequence = event.sequence});
}

void SimQueuePair::copy_from(const SimWork& work, std::byte* to) {
  std::byte* const start = to;
  if (work.is_inline) {
    if (work.bytes > 0) std::memcpy(to, work.inlined.data(), work.bytes);
  } else {
    for (unsigned i = 0; i < work.segment_count; ++i) {
      const rdma::Segment& segment = work.segments[i];
      const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(segment.data));
      const std::byte* const from = device_.resolve(segment.local_key, address, segment.bytes);
      // The region may have ended since the request was posted.
      if (segment.bytes > 0) std::memcpy(to, from != nullptr ? from : segment.data, segment.bytes);
      to += segment.bytes;
    }
  }
  if (device_.fabric().corrupts() && work.bytes > 0) start[work.bytes / 2] ^= std::byte{1};
}

// Returns the error that the sender gets if the delivery fails.
SimQueuePair::Status SimQueuePair::deliver(const SimWork& work, SimQueuePair& peer, double ns) {
  const SimParameters& costs = device_.parameters();
  rdma::Completion completion{.queue_pair = peer.number_, .received = true, .opcode = work.opcode, .bytes = work.bytes};
  if (work.opcode == rdma::Opcode::write || work.opcode == rdma::Opcode::write_with_immediate) {
    const SimDevice::Region* const region = peer.device_.region(work.remote_key);
    std::byte* const to = peer.device_.resolve(work.remote_key, work.remote_address, work.bytes);
    if (work.bytes > 0 && !peer.route_.access.remote_write) return Status::remote_invalid;
    if (work.bytes > 0 && (to == nullptr || !region->access.remote_write)) return Status::remote_access;
    if (to != nullptr) copy_from(work, to);
  }
  if (!takes_receive(work)) return Status::success;
  SimReceives& receives = peer.shared_ != nullptr ? peer.shared_->receives() : peer.own_receives_;
  const rdma::ReceiveRequest receive = receives.posted.front();
  receives.posted.pop_front();
  if (peer.shared_ != nullptr) peer.shared_->taken();
  completion.id = receive.id;
  if (work.opcode != rdma::Opcode::send) completion.has_immediate = true, completion.immediate = work.immediate;
  if (work.opcode != rdma::Opcode::write_with_immediate) {
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(receive.segment.data));
    std::byte* const to = peer.device_.resolve(receive.segment.local_key, address, receive.segment.bytes);
    if (work.bytes > receive.segment.bytes || (work.bytes > 0 && to == nullptr)) {
      completion.status = to == nullptr && work.bytes > 0 ? Status::local_error : Status::remote_invalid;
      peer.completions_.add(completion, ns, true);
      return completion.status == Status::local_error ? Status::remote_operation : Status::remote_invalid;
    }
    if (work.bytes > 0) copy_from(work, to);
  }
  peer.completions_.add(completion, ns + peer.device_.memory_ns(work.bytes) + costs.completion_ns, work.solicited);
  return Status::success;
}

void SimQueuePair::refused(std::uint64_t sequence) {
  if (refusals_.waiting() || !sends_.has(sequence)) return;
  ++device_.rnr_received;
  if (!refusals_.refuse(sequence, route_.rnr_retries)) {
    break_down(Status::rnr_exceeded, device_.fabric().now_ns());
    return;
  }
  const SimQueuePair* const peer = device_.fabric().find(route_.peer_queue_pair);
  const unsigned timer = peer != nullptr ? peer->route_.min_rnr_timer : route_.min_rnr_timer;
  device_.fabric().schedule(
      {.ns = device_.fabric().now_ns() + rnr_ns(timer), .kind = Kind::resume, .queue_pair = number_});
}

void SimQueuePair::resume() {
  const double now_ns = device_.fabric().now_ns();
  for (std::uint64_t sequence = refusals_.resume(); sends_.has(sequence); ++sequence) {
    transmit(sequence, std::max(now_ns, sends_.at(sequence).posted_ns));
  }
}

void SimQueuePair::read_arrived(const SimFabric::Event& event) {
  if (!sends_.has(event.sequence)) return;
  const SimWork& work = sends_.at(event.sequence);
  SimQueuePair* const peer = device_.fabric().find(route_.peer_queue_pair);
  if (peer == nullptr) return;
  const SimDevice::Region* const region = peer->device_.region(work.remote_key);
  const std::byte* from = peer->device_.resolve(work.remote_key, work.remote_address, work.bytes);
  const bool allowed = peer->route_.access.remote_read;
  if (work.bytes > 0 && (!allowed || from == nullptr || !region->access.remote_read)) {
    break_down(allowed ? Status::remote_access : Status::remote_invalid, event.ns);
    return;
  }
  for (unsigned i = 0; i < work.segment_count && from != nullptr; ++i) {
    const rdma::Segment& segment = work.segments[i];
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(segment.data));
    std::memcpy(device_.resolve(segment.local_key, address, segment.bytes), from, segment.bytes);
    from += segment.bytes;
  }
  finish(event.sequence, event.ns + device_.memory_ns(work.bytes));
}

void SimQueuePair::finish(std::uint64_t sequence, double ns) {
  if (!sends_.has(sequence)) return;
  sends_.finish(sequence, [&](const SimWork& work) {
    ++device_.send_completions;
    completions_.add({.id = work.id, .queue_pair = number_, .opcode = work.opcode},
                     ns + device_.parameters().completion_ns, false);
  });
}

void SimQueuePair::flush_receives(double ns) {
  for (const rdma::ReceiveRequest& receive : own_receives_.posted) {
    completions_.add({.id = receive.id, .queue_pair = number_, .status = Status::flushed, .received = true}, ns, true);
  }
  own_receives_.posted.clear();
}

// The oldest message completes with `status`, all others and the receives with Status::flushed.
void SimQueuePair::break_down(Status status, double ns) {
  const bool breaks = receives();
  state_ = State::error;
  sends_.clear([&](const SimWork& work) {
    completions_.add({.id = work.id, .queue_pair = number_, .status = status}, ns, true);
    status = Status::flushed;
  });
  flush_receives(ns);
  if (breaks && shared_ != nullptr && device_.parameters().raises_last_receive) {
    device_.fabric().schedule({.ns = completions_.last_ns(), .kind = Kind::last_receive, .queue_pair = number_});
  }
}

}  // namespace hawser::transport
