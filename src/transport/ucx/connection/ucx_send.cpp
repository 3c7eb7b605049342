#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "transport/ucx/connection/ucx_connection.h"
#include "transport/ucx/core/ucx_lanes.h"

// What UcxConnection sends.
namespace hawser::transport {
namespace {

constexpr std::size_t block_bytes = std::size_t{64} << 10;

}  // namespace

// ---- Packing ----

// [begin_, end) becomes a packet, the rest stays open.
void UcxConnection::seal_up_to(std::size_t end) {
  if (end == begin_) return;
  block_->retain();
  packets_.push_back({.block = block_, .begin = begin_, .size = end - begin_, .counted = open_counted_});
  open_counted_ = 0;
  begin_ = end;
  ++packets_sealed_;
}

// Room for `bytes` at used_, behind the entries of the open packet or in a new block.
void UcxConnection::make_room(std::size_t bytes) {
  if (block_ != nullptr && block_->size() - used_ >= bytes) return;
  seal_up_to(used_);
  release(block_);
  block_ = Block::allocate(std::max(bytes, block_bytes));
  begin_ = used_ = 0;
}

std::byte* UcxConnection::reserve(std::size_t head_bytes) {
  if (ended_ || finishing_) return nullptr;
  make_room(UcxEntry::padded(UcxEntry::prefix_bytes + head_bytes));
  return block_->data() + used_ + UcxEntry::prefix_bytes;
}

void UcxConnection::commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) {
  std::size_t payload_bytes = 0;
  for (const ConstBuffer& piece : payload) payload_bytes += piece.size;
  assert(head_bytes + payload_bytes <= limits_.send_bytes_max);
  Block* const registered = owner != nullptr ? retain_registered(payload, payload_bytes) : nullptr;
  const bool apart = registered != nullptr || payload_bytes >= peer_.rendezvous_bytes_min;
  const std::size_t filled = UcxEntry::prefix_bytes + head_bytes + (apart ? 0 : payload_bytes);
  const std::size_t entry_bytes = UcxEntry::padded(filled);
  if (block_->size() - used_ < entry_bytes) {
    // The head is there already: it moves.
    Block* const filled_block = block_;
    const std::byte* const head = block_->data() + used_ + UcxEntry::prefix_bytes;
    filled_block->retain();
    make_room(entry_bytes);
    std::memcpy(block_->data() + used_ + UcxEntry::prefix_bytes, head, head_bytes);
    filled_block->release();
  } else if (used_ - begin_ + entry_bytes > worker_->options().packed_bytes_max) {
    seal_up_to(used_);
  }
  std::byte* const entry = block_->data() + used_;
  store_le(entry, static_cast<std::uint32_t>(head_bytes));
  store_le(entry + 4, static_cast<std::uint32_t>(payload_bytes) | (apart ? UcxEntry::apart : 0));
  if (!apart) {
    std::byte* to = entry + UcxEntry::prefix_bytes + head_bytes;
    for (const ConstBuffer& piece : payload) {
      if (piece.size != 0) std::memcpy(to, piece.data, piece.size);
      to += piece.size;
    }
  }
  std::memset(entry + filled, 0, entry_bytes - filled);
  used_ += entry_bytes;

  const std::size_t counted = UcxEntry::prefix_bytes + head_bytes + payload_bytes;
  committed_ += counted;
  backlog_ += counted;
  waiting_ += counted;
  open_counted_ += apart ? counted - payload_bytes : counted;
  if (apart) {
    Outgoing& outgoing = payloads_.emplace_back(
        Outgoing{.owner = owner, .block = registered, .size = payload_bytes, .packet = packets_sealed_});
    if (registered != nullptr) {
      outgoing.data = payload.front().data;
    } else {
      outgoing.pieces.assign(payload.begin(), payload.end());
      if (owner == nullptr) copy(outgoing);
    }
  }
  watermark_.on_commit(backlog_);
  loop_.at_tick_end(*this);
  if (!apart && owner != nullptr) owner->on_send_complete();
  if (waiting_ >= early_flush_bytes && !ended_) {
    seal_up_to(used_);
    send_ready();
  }
}

