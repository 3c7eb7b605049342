#include "transport/rdma/protocol/incoming_transfers.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace hawser::transport::rdma {

IncomingTransfers::IncomingTransfers(WorkQueue& work_queue, RdmaSender& sender, std::shared_ptr<MemoryPool> pool,
                                     const RegisteredMemory& floor, const IncomingTransferOptions& options)
    : work_queue_(work_queue),
      sender_(sender),
      pool_(std::move(pool)),
      options_(options),
      staging_(pool_, floor, options.staging_bytes) {}

IncomingTransfers::~IncomingTransfers() {
  for (IncomingTransfer& transfer : transfers_) drop(transfer);
}

// ---- Beginning

IncomingTransfer& IncomingTransfers::spare() {
  if (spare_.empty()) spare_.emplace_back();
  return spare_.back();
}

bool IncomingTransfers::begin(const RendezvousTable& table, PayloadBuffer payload, bool ahead) {
  IncomingTransfer& transfer = spare();
  transfer.payload = std::move(payload);
  transfer.size = transfer.payload.size();
  if (!begin_payload(transfer, ahead)) return false;
  transfer.id = table.transfer;
  transfer.selected = !ahead;
  std::size_t at = 0;
  const std::byte* literal = table.literals.data();
  for (std::size_t i = 0; i < table.pieces; ++i) {
    const RdmaRemoteBuffer piece = table.piece(i);
    transfer.pieces.push_back(piece);
    if (piece.address == 0) {
      if (!transfer.payload.discarded()) std::memcpy(transfer.payload.data() + at, literal, piece.size);
      literal += align_up(piece.size);
    }
    at += piece.size;
  }
  if (transfer.payload.discarded()) {
    transfer.asked = transfer.done = transfer.size;  // The peer is notified that this side is done.
    sender_.add_done(transfer.id);
  }
  transfers_.splice(transfers_.end(), spare_, std::prev(spare_.end()));
  return true;
}

// Selects the memory into which the payload is read, registered memory if possible. A payload that the account refuses
// is discarded. With `ahead` it is not begun instead, and the result is false.
bool IncomingTransfers::begin_payload(IncomingTransfer& transfer, bool ahead) {
  PayloadBuffer& payload = transfer.payload;
  const std::size_t size = payload.size();
  if (payload.given()) {
    const MemoryPool::PayloadBlock users = pool_->retain_user(payload.data(), size);
    transfer.block = users.block;
    transfer.direct = users.memory;
    return true;
  }
  if (payload.discarded()) return true;
  if (ahead && (size > options_.ahead_bytes_max - ahead_bytes_ || !pool_->begin_ahead(size))) return false;
  if (payload.charge()) {
    const MemoryPool::PayloadBlock mine = pool_->acquire_block(size);
    if (mine.block != nullptr) {
      transfer.block = mine.block;
      transfer.direct = mine.memory;
      payload.adopt(Buffer::share(mine.block, mine.memory.data, size));
    } else if (!ahead) {
      // Only registered memory is worth reading ahead.
      static_cast<void>(payload.allocate());
    }
  }
  if (payload.data() == nullptr) payload.discard();
  if (!ahead) return true;
  if (payload.discarded()) {
    pool_->end_ahead(size);
    return false;
  }
  ahead_bytes_ += transfer.ahead = size;
  return true;
}

// ---- Reading

void IncomingTransfers::post_reads() {
  for (IncomingTransfer& transfer : transfers_) {
    while (transfer.asked < transfer.size) {
      const RdmaRemoteBuffer& piece = transfer.pieces[transfer.piece];
      std::size_t bytes = piece.size - transfer.offset;
      if (piece.address == 0) {
        transfer.done += bytes;
      } else {
        if (reads_.size() >= options_.reads_max || !work_queue_.slots.may_post_data()) return;
        bytes = std::min(bytes, options_.read_bytes_max);
        Segment into;
        std::size_t staging = 0;
        if (transfer.direct.data != nullptr) {
          into = {transfer.direct.data + transfer.asked, 0, transfer.direct.local_key};
        } else {
          staging = staging_.acquire();
          if (staging == 0) return;
          const RegisteredMemory& memory = staging_.memory(staging);
          bytes = std::min(bytes, memory.bytes);
          into = {memory.data, 0, memory.local_key};
        }
        into.bytes = static_cast<std::uint32_t>(bytes);
        const std::uint64_t id = work_queue_.read(into, piece.address + transfer.offset, piece.key);
        reads_.push({id, &transfer, transfer.asked, bytes, staging});
      }
      transfer.asked += bytes;
      transfer.offset += bytes;
      if (transfer.offset == piece.size) {
        ++transfer.piece;
        transfer.offset = 0;
      }
    }
  }
}

IncomingTransfers::Progress IncomingTransfers::take_completed() {
  Progress progress;
  while (!reads_.empty() && work_queue_.slots.is_done(reads_.front().id)) {
    const Read read = reads_.pop();
    IncomingTransfer& transfer = *read.transfer;
    if (read.staging != 0) {
      std::byte* const payload = transfer.payload.data();
      if (payload != nullptr) std::memcpy(payload + read.at, staging_.memory(read.staging).data, read.bytes);
      staging_.release(read.staging);
    }
    transfer.done += read.bytes;
    progress.bytes += read.bytes;
    if (transfer.complete()) {
      sender_.add_done(transfer.id);
      progress.completed = true;
    }
  }
  return progress;
}

// ---- Ending

void IncomingTransfers::cut_short(IncomingTransfer& transfer) noexcept {
  if (transfer.complete()) return;
  transfer.done += transfer.size - transfer.asked;
  transfer.asked = transfer.size;
  if (!transfer.complete()) return;  // The completion of the last read reports it.
  sender_.add_done(transfer.id);
  cut_short_ = true;
}

void IncomingTransfers::revoke(const std::byte* memory) noexcept {
  for (IncomingTransfer& transfer : transfers_) {
    if (!transfer.payload.revokes(memory)) continue;
    transfer.payload.discard();
    if (transfer.direct.data != nullptr) cut_short(transfer);
  }
}

void IncomingTransfers::pop_front() noexcept {
  IncomingTransfer& front = transfers_.front();
  drop(front);
  std::vector<RdmaRemoteBuffer> room = std::move(front.pieces);
  room.clear();
  front = {};
  front.pieces = std::move(room);
  spare_.splice(spare_.end(), transfers_, transfers_.begin());
  if (transfers_.empty()) staging_.shrink();
}

void IncomingTransfers::drop(IncomingTransfer& transfer) noexcept {
  if (const std::size_t ahead = std::exchange(transfer.ahead, 0); ahead != 0) {
    ahead_bytes_ -= ahead;
    pool_->end_ahead(ahead);
  }
  if (transfer.block != nullptr) std::exchange(transfer.block, nullptr)->release();
}

void IncomingTransfers::release_charges() noexcept {
  for (IncomingTransfer& transfer : transfers_) transfer.payload.release_charge();
}

}  // namespace hawser::transport::rdma
