#include "lab/stream_receiver.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/try.h"
#include "lab/stream_sender.h"

namespace hawser::lab {

namespace rdma = transport::rdma;

// ---- Places

ReceivePlaces::ReceivePlaces(LabMemory& memory, std::size_t size_bytes, unsigned count)
    : memory_(memory), size_bytes_(size_bytes), held_(count) {}

rdma::ReceiveRequest ReceivePlaces::request(std::uint32_t place) const noexcept {
  return {.id = place, .segment = memory_.segment(place * stride_of(size_bytes_), size_bytes_)};
}

Bytes ReceivePlaces::contents(std::uint32_t place, std::size_t bytes) const noexcept {
  return Bytes(memory_.memory.data() + place * stride_of(size_bytes_), bytes);
}

Result<void> ReceivePlaces::verify(std::uint32_t place) const {
  if (!held_[place].any) return {};
  const std::optional<std::size_t> wrong = find_difference(contents(place, size_bytes_), held_[place].seed);
  if (!wrong) return {};
  return fail(Error::of_connection(ErrorCode::internal, "verification failed: byte " + std::to_string(*wrong) + " of " +
                                                            std::to_string(size_bytes_) + " in receive " +
                                                            std::to_string(place) + " is not what was sent"));
}

Result<void> ReceivePlaces::verify() const {
  for (std::uint32_t place = 0; place < count(); ++place) {
    TRY(verify(place));
  }
  return {};
}

// ---- Ring

bool HandoverRing::push(std::uint32_t number) noexcept {
  const std::size_t tail = tail_.load(std::memory_order_relaxed);
  const std::size_t next = (tail + 1) % slots_.size();
  if (next == head_.load(std::memory_order_acquire)) return false;
  slots_[tail] = number;
  tail_.store(next, std::memory_order_release);
  return true;
}

std::optional<std::uint32_t> HandoverRing::pop() noexcept {
  const std::size_t head = head_.load(std::memory_order_relaxed);
  if (head == tail_.load(std::memory_order_acquire)) return std::nullopt;
  const std::uint32_t number = slots_[head];
  head_.store((head + 1) % slots_.size(), std::memory_order_release);
  return number;
}

// ---- Receiver

StreamReceiver::StreamReceiver(const ReceiverPlan& plan, rdma::CompletionQueue& completions,
                               std::vector<IncomingStream> connections, SharedPlaces* shared, HandoverRing* to_reposter)
    : plan_(plan),
      completions_(completions),
      connections_(std::move(connections)),
      shared_(shared),
      to_reposter_(to_reposter) {
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    by_number_[connections_[i].queue_pair->number()] = i;
    remaining_ += connections_[i].count;
  }
}

Result<void> StreamReceiver::post_first() {
  for (IncomingStream& incoming : connections_) {
    incoming.granted = incoming.reposted = incoming.receives;
    if (incoming.places == nullptr) continue;
    std::vector<rdma::ReceiveRequest> all;
    for (std::uint32_t place = 0; place < incoming.places->count(); ++place) {
      all.push_back(incoming.places->request(place));
    }
    TRY(incoming.queue_pair->post_receive(all));
  }
  return {};
}

Result<bool> StreamReceiver::step(Processor& processor) {
  if (to_reposter_ != nullptr) {
    TRY(take_back());
  }
  std::array<rdma::Completion, poll_burst_max> completions;
  const std::size_t burst = std::clamp<std::size_t>(plan_.poll_burst, 1, poll_burst_max);
  const std::size_t count = completions_.poll(std::span(completions).first(burst));
  for (std::size_t i = 0; i < count; ++i) {
    if (completions[i].status != rdma::WorkStatus::success) return fail(completion_error(completions[i]));
    TRY(on_completion(processor, completions[i]));
  }
  return count > 0;
}

