#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/ucx/connection/ucx_connection.h"

// What UcxConnection receives. Nothing here is called from within UCX.
namespace hawser::transport {
namespace {

// Payloads announced by UCX that nobody has asked for yet; peers keep to the most that an option allows.
constexpr std::size_t payloads_waiting_max = 1024;
// Messages read ahead of one whose payload is not here.
constexpr std::size_t read_ahead_max = 256;
constexpr std::size_t packed_bytes_most = std::size_t{64} << 10;

}  // namespace

void UcxConnection::ended(UcxOperation& operation) {
  forget(operation);
  if (operation.kind == UcxOperation::Kind::fetch) return fetched(operation);
  const ucs_status_t status = operation.status;
  finished(operation);
  if (status != UCS_OK) return broken("sending to the peer", status);
  send_ready();
  drained();
}

void UcxConnection::process() {
  if (ended_ || sink_ == nullptr) return;
  receive_messages();
  deliver();
  if (ended_) return;
  if (stream_end_ && !held_back()) return fail(Error(*stream_end_));
  if (endpoint_ != nullptr && endpoint_->failed != UCS_OK) return broken("UCX lost the peer", endpoint_->failed);
  send_ready();
  drained();
  if (!ended_ && taken_ - announced_ >= worker_->options().window_bytes / 4) loop_.at_tick_end(*this);
}

// ---- What came, in its order ----

void UcxConnection::receive_messages() {
  taking_.swap(arrivals_);
  for (std::size_t i = 0; i < taking_.size() && !ended_; ++i) {
    if (!receive(taking_[i])) release(taking_[i]);
    if (i < taking_.size()) taking_[i] = {};
  }
  for (ActiveMessage& left : taking_) release(left);
  taking_.clear();
}

void UcxConnection::release(ActiveMessage& arrival) noexcept {
  if (arrival.block != nullptr) std::exchange(arrival.block, nullptr)->release();
  if (arrival.rendezvous != nullptr) worker_->core().release(std::exchange(arrival.rendezvous, nullptr));
}

// True if what the arrival holds has been taken over.
bool UcxConnection::receive(ActiveMessage& arrival) {
  const UcxHeader& header = arrival.header;
  arrived_ += UcxHeader::bytes + (arrival.rendezvous == nullptr ? arrival.size : 0);
  if (!std::exchange(heard_, true) && !broken_) wire_up_.stop();
  if (header.taken > spent_) {
    protocol_violation("it says to have taken more than it was sent");
    return false;
  }
  granted_ = std::max(granted_, header.taken);
  switch (header.kind) {
    case UcxHeader::Kind::packed:
    case UcxHeader::Kind::fin:
      if (arrival.rendezvous != nullptr || (arrival.size == 0) != (header.kind == UcxHeader::Kind::fin)) {
        protocol_violation("a packed message that is none");
        return false;
      }
      return receive_packet(arrival);
    case UcxHeader::Kind::payload:
      if (arrival.rendezvous == nullptr || rendezvous_.size() >= payloads_waiting_max ||
          static_cast<std::int32_t>(header.index - payloads_taken_) < 0 ||
          !rendezvous_.try_emplace(header.index, arrival).second) {
        protocol_violation("a payload that nobody waits for");
        return false;
      }
      return true;
    default: return false;
  }
}

bool UcxConnection::receive_packet(ActiveMessage& arrival) {
  const bool end = arrival.header.kind == UcxHeader::Kind::fin;
  if (!end && received_cost_ - announced_ >= worker_->options().window_bytes) {
    protocol_violation("it sends more than UcxOptions::window_bytes");
    return false;
  }
  if (arrival.size >
      std::max(packed_bytes_most, UcxEntry::padded(UcxEntry::prefix_bytes + limits_.receive_bytes_max))) {
    protocol_violation("a packed message of " + std::to_string(arrival.size) + " bytes");
    return false;
  }
  received_cost_ += arrival.size + ucx_cost_overhead;
  const std::uint32_t distance = arrival.header.index - expected_;
  if (distance >= overtaking_max || early_.contains(arrival.header.index)) {
    protocol_violation("a packed message that is not in its place");
    return false;
  }
  if (distance != 0) {
    early_.emplace(arrival.header.index, arrival);
    return true;
  }
  in_order_.push_back({.data = arrival.data, .size = arrival.size, .block = arrival.block, .end = end});
  ++expected_;
  for (auto next = early_.begin(); !early_.empty() && (next = early_.find(expected_)) != early_.end(); ++expected_) {
    const ActiveMessage& one = next->second;
    in_order_.push_back(
        {.data = one.data, .size = one.size, .block = one.block, .end = one.header.kind == UcxHeader::Kind::fin});
    early_.erase(next);
  }
  return true;
}

// ---- Delivery ----

void UcxConnection::deliver() {
  if (std::exchange(processing_, true)) return;
  while (!ended_ && !paused_) {
    if (incoming_.empty() ? !read_entry() : !deliver_front()) break;
  }
  processing_ = false;
}

// The entry that is next, or nothing, with the connection ended if that is the peer's fault.
std::optional<UcxEntry> UcxConnection::next_entry() {
  if (in_order_.empty()) return std::nullopt;
  const Arrived& front = in_order_.front();
  if (front.end) {
    if (incoming_.empty()) {
      fail({ErrorCode::unavailable, ErrorScope::connection, Initiator::peer, 0, "the peer closed the connection"});
    }
    return std::nullopt;
  }
  const std::optional<UcxEntry> entry = UcxEntry::load({front.data, front.size}, front.at);
  if (!entry) {
    protocol_violation("a packed message whose lengths do not fit");
    return std::nullopt;
  }
  const std::size_t total = entry->head.size() + entry->payload_bytes;
  if (total > limits_.receive_bytes_max) {
    fail({ErrorCode::protocol_error, ErrorScope::connection, Initiator::peer, 0,
          "a message of " + std::to_string(total) + " bytes exceeds message_bytes_max (" +
              std::to_string(limits_.receive_bytes_max) + "): send less, or raise the limit on both sides"});
    return std::nullopt;
  }
  return entry;
}

// Delivers the next message straight from its packet, or queues it if it has to wait; false if there is none.
bool UcxConnection::read_entry() {
  const std::optional<UcxEntry> entry = next_entry();
  if (!entry) return false;
  if (entry->payload_apart) {
    queue_entry(*entry);
    return true;
  }
  Arrived& front = in_order_.front();
  front.at = entry->next;
  // Ours while the sink is told, who may end the connection.
  Block* const block = std::exchange(front.block, nullptr);
  sink_->on_message({.head = entry->head, .payload = entry->payload, .head_block = block, .payload_block = block});
  if (ended_) {
    block->release();
    return false;
  }
  if (front.at < front.size) {
    front.block = block;
    return true;
  }
  taken_ += front.size + ucx_cost_overhead;
  in_order_.pop_front();
  block->release();
  return true;
}

void UcxConnection::queue_entry(const UcxEntry& entry) {
  Arrived& front = in_order_.front();
  IncomingMessage incoming{.head = entry.head,
                           .payload = entry.payload,
                           .block = front.block,
                           .apart = entry.payload_apart,
                           .size = entry.payload_bytes,
                           .fetched = PayloadBuffer(entry.payload_apart ? entry.payload_bytes : 0, account_)};
  if (incoming.apart) {
    incoming.number = payloads_announced_++;
    ++ahead_;
  }
  front.at = entry.next;
  if (front.at < front.size) {
    front.block->retain();
  } else {
    incoming.cost = front.size + ucx_cost_overhead;
    in_order_.pop_front();
  }
  incoming_.push_back(std::move(incoming));
}

bool UcxConnection::deliver_front() {
  look_ahead();
  if (ended_) return false;
  if (incoming_.front().apart && !settle_payload(incoming_.front())) return false;
  IncomingMessage front = std::move(incoming_.front());
  incoming_.pop_front();
  if (front.apart) {
    --ahead_;
    ++payloads_taken_;
    if (front.state == IncomingMessage::State::here) ahead_bytes_ -= front.size;
  }
  Message message{.head = front.head, .payload = front.payload, .head_block = front.block};
  if (front.apart) {
    front.fetched.complete(message);
  } else {
    message.payload_block = front.block;
  }
  taken_ += front.cost;
  sink_->on_message(message);
  front.block->release();
  return true;
}

// Asks where the payload of the message that is next goes, and gets it there; false while it is not.
bool UcxConnection::settle_payload(IncomingMessage& front) {
  if (!std::exchange(front.asked, true)) {
    const ReceiveBuffer selected = sink_->select_receive_buffer(front.head, front.size);
    if (ended_) return false;
    front.fetched.select(selected);
  }
  if (front.state == IncomingMessage::State::announced && !front.fetched.discarded() && !fetch(front)) {
    front.fetched.discard();  // The account refuses it.
  }
  if (ended_) return false;
  if (front.fetched.discarded()) {
    if (front.state == IncomingMessage::State::fetching) {
      // It comes to its end by itself.
      front.operation->receiver = nullptr;
      forget(*front.operation);
      ahead_bytes_ -= front.size;
    } else if (front.state == IncomingMessage::State::announced) {
      const auto payload = rendezvous_.find(front.number);
      if (payload == rendezvous_.end()) return false;
      release(payload->second);
      rendezvous_.erase(payload);
    }
    return true;
  }
  return front.state == IncomingMessage::State::here;
}

// Reads on while the first message waits for its payload, and fetches what is announced there.
void UcxConnection::look_ahead() {
  const std::size_t most = worker_->options().rendezvous_in_flight_max;
  while (ahead_ != 0 && ahead_ < most && incoming_.size() < read_ahead_max) {
    const std::optional<UcxEntry> entry = next_entry();
    if (!entry) break;
    queue_entry(*entry);
  }
  for (std::size_t i = 1; i < incoming_.size() && !ended_ && ahead_bytes_ < ahead_bytes_max; ++i) {
    if (incoming_[i].apart && incoming_[i].state == IncomingMessage::State::announced && !fetch(incoming_[i])) break;
  }
}

// If UCX has announced the payload, begins to fetch it. False: the account refuses the memory.
bool UcxConnection::fetch(IncomingMessage& incoming) {
  const auto payload = rendezvous_.find(incoming.number);
  if (payload == rendezvous_.end()) return true;
  if (payload->second.size != incoming.size) {
    protocol_violation("a payload of another size than announced");
    return true;
  }
  PayloadBuffer& into = incoming.fetched;
  // UCX can't be told to let go of memory: it receives into what a block keeps.
  Block* block = nullptr;
  if (into.given()) block = worker_->core().context().memory().retain_to_receive(into.data(), incoming.size);
  if (block == nullptr) {
    if (!into.allocate()) return false;
    block = into.own().block();
    block->retain();
  }
  UcxOperation& operation = *worker_->core().acquire_operation(*this, UcxOperation::Kind::fetch);
  operation.block = block;
  operation.counted = incoming.number;
  void* const rendezvous = payload->second.rendezvous;
  rendezvous_.erase(payload);
  if (const ucs_status_t status = worker_->core().fetch(rendezvous, operation, into.data(), incoming.size);
      status != UCS_OK) {
    worker_->core().recycle(operation);
    broken("fetching a payload", status);
    return true;
  }
  incoming.state = IncomingMessage::State::fetching;
  incoming.operation = &operation;
  ahead_bytes_ += incoming.size;
  track(operation);
  return true;
}

void UcxConnection::fetched(UcxOperation& operation) {
  const ucs_status_t status = operation.status;
  const std::size_t number = operation.counted;
  arrived_ += operation.bytes;
  worker_->core().recycle(operation);
  for (IncomingMessage& incoming : incoming_) {
    if (!incoming.apart || incoming.number != number) continue;
    incoming.state = status == UCS_OK ? IncomingMessage::State::here : IncomingMessage::State::lost;
    incoming.operation = nullptr;
    break;
  }
  if (status != UCS_OK) return broken("fetching a payload", status);
  worker_->process_soon(token_);
}

void UcxConnection::revoke_receive_buffer(const std::byte* memory) noexcept {
  if (ended_ || incoming_.empty() || !incoming_.front().fetched.revokes(memory)) return;
  incoming_.front().fetched.discard();
  worker_->process_soon(token_);
}

void UcxConnection::resume() {
  if (!std::exchange(paused_, false)) return;
  worker_->process_soon(token_);
}

void UcxConnection::drop_received() noexcept {
  for (ActiveMessage& arrival : arrivals_) release(arrival);
  arrivals_.clear();
  for (auto& [index, arrival] : early_) release(arrival);
  early_.clear();
  for (auto& [index, arrival] : rendezvous_) release(arrival);
  rendezvous_.clear();
  for (const Arrived& arrived : in_order_) release(arrived.block);
  in_order_.clear();
  for (const IncomingMessage& incoming : incoming_) release(incoming.block);
  incoming_.clear();
}

}  // namespace hawser::transport
