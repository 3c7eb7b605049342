#include "transport/ucx/protocol/receiver.h"

#include <algorithm>
#include <utility>

#include "base/decimal_text.h"

namespace hawser::transport::ucx {
namespace {

// Most messages that may wait while the payload of the first one is missing.
constexpr std::size_t read_ahead_max = 256;
constexpr std::size_t packed_bytes_max = std::size_t{64} << 10;

}  // namespace

void UcxReceiver::start(MessageSink& sink) noexcept {
  sink_ = &sink;
  account_ = sink.receive_account();
}

void UcxReceiver::process() {
  if (ended_ || sink_ == nullptr) return;
  receive_arrivals();
  deliver();
}

bool UcxReceiver::violation(const std::string& how) {
  owner_.on_protocol_violation(how);
  return false;
}

// ---- Ordering of active messages ----

void UcxReceiver::receive_arrivals() {
  receiving_.swap(arrivals_);
  for (std::size_t i = 0; i < receiving_.size() && !ended_; ++i) {
    if (!receive(receiving_[i])) release(receiving_[i]);
    receiving_[i] = {};
  }
  for (ActiveMessage& left : receiving_) release(left);
  receiving_.clear();
}

void UcxReceiver::release(ActiveMessage& message) noexcept {
  if (message.block != nullptr) std::exchange(message.block, nullptr)->release();
  if (message.rendezvous != nullptr) link_.core().release(std::exchange(message.rendezvous, nullptr));
}

// Returns true if it keeps the memory that the message holds; otherwise the caller releases it.
bool UcxReceiver::receive(ActiveMessage& message) {
  const UcxHeader& header = message.header;
  arrived_ += UcxHeader::bytes + (message.rendezvous == nullptr ? message.size : 0);
  heard_ = true;
  if (!link_.credits.grant(header.taken))
    return violation("the header says that it has consumed more bytes than it was sent");
  switch (header.kind) {
    case UcxHeader::Kind::packed:
    case UcxHeader::Kind::fin:
      if (message.rendezvous != nullptr || (message.size == 0) != (header.kind == UcxHeader::Kind::fin)) {
        return violation("a packed message without data or by rendezvous, or an end message with data");
      }
      return receive_packet(message);
    case UcxHeader::Kind::payload:
      if (message.rendezvous == nullptr || !payloads_.add(message)) {
        return violation("a payload message that is not sent by rendezvous, or whose index is not expected");
      }
      return true;
    default: return false;
  }
}

bool UcxReceiver::receive_packet(ActiveMessage& message) {
  const bool room = link_.credits.receive(message.size + ucx_cost_overhead, link_.options().window_bytes);
  if (!room && message.header.kind != UcxHeader::Kind::fin) {
    return violation("it sends more than UcxOptions::window_bytes");
  }
  static_assert(UcxEntry::prefix_bytes == wire::MessagePrefix::bytes);
  if (message.size > std::max(packed_bytes_max, UcxEntry::padded(message_limit_.bytes_max()))) {
    return violation("a packed message of " + std::to_string(message.size) + " bytes exceeds the limit of " +
                     std::to_string(std::max(packed_bytes_max, UcxEntry::padded(message_limit_.bytes_max()))) +
                     " bytes");
  }
  if (packets_.add(message)) return true;
  return violation("a packed message with index " + std::to_string(message.header.index) +
                   " where the expected index is " + std::to_string(packets_.expected()) +
                   " or little more, or the same index twice");
}

// ---- Delivery ----

void UcxReceiver::deliver() {
  if (std::exchange(processing_, true)) return;
  while (!ended_ && !paused_) {
    if (waiting_.empty() ? !read_entry() : !deliver_front()) break;
  }
  processing_ = false;
}

// Returns the next entry, or std::nullopt if there is none. Ends the connection if the peer violated the protocol.
std::optional<UcxEntry> UcxReceiver::next_entry() {
  if (packets_.empty()) return std::nullopt;
  const PacketOrder::Packet& front = packets_.front();
  if (front.end) {
    if (waiting_.empty()) {
      owner_.on_end(Error::of_connection(Initiator::peer, ErrorCode::unavailable, "the peer closed the connection"));
    }
    return std::nullopt;
  }
  const std::optional<UcxEntry> entry = UcxEntry::load({front.data, front.size}, front.at);
  if (!entry) {
    violation("the lengths within a packed message do not match its size");
    return std::nullopt;
  }
  const wire::MessagePrefix lengths{static_cast<std::uint32_t>(entry->head.size()),
                                    static_cast<std::uint32_t>(entry->payload_bytes)};
  if (!message_limit_.allows(lengths)) {
    owner_.on_end(message_limit_.exceeded_by(lengths));
    return std::nullopt;
  }
  return entry;
}

// Delivers the next message directly from its packet, or queues it if it must wait. Returns false if there is none.
bool UcxReceiver::read_entry() {
  const std::optional<UcxEntry> entry = next_entry();
  if (!entry) return false;
  if (entry->payload_apart) {
    queue_entry(*entry);
    return true;
  }
  PacketOrder::Packet& front = packets_.front();
  front.at = entry->next;
  // The local reference keeps the memory while the sink is notified, because the sink may end the connection.
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
  link_.credits.take(front.size + ucx_cost_overhead);
  packets_.pop();
  block->release();
  return true;
}

void UcxReceiver::queue_entry(const UcxEntry& entry) {
  PacketOrder::Packet& front = packets_.front();
  Waiting& message = waiting_.emplace_back();
  message.head = entry.head;
  message.payload = entry.payload;
  message.block = front.block;
  message.apart = entry.payload_apart;
  message.size = entry.payload_bytes;
  if (message.apart) {
    message.buffer = PayloadBuffer(message.size, account_);
    message.number = payloads_.announce();
  }
  front.at = entry.next;
  if (front.at < front.size) {
    front.block->retain();
  } else {
    message.cost = front.size + ucx_cost_overhead;
    packets_.pop();
  }
}

bool UcxReceiver::deliver_front() {
  read_ahead();
  if (ended_) return false;
  const bool whole = !waiting_.front().apart || settle_payload(waiting_.front());
  if (!ended_) fetch_ahead();
  if (ended_ || !whole) return false;
  Waiting front = std::move(waiting_.front());
  waiting_.pop_front();
  if (front.apart) {
    payloads_.deliver();
    if (front.state == Waiting::State::here) ahead_bytes_ -= front.size;
  }
  Message message{.head = front.head, .payload = front.payload, .head_block = front.block};
  if (front.apart) {
    front.buffer.complete(message);
  } else {
    message.payload_block = front.block;
  }
  link_.credits.take(front.cost);
  sink_->on_message(message);
  front.block->release();
  return true;
}

// Asks the sink for the receive buffer of the next message and fetches the payload into it. Returns false until the
// payload has been fetched or discarded.
bool UcxReceiver::settle_payload(Waiting& front) {
  if (!std::exchange(front.asked, true)) {
    const ReceiveBuffer selected = sink_->select_receive_buffer(front.head, front.size);
    if (ended_) return false;
    front.buffer.select(selected);
  }
  if (front.state == Waiting::State::announced && !front.buffer.discarded() && !fetch(front)) {
    front.buffer.discard();  // The account refuses the memory.
  }
  if (ended_) return false;
  if (!front.buffer.discarded()) return front.state == Waiting::State::here;
  if (front.state == Waiting::State::fetching) {
    // The fetch completes without a notification.
    front.operation->target = nullptr;
    operations_.remove(*front.operation);
    ahead_bytes_ -= front.size;
  } else if (front.state == Waiting::State::announced) {
    if (payloads_.find(front.number) == nullptr) return false;
    ActiveMessage payload = payloads_.remove(front.number);
    release(payload);
  }
  return true;
}

// Reads further entries while the first message waits for its payload.
void UcxReceiver::read_ahead() {
  const std::size_t most = link_.options().rendezvous_in_flight_max;
  while (payloads_.undelivered() != 0 && payloads_.undelivered() < most && waiting_.size() < read_ahead_max) {
    const std::optional<UcxEntry> entry = next_entry();
    if (!entry) break;
    queue_entry(*entry);
  }
}

// Begins to fetch the payloads behind the first one. Payloads receive memory in their order, so that a later payload
// does not hold memory that an earlier one needs.
void UcxReceiver::fetch_ahead() {
  for (std::size_t i = 0; i < waiting_.size() && !ended_ && ahead_bytes_ < ahead_bytes_max; ++i) {
    if (!waiting_[i].apart || waiting_[i].state != Waiting::State::announced || waiting_[i].buffer.discarded())
      continue;
    if (i == 0 || !fetch(waiting_[i]) || ended_ || waiting_[i].state == Waiting::State::announced) break;
  }
}

// Begins to fetch the payload if UCX has announced it. Returns false if the account refuses the memory.
bool UcxReceiver::fetch(Waiting& message) {
  const ActiveMessage* const payload = payloads_.find(message.number);
  if (payload == nullptr) return true;
  if (payload->size != message.size) {
    violation("a payload message of " + count_text(payload->size, "byte") + " was announced with " +
              count_text(message.size, "byte"));
    return true;
  }
  PayloadBuffer& into = message.buffer;
  // UCX cannot release a receive buffer before the fetch completes, so a block must keep the destination alive.
  Block* block = nullptr;
  if (into.given()) block = link_.core().context().memory().retain_to_receive(into.data(), message.size);
  if (block == nullptr) {
    if (!into.allocate()) return false;
    block = into.own().block();
    block->retain();
  }
  UcxOperation& operation = *link_.core().acquire_operation(link_.target, UcxOperation::Kind::fetch);
  operation.block = block;
  operation.counted = message.number;
  void* const rendezvous = payloads_.remove(message.number).rendezvous;
  const ucs_status_t status =
      link_.core().fetch(link_.endpoint.get(), rendezvous, operation, into.data(), message.size);
  if (status != UCS_OK) {
    link_.core().recycle(operation);
    owner_.on_failure("fetching a payload", status);
    return true;
  }
  message.state = Waiting::State::fetching;
  message.operation = &operation;
  ahead_bytes_ += message.size;
  operations_.add(operation);
  return true;
}

void UcxReceiver::on_ended(UcxOperation& operation) {
  operations_.remove(operation);
  const ucs_status_t status = operation.status;
  const std::size_t number = operation.counted;
  arrived_ += operation.bytes;
  link_.core().recycle(operation);
  for (Waiting& message : waiting_) {
    if (!message.apart || message.number != number) continue;
    message.state = status == UCS_OK ? Waiting::State::here : Waiting::State::lost;
    message.operation = nullptr;
    break;
  }
  if (status != UCS_OK) return owner_.on_failure("fetching a payload", status);
  link_.process_soon();
}

void UcxReceiver::revoke_receive_buffer(const std::byte* memory) noexcept {
  if (ended_ || waiting_.empty() || !waiting_.front().buffer.revokes(memory)) return;
  waiting_.front().buffer.discard();
  link_.process_soon();
}

// ---- The end ----

void UcxReceiver::end() noexcept {
  ended_ = true;
  operations_.abandon();
  for (ActiveMessage& message : arrivals_) release(message);
  arrivals_.clear();
  packets_.clear();
  payloads_.clear([this](ActiveMessage& message) { release(message); });
  for (const Waiting& message : waiting_) ucx::release(message.block);
  waiting_.clear();
}

}  // namespace hawser::transport::ucx