Result<void> StreamReceiver::on_completion(Processor& processor, const rdma::Completion& completion) {
  const auto found = by_number_.find(completion.queue_pair);
  if (found == by_number_.end()) return fail(ErrorCode::internal, "a completion of an unknown queue pair");
  IncomingStream& from = connections_[found->second];
  if (!completion.received) {
    --from.credit_writes;
    return grant_if_due(from);
  }
  ReceivePlaces& places = from.places != nullptr ? *from.places : *shared_->places;
  const auto place = static_cast<std::uint32_t>(completion.id);
  if (completion.bytes != places.size_bytes()) {
    return fail(ErrorCode::internal, "verification failed: a message of " + std::to_string(completion.bytes) +
                                         " bytes, " + std::to_string(places.size_bytes()) + " were sent");
  }
  places.hold(place, pattern_of(from.connection, from.arrived, from.sender_places));
  ++from.arrived;
  --remaining_;
  if (plan_.verify_each) {
    TRY(places.verify(place));
  }
  return give_back(processor, from, place);
}

Result<void> StreamReceiver::give_back(Processor& processor, IncomingStream& from, std::uint32_t place) {
  if (from.places != nullptr) {
    from.free.push_back(from.places->request(place));
    return from.free.size() < plan_.repost_batch ? Result<void>() : repost(from);
  }
  to_return_.push_back(by_number_[from.queue_pair->number()]);
  if (to_reposter_ != nullptr) {
    processor.did(CpuTask::handover);
    if (!to_reposter_->push(place)) return fail(ErrorCode::internal, "the ring to the re-poster is full");
    return {};
  }
  shared_free_.push_back(shared_->places->request(place));
  return shared_free_.size() < plan_.repost_batch ? Result<void>() : repost_shared();
}

Result<void> StreamReceiver::repost(IncomingStream& from) {
  TRY(from.queue_pair->post_receive(from.free));
  const std::uint64_t receives = from.free.size();
  from.free.clear();
  return returned(from, receives);
}

Result<void> StreamReceiver::repost_shared() {
  {
    const std::scoped_lock lock(shared_->mutex);
    TRY(shared_->queue->post_receive(shared_free_));
  }
  shared_free_.clear();
  for (; !to_return_.empty(); to_return_.pop_front()) {
    TRY(returned(connections_[to_return_.front()], 1));
  }
  return {};
}

// Processes the receives that the re-poster has posted.
Result<void> StreamReceiver::take_back() {
  for (const std::uint64_t finished = to_reposter_->finished(); taken_back_ < finished; ++taken_back_) {
    IncomingStream& from = connections_[to_return_.front()];
    to_return_.pop_front();
    TRY(returned(from, 1));
  }
  return {};
}

Result<void> StreamReceiver::returned(IncomingStream& from, std::uint64_t receives) {
  from.reposted += receives;
  return grant_if_due(from);
}

Result<void> StreamReceiver::grant_if_due(IncomingStream& to) {
  // Credits are written for a quarter of the receives at a time: senders need not wait, and the cost is low.
  const bool due = to.reposted - to.granted >= std::max(1u, to.receives / 4);
  if (to.credit_address == 0 || !due || to.credit_writes >= credit_writes_max) return {};
  to.granted = to.reposted;
  const rdma::Segment segment{reinterpret_cast<const std::byte*>(&to.granted), sizeof to.granted, 0};
  const rdma::SendRequest request{.segments = {&segment, 1},
                                  .opcode = rdma::Opcode::write,
                                  .inlined = true,
                                  .signalled = true,
                                  .remote_address = to.credit_address,
                                  .remote_key = to.credit_key};
  ++to.credit_writes;
  return to.queue_pair->post_send({&request, 1});
}

// ---- Re-poster

Result<bool> Reposter::step(Processor& processor) {
  bool progress = false;
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    const std::optional<std::uint32_t> place = rings_[i]->pop();
    if (!place) continue;
    processor.did(CpuTask::handover);
    free_.push_back(shared_.places->request(*place));
    ++popped_[i];
    --remaining_;
    progress = true;
  }
  if (free_.size() < batch_ && (free_.empty() || remaining_ > 0)) return progress;
  {
    const std::scoped_lock lock(shared_.mutex);
    TRY(shared_.queue->post_receive(free_));
  }
  free_.clear();
  for (std::size_t i = 0; i < rings_.size(); ++i) rings_[i]->finished(popped_[i]);
  return true;
}

}  // namespace hawser::lab