// From here on what lies in registered memory is fetched from there. Asking UCX takes some ten microseconds, once.
std::size_t UcxConnection::registered_bytes_min() {
  if (registered_bytes_min_ != 0) return registered_bytes_min_;
  if (endpoint_ == nullptr) return peer_.rendezvous_bytes_min;
  const auto lanes = ucx_lanes(worker_->core().ucp(), endpoint_->ep);
  const bool reaches = std::any_of(lanes.begin(), lanes.end(), [](const auto& lane) { return lane.name != "tcp"; });
  registered_bytes_min_ = reaches ? std::min(worker_->options().registered_bytes_min, peer_.rendezvous_bytes_min)
                                  : peer_.rendezvous_bytes_min;
  return registered_bytes_min_;
}

// What keeps the payload, with one reference more, if it is a single piece of the application's registered memory.
Block* UcxConnection::retain_registered(std::span<const ConstBuffer> payload, std::size_t payload_bytes) {
  if (payload_bytes < std::min(worker_->options().registered_bytes_min, peer_.rendezvous_bytes_min)) return nullptr;
  UcxMemory& memory = worker_->core().context().memory();
  if (memory.bytes() == 0 || payload_bytes < registered_bytes_min()) return nullptr;
  if (payload.size() != 1) return nullptr;
  return memory.retain_to_send(payload.front().data, payload_bytes);
}

void UcxConnection::copy(Outgoing& outgoing) {
  outgoing.block = Block::allocate(outgoing.size);
  outgoing.data = outgoing.block->data();
  std::byte* to = outgoing.block->data();
  for (const ConstBuffer& piece : outgoing.pieces) {
    if (piece.size != 0) std::memcpy(to, piece.data, piece.size);
    to += piece.size;
  }
  outgoing.pieces.clear();
  outgoing.owner = nullptr;
}

void UcxConnection::copy_and_release(SendCompletion& owner) {
  for (Outgoing& outgoing : payloads_) {
    if (outgoing.owner != &owner) continue;
    if (outgoing.block == nullptr) copy(outgoing);
    outgoing.owner = nullptr;
  }
  for (UcxOperation* operation : operations_) {
    if (operation->owner == &owner) operation->owner = nullptr;
  }
}

// ---- Handing over to UCX ----

void UcxConnection::flush() {
  if (ended_) return;
  send_queued();
  // Until UCX has put it on its way, as the loop will not ask it meanwhile.
  const auto gone = [this] {
    return std::all_of(operations_.begin(), operations_.end(), [](const UcxOperation* operation) {
      return operation->done || operation->kind == UcxOperation::Kind::fetch || operation->tag != nullptr;
    });
  };
  if (!gone()) worker_->progress_until(gone, heard_ ? flush_max : first_flush_max);
}

void UcxConnection::send_queued() {
  if (ended_) return;
  seal_up_to(used_);
  send_ready();
  if (!ended_ && opened_ && endpoint_ != nullptr && taken_ - announced_ >= worker_->options().window_bytes / 4) {
    send_bare(UcxHeader::Kind::credit);
  }
  drained();
}

void UcxConnection::send_ready() {
  if (sending_now_ || ended_ || !opened_ || endpoint_ == nullptr || endpoint_->failed != UCS_OK) return;
  sending_now_ = true;
  waiting_ = 0;
  while (!ended_ && !packets_.empty()) {
    // The end needs no room: it is one, and the last.
    if (packets_.front().block != nullptr && spent_ - granted_ >= peer_.window_bytes) break;
    const Packet packet = packets_.front();
    packets_.pop_front();
    send_packet(packet);
  }
  // A payload waits for its announcement, for else the window may be full of what is delivered behind it.
  while (!ended_ && !payloads_.empty() && payloads_in_flight_ < worker_->options().rendezvous_in_flight_max &&
         static_cast<std::int32_t>(packets_sent_ - payloads_.front().packet) > 0) {
    Outgoing outgoing = std::move(payloads_.front());
    payloads_.pop_front();
    send_payload(std::move(outgoing));
  }
  sending_now_ = false;
}

