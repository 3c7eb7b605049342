#include "transport/ucx/protocol/sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hawser/transport/kept_payload.h"
#include "transport/common/gather.h"
#include "transport/ucx/core/ucx_lanes.h"

namespace hawser::transport::ucx {

// ---- Packing ----

std::byte* UcxSender::reserve(std::size_t head_bytes) {
  if (ended_ || closing_) return nullptr;
  return packets_.reserve(head_bytes);
}

void UcxSender::commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) {
  const std::size_t payload_bytes = total_bytes(payload);
  Block* const kept = owner != nullptr ? retain_kept(payload, payload_bytes, *owner) : nullptr;
  const bool apart = kept != nullptr || payload_bytes >= link_.peer.rendezvous_bytes_min;
  const std::size_t filled = UcxEntry::prefix_bytes + head_bytes + (apart ? 0 : payload_bytes);
  const std::size_t entry_bytes = UcxEntry::padded(filled);
  std::byte* const entry = packets_.extend(head_bytes, entry_bytes, link_.options().packed_bytes_max);
  store_le(entry, static_cast<std::uint32_t>(head_bytes));
  store_le(entry + 4, static_cast<std::uint32_t>(payload_bytes) | (apart ? UcxEntry::apart : 0));
  if (!apart) gather(entry + UcxEntry::prefix_bytes + head_bytes, payload);
  std::memset(entry + filled, 0, entry_bytes - filled);

  const std::size_t counted = UcxEntry::prefix_bytes + head_bytes + payload_bytes;
  committed_ += counted;
  backlog_ += counted;
  waiting_ += counted;
  packets_.add(entry_bytes, apart ? counted - payload_bytes : counted);
  if (apart) {
    Payload& large = payloads_.emplace_back();
    large.owner = owner;
    large.block = kept;
    large.size = payload_bytes;
    large.packet = packets_.index();
    if (kept != nullptr) {
      large.data = payload.front().data;
    } else {
      large.buffers.assign(payload.begin(), payload.end());
      if (owner == nullptr) copy(large);
    }
  } else if (owner != nullptr) {
    owner->on_send_complete();
  }
  if (waiting_ >= early_flush_bytes && !ended_) {
    packets_.seal();
    send_ready();
  }
}

// Returns the size from which a payload in registered memory is sent without a copy. The query to UCX takes about ten
// microseconds; it happens once.
std::size_t UcxSender::registered_bytes_min() {
  if (registered_bytes_min_ != 0) return registered_bytes_min_;
  if (link_.endpoint == nullptr) return link_.peer.rendezvous_bytes_min;
  const auto lanes = ucx_lanes(link_.core().ucp(), link_.endpoint->ep);
  const bool reaches = std::any_of(lanes.begin(), lanes.end(), [](const auto& lane) { return lane.name != "tcp"; });
  registered_bytes_min_ = link_.peer.rendezvous_bytes_min;
  if (reaches) registered_bytes_min_ = std::min(registered_bytes_min_, link_.options().registered_bytes_min);
  return registered_bytes_min_;
}

// Returns the block that keeps the payload, with one more reference, if the payload is one buffer that UCX may use
// until it has completed: in the application's registered memory, or a KeptPayload. Returns null otherwise.
Block* UcxSender::retain_kept(std::span<const ConstBuffer> payload, std::size_t payload_bytes, SendCompletion& owner) {
  if (payload_bytes < std::min(link_.options().registered_bytes_min, link_.peer.rendezvous_bytes_min)) return nullptr;
  if (payload.size() != 1) return nullptr;
  UcxMemory& memory = link_.core().context().memory();
  auto* const kept = dynamic_cast<KeptPayload*>(&owner);
  if ((kept == nullptr && memory.bytes() == 0) || payload_bytes < registered_bytes_min()) return nullptr;
  if (kept == nullptr) return memory.retain_to_send(payload.front().data, payload_bytes);
  kept->block().retain();
  return &kept->block();
}

void UcxSender::copy(Payload& payload) {
  payload.block = Block::allocate(payload.size);
  payload.data = payload.block->data();
  gather(payload.block->data(), payload.buffers);
  payload.buffers.clear();
  payload.owner = nullptr;
}

void UcxSender::copy_and_release(SendCompletion& owner) {
  for (Payload& payload : payloads_) {
    if (payload.owner != &owner) continue;
    if (payload.block == nullptr) copy(payload);
    payload.owner = nullptr;
  }
  for (UcxOperation* operation : operations_.all()) {
    if (operation->owner == &owner) operation->owner = nullptr;
  }
}

// ---- Handing over to UCX ----

void UcxSender::open() {
  opened_ = true;
  if (link_.endpoint != nullptr) send_bare(UcxHeader::Kind::hello);
}

void UcxSender::on_endpoint() {
  if (!opened_) return;
  send_bare(UcxHeader::Kind::hello);
  flush();
}

bool UcxSender::under_way() const noexcept {
  return std::all_of(operations_.all().begin(), operations_.all().end(),
                     [](const UcxOperation* operation) { return operation->done || operation->tag != nullptr; });
}

