#include "transport/rdma/connection/draining_queue_pair.h"

#include <span>
#include <utility>

namespace hawser::transport::rdma {

DrainingQueuePair::~DrainingQueuePair() {
  if (number_ == 0) return;  // It was never started.
  destroy_pair();
  if (parts_.liveness != nullptr) parts_.liveness->close();
  worker_.device().release_queue_pair();
}

void DrainingQueuePair::start(Parts parts, Time now) noexcept {
  parts_ = std::move(parts);
  number_ = parts_.pair->number();
  give_up_ = now + sending_max;
}

void DrainingQueuePair::on_completion(const Completion& completion) {
  if ((completion.id & ReceiveRing::id_bit) != 0) {
    ReceiveChunk* const chunk = parts_.ring->completed(completion.id);
    if (chunk == nullptr) return;
    parts_.ring->finish(*chunk);
    if (parts_.shared_receives == 0) return;
    // A peer that obeys its credits cannot send more, because nothing is granted.
    if (++received_ > parts_.shared_receives) parts_.broken = true;
    return worker_.repost_soon();
  }
  if (completion.id == marker_id) {
    drained_ = true;
  } else if (completion.status != WorkStatus::success) {
    parts_.broken = true;
  } else if (bool more = false; parts_.channel == nullptr || !parts_.channel->on_completed(completion.id, more)) {
    parts_.broken = true;
  }
}

void DrainingQueuePair::on_event(const DeviceEvent& event) {
  if (event.kind == DeviceEventKind::last_receive_reached) {
    parts_.last_receive_reached = true;
  } else {
    parts_.broken = true;
  }
}

bool DrainingQueuePair::advance(Time now, bool drain) noexcept {
  if (parts_.busy != nullptr && *parts_.busy) return false;
  const Duration unseen = now - std::exchange(looked_, now);
  if (state_ == State::draining && unseen > look_max) give_up_ += unseen;
  const bool shared = parts_.shared_receives != 0;
  if (state_ == State::sending) {
    const bool sent = parts_.broken || parts_.channel == nullptr || parts_.channel->work_queue().slots.idle();
    if (!sent && now < give_up_) return false;
    if (parts_.liveness != nullptr) parts_.liveness->close();
    // A queue pair that was never connected has used up no receives.
    drained_ = !shared || !parts_.connecting;
    if (drained_ || !drain) return true;
    parts_.pair->fail();
    state_ = State::draining;
    give_up_ = now + drain_max;
  }
  // When the marker's completion has been processed, so have all completions that came before the event. A full send
  // queue refuses the marker until completions of other requests have been processed.
  if (parts_.last_receive_reached && !marked_) marked_ = post_marker();
  return drained_ || !drain || now >= give_up_ || !worker_.usable();
}

bool DrainingQueuePair::post_marker() noexcept {
  try {
    const SendRequest marker{.id = marker_id, .segments = {}, .signalled = true};
    return parts_.pair->post_send(std::span(&marker, 1)).has_value();
  } catch (...) {
    return false;  // There is no memory for the text of the error.
  }
}

void DrainingQueuePair::destroy_pair() noexcept {
  if (parts_.pair == nullptr) return;
  worker_.device().access.remove(*parts_.pair);
  parts_.pair.reset();
}

}  // namespace hawser::transport::rdma