void UcxConnection::send_packet(const Packet& packet) {
  UcxOperation& operation = *worker_->core().acquire_operation(*this, UcxOperation::Kind::send);
  operation.block = packet.block;
  operation.counted = packet.counted;
  spent_ += packet.size + ucx_cost_overhead;
  sent_ += packet.counted;
  const std::uint32_t index = packets_sent_++;
  if (packet.block == nullptr) return hand_over(operation, UcxHeader::Kind::fin, index, nullptr, 0, 0);
  hand_over(operation, UcxHeader::Kind::packed, index, packet.block->data() + packet.begin, packet.size,
            UCP_AM_SEND_FLAG_EAGER);
}

void UcxConnection::send_payload(Outgoing outgoing) {
  // Of what is copied the owner is told now; of what is sent from where it lies, when it has left.
  SendCompletion* const owner = outgoing.block == nullptr ? outgoing.owner : nullptr;
  if (outgoing.block == nullptr) copy(outgoing);
  UcxOperation& operation = *worker_->core().acquire_operation(*this, UcxOperation::Kind::send);
  operation.block = outgoing.block;
  operation.owner = outgoing.owner;
  operation.counted = outgoing.size;
  operation.tag = this;
  sent_ += outgoing.size;
  ++payloads_in_flight_;
  hand_over(operation, UcxHeader::Kind::payload, payloads_sent_++, outgoing.data, outgoing.size, UCP_AM_SEND_FLAG_RNDV);
  if (owner != nullptr) owner->on_send_complete();
}

void UcxConnection::send_bare(UcxHeader::Kind kind) {
  UcxOperation& operation = *worker_->core().acquire_operation(*this, UcxOperation::Kind::send);
  const bool include_endpoint = kind == UcxHeader::Kind::hello && worker_->options().wire_up == UcxWireUp::listener;
  hand_over(operation, kind, 0, nullptr, 0, include_endpoint ? std::uint32_t{UCP_AM_SEND_FLAG_REPLY} : 0);
}

void UcxConnection::hand_over(UcxOperation& operation, UcxHeader::Kind kind, std::uint32_t index, const std::byte* data,
                              std::size_t size, std::uint32_t flags) {
  UcxHeader{.token = peer_.token, .taken = taken_, .index = index, .kind = kind}.store(operation.header.data());
  announced_ = taken_;
  switch (const ucs_status_t status = worker_->core().send(*endpoint_, operation, data, size, flags); status) {
    case UCS_OK: finished(operation); return;
    case UCS_INPROGRESS: track(operation); return;
    default:
      // Told from process(), since this may come from within anything.
      endpoint_->failed = status;
      worker_->process_soon(token_);
      recycle(operation);
  }
}

void UcxConnection::finished(UcxOperation& operation) noexcept {
  backlog_ -= operation.counted;
  if (operation.tag != nullptr) --payloads_in_flight_;
  recycle(operation);
}

// The owner, who is told, may commit more or end the connection.
void UcxConnection::recycle(UcxOperation& operation) noexcept {
  SendCompletion* const owner = operation.owner;
  worker_->core().recycle(operation);
  if (owner != nullptr) owner->on_send_complete();
}

void UcxConnection::track(UcxOperation& operation) {
  operation.position = operations_.size();
  operations_.push_back(&operation);
}

void UcxConnection::forget(UcxOperation& operation) noexcept {
  operations_.back()->position = operation.position;
  operations_[operation.position] = operations_.back();
  operations_.pop_back();
}

void UcxConnection::drained() {
  if (!ended_ && watermark_.on_sent(backlog_) && sink_ != nullptr) sink_->on_drained();
}

}  // namespace hawser::transport