void UcxSender::flush() {
  if (ended_) return;
  packets_.seal();
  send_ready();
  if (!ended_ && opened_ && link_.endpoint != nullptr && link_.credits.announcement_due(link_.options().window_bytes)) {
    send_bare(UcxHeader::Kind::credit);
  }
}

void UcxSender::send_ready() {
  if (sending_now_ || ended_ || !opened_ || link_.endpoint == nullptr || link_.endpoint->failed != UCS_OK) return;
  sending_now_ = true;
  waiting_ = 0;
  while (!ended_ && !packets_.empty()) {
    // A fin needs no room in the window: there is only one, and nothing follows it.
    if (packets_.front().block != nullptr && !link_.credits.may_send(link_.peer.window_bytes)) break;
    send_packet(packets_.pop());
  }
  // A payload is sent after the packet that announces it. Otherwise the window might be full of messages that are
  // delivered after the payload.
  while (!ended_ && !payloads_.empty() && payloads_in_flight_ < link_.options().rendezvous_in_flight_max &&
         static_cast<std::int32_t>(packets_sent_ - payloads_.front().packet) > 0) {
    Payload payload = std::move(payloads_.front());
    payloads_.pop_front();
    send_payload(std::move(payload));
  }
  sending_now_ = false;
}

void UcxSender::send_packet(const PacketWriter::Packet& packet) {
  UcxOperation& operation = *link_.core().acquire_operation(link_.target, UcxOperation::Kind::send);
  operation.block = packet.block;
  operation.counted = packet.counted;
  link_.credits.send(packet.size + ucx_cost_overhead);
  sent_ += packet.counted;
  const std::uint32_t index = packets_sent_++;
  if (packet.block == nullptr) return hand_over(operation, UcxHeader::Kind::fin, index, nullptr, 0, 0);
  hand_over(operation, UcxHeader::Kind::packed, index, packet.block->data() + packet.begin, packet.size,
            UCP_AM_SEND_FLAG_EAGER);
}

void UcxSender::send_payload(Payload payload) {
  // The owner of a copied payload is notified now, any other owner when UCX has sent the payload.
  SendCompletion* const owner = payload.block == nullptr ? payload.owner : nullptr;
  if (payload.block == nullptr) copy(payload);
  UcxOperation& operation = *link_.core().acquire_operation(link_.target, UcxOperation::Kind::send);
  operation.block = payload.block;
  operation.owner = payload.owner;
  operation.counted = payload.size;
  operation.tag = this;
  sent_ += payload.size;
  ++payloads_in_flight_;
  hand_over(operation, UcxHeader::Kind::payload, payloads_sent_++, payload.data, payload.size, UCP_AM_SEND_FLAG_RNDV);
  if (owner != nullptr) owner->on_send_complete();
}

void UcxSender::send_bare(UcxHeader::Kind kind) {
  UcxOperation& operation = *link_.core().acquire_operation(link_.target, UcxOperation::Kind::send);
  const bool include_endpoint = kind == UcxHeader::Kind::hello && link_.options().wire_up == UcxWireUp::listener;
  hand_over(operation, kind, 0, nullptr, 0, include_endpoint ? std::uint32_t{UCP_AM_SEND_FLAG_REPLY} : 0);
}

void UcxSender::hand_over(UcxOperation& operation, UcxHeader::Kind kind, std::uint32_t index, const std::byte* data,
                          std::size_t size, std::uint32_t flags) {
  UcxHeader{.token = link_.peer.token, .taken = link_.credits.announce(), .index = index, .kind = kind}.store(
      operation.header.data());
  switch (const ucs_status_t status = link_.core().send(*link_.endpoint, operation, data, size, flags); status) {
    case UCS_OK: finished(operation); return;
    case UCS_INPROGRESS: operations_.add(operation); return;
    default:
      // process() notifies the sink, because this function may be called from within any function of the connection.
      link_.endpoint->failed = status;
      link_.process_soon();
      recycle(operation);
  }
}

void UcxSender::on_ended(UcxOperation& operation) noexcept {
  operations_.remove(operation);
  finished(operation);
}

void UcxSender::finished(UcxOperation& operation) noexcept {
  backlog_ -= operation.counted;
  if (operation.tag != nullptr) --payloads_in_flight_;
  recycle(operation);
}

// Notifies the owner, which may commit more messages or end the connection.
void UcxSender::recycle(UcxOperation& operation) noexcept {
  SendCompletion* const owner = operation.owner;
  link_.core().recycle(operation);
  if (owner != nullptr) owner->on_send_complete();
}

// ---- The end ----

void UcxSender::close() {
  if (ended_ || std::exchange(closing_, true)) return;
  packets_.add_fin();
  send_ready();
}

std::vector<SendCompletion*> UcxSender::end() {
  ended_ = true;
  std::vector<SendCompletion*> owners;
  // An operation that UCX has not completed yet keeps its memory and completes without a notification.
  for (UcxOperation* operation : operations_.all()) {
    if (operation->owner != nullptr) owners.push_back(std::exchange(operation->owner, nullptr));
  }
  operations_.abandon();
  packets_.clear();
  for (const Payload& payload : payloads_) {
    release(payload.block);
    if (payload.owner != nullptr) owners.push_back(payload.owner);
  }
  payloads_.clear();
  return owners;
}

}  // namespace hawser::transport::ucx
