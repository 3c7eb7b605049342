#include "transport/rdma/protocol/receiver.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace hawser::transport::rdma {
namespace {

constexpr std::size_t stagings_max = 4;

}  // namespace

RdmaReceiver::RdmaReceiver(RdmaReceiverOwner& owner, WorkQueue& work_queue, RdmaSender& sender,
                           std::shared_ptr<MemoryPool> pool, ReceiveRing& ring, const RegisteredMemory& floor,
                           const ReceiverOptions& options)
    : owner_(owner), work_queue_(work_queue), sender_(sender), pool_(std::move(pool)), ring_(ring), options_(options) {
  staging_.push_back({floor, false});
}

RdmaReceiver::~RdmaReceiver() {
  drop_all();
  for (IncomingTransfer& transfer : transfers_) drop_transfer(transfer);
  drop_staging();
  pool_->release(staging_.front().memory);
}

bool RdmaReceiver::protocol_violation(std::string_view how) {
  owner_.on_protocol_violation(how);
  return false;
}

void RdmaReceiver::start(MessageSink& sink) {
  sink_ = &sink;
  if (!ended_) account_ = sink.receive_account();
}

void RdmaReceiver::resume() {
  if (!paused_) return;
  paused_ = false;
  deliver();
}

// ---- Packets

void RdmaReceiver::on_packet(ReceiveChunk& chunk, std::uint32_t bytes, std::uint32_t immediate) {
  const Immediate decoded = Immediate::decode(immediate);
  chunk.weighty = bytes != 0 || decoded.fin;
  if (ended_) return ring_.finish(chunk);
  arrived_ += std::max<std::uint32_t>(bytes, 1);
  const std::size_t tail = decoded.done * std::size_t{4};
  if (tail > bytes || !work_queue_.credits.received(decoded.granted)) {
    ring_.finish(chunk);
    protocol_violation(tail > bytes ? "a packet is shorter than the transfer ids that its immediate announces"
                                    : "more credits granted or used than there are");
    return;
  }
  const std::size_t records = bytes - tail;
  const std::byte* const data = chunk.bytes();
  // Processed before the messages, and also while paused, so that the peer's memory is released as early as possible.
  bool known = true;
  for (std::size_t i = 0; i < decoded.done && known; ++i) {
    known = sender_.transfer_done(load_le<std::uint32_t>(data + records + i * 4));
  }
  if (ended_) return ring_.finish(chunk);
  if (records == 0 || fin_ || !known) {
    ring_.finish(chunk);
  } else {
    arrivals_.push({&chunk, 0, records});
  }
  // Grants may still follow the last message, because the peer may not have sent all of its own yet.
  if (!known || (fin_ && (records != 0 || decoded.fin))) {
    protocol_violation(known ? "a message or a second fin after fin"
                             : "the id of a finished transfer names no open transfer");
    return;
  }
  if (decoded.fin) fin_ = true;
  deliver();
}

void RdmaReceiver::deliver() {
  if (std::exchange(taking_, true)) return;
  while (!ended_ && !paused_ && !arrivals_.empty()) {
    ReceivedPacket& front = arrivals_.front();
    if (front.begin == front.end) {
      ring_.finish(*arrivals_.pop().chunk);
      ++first_packet_;
    } else if (!take_one(front)) {
      break;
    }
  }
  taking_ = false;
  if (ended_) return drop_all();
  if (!transfers_.empty()) {
    look_ahead();
    read_on();
  }
  if (fin_ && !paused_ && arrivals_.empty() && !std::exchange(fin_notified_, true)) {
    if (assembly_.active()) {
      protocol_violation("fin before the end of a fragmented message");
    } else {
      owner_.on_fin();
    }
  }
}

// Processes one record. False if it has to wait, or the connection has ended.
bool RdmaReceiver::take_one(ReceivedPacket& arrival) {
  const auto parsed = parse_record(Bytes(arrival.chunk->bytes() + arrival.begin, arrival.end - arrival.begin));
  if (!parsed) return protocol_violation(parsed.error());
  const RdmaRecord& record = *parsed;
  const RecordHeader& header = record.header;
  const wire::MessagePrefix lengths{header.head_bytes, header.payload_bytes};
  if (!options_.message_limit.allows(lengths))
    return protocol_violation(options_.message_limit.exceeded_by(lengths).text);
  if (assembly_.active() != (header.kind == RdmaRecordKind::fragment)) {
    return protocol_violation(assembly_.active() ? "another record than FRAGMENT before the end of a fragmented message"
                                                 : "FRAGMENT without preceding BEGIN");
  }
  switch (header.kind) {
    case RdmaRecordKind::message: {
      arrival.begin += record.size;
      // The peer must not run out of credits because messages are kept.
      Block* const block = ring_.held() < options_.held_chunks_max ? arrival.chunk : nullptr;
      sink_->on_message({.head = record.head, .payload = record.carried, .head_block = block, .payload_block = block});
      return !ended_;
    }
    case RdmaRecordKind::begin:
      arrival.begin += record.size;
      assembly_.begin(header.head_bytes, header.payload_bytes, account_);
      return take_part(record.carried);
    case RdmaRecordKind::fragment: arrival.begin += record.size; return take_part(record.carried);
    case RdmaRecordKind::rendezvous: return take_rendezvous(arrival, record);
  }
  return false;
}

// ---- Messages in fragments

bool RdmaReceiver::take_part(Bytes bytes) {
  if (bytes.size() > assembly_.missing()) return protocol_violation("the fragments are longer than their message");
  if (!assembly_.append(bytes, *sink_, options_.receive_buffer_bytes_min, ended_)) return false;
  if (assembly_.missing() != 0) return true;
  assembly_.deliver(*sink_);
  return !ended_;
}

void RdmaReceiver::revoke_receive_buffer(const std::byte* memory) noexcept {
  assembly_.revoke(memory);
  for (IncomingTransfer& transfer : transfers_) {
    if (!transfer.payload.revokes(memory)) continue;
    transfer.payload.discard();
    if (transfer.direct.data != nullptr) cut_short(transfer);
  }
}

// A read into the caller's registered memory that was posted cannot be cancelled. No more reads are posted.
void RdmaReceiver::cut_short(IncomingTransfer& transfer) noexcept {
  if (transfer.complete()) return;
  transfer.done += transfer.size - transfer.asked;
  transfer.asked = transfer.size;
  if (!transfer.complete()) return;  // The completion of the last read reports it.
  sender_.add_done(transfer.id);
  due_ = true;
}

// ---- Rendezvous

bool RdmaReceiver::take_rendezvous(ReceivedPacket& arrival, const RdmaRecord& record) {
  const Position here{first_packet_, arrival.begin};
  if (looked_ <= here) {
    if (!begin_transfer(record, false)) return false;
    looked_ = {first_packet_, arrival.begin + record.size};
  }
  IncomingTransfer& front = transfers_.front();
  if (!front.selected && !select_receive_buffer_late(front, record.head)) return false;
  if (!front.complete()) return false;
  arrival.begin += record.size;
  Message message{.head = record.head,
                  .payload = {},
                  .head_block = ring_.held() < options_.held_chunks_max ? arrival.chunk : nullptr};
  front.payload.complete(message);
  sink_->on_message(message);
  if (ended_) return false;
  end_front_transfer();
  if (transfers_.empty()) drop_staging();
  return true;
}

// Asks the sink about a transfer that was begun before its turn, which has now come. False: the connection has ended.
bool RdmaReceiver::select_receive_buffer_late(IncomingTransfer& transfer, Bytes head) {
  transfer.selected = true;
  const ReceiveBuffer selected = sink_->select_receive_buffer(head, transfer.size);
  if (ended_) return false;
  transfer.payload.select(selected);
  if (transfer.payload.discarded()) cut_short(transfer);
  return true;
}

RdmaReceiver::IncomingTransfer& RdmaReceiver::spare_transfer() {
  if (spare_transfers_.empty()) spare_transfers_.emplace_back();
  return spare_transfers_.back();
}

void RdmaReceiver::end_front_transfer() noexcept {
  IncomingTransfer& front = transfers_.front();
  drop_transfer(front);
  std::vector<RdmaRemoteBuffer> room = std::move(front.pieces);
  room.clear();
  front = {};
  front.pieces = std::move(room);
  spare_transfers_.splice(spare_transfers_.end(), transfers_, transfers_.begin());
}

// `ahead`: begins before the transfer's turn, so the sink is not asked; false then means "not now". Otherwise false
// means that the connection has ended.
bool RdmaReceiver::begin_transfer(const RdmaRecord& record, bool ahead) {
  const std::size_t size = record.header.payload_bytes;
  if (options_.reads_max == 0)
    return ahead ? false : protocol_violation("a rendezvous from a peer that serves no RDMA reads");
  const auto table = parse_table(record.carried, record.header.payload_bytes);
  if (!table) return ahead ? false : protocol_violation(table.error());
  PayloadBuffer payload(size, account_);
  if (!ahead) {
    const ReceiveBuffer selected = sink_->select_receive_buffer(record.head, size);
    if (ended_) return false;
    payload.select(selected);
  }
  IncomingTransfer& transfer = spare_transfer();
  transfer.payload = std::move(payload);
  transfer.size = size;
  if (!begin_payload(transfer, ahead)) return false;
  transfer.id = table->transfer;
  transfer.selected = !ahead;
  std::size_t at = 0;
  const std::byte* literal = table->literals.data();
  for (std::size_t i = 0; i < table->pieces; ++i) {
    const RdmaRemoteBuffer piece = table->piece(i);
    transfer.pieces.push_back(piece);
    if (piece.address == 0) {
      if (!transfer.payload.discarded()) std::memcpy(transfer.payload.data() + at, literal, piece.size);
      literal += align_up(piece.size);
    }
    at += piece.size;
  }
  if (transfer.payload.discarded()) {
    transfer.asked = transfer.done = size;  // The peer is notified that this side is done.
    sender_.add_done(transfer.id);
  }
  transfers_.splice(transfers_.end(), spare_transfers_, std::prev(spare_transfers_.end()));
  return true;
}

// Selects the memory into which the payload is read, registered memory if possible. A payload that the account refuses
// is discarded. With `ahead` it is not begun instead, and the result is false.
bool RdmaReceiver::begin_payload(IncomingTransfer& transfer, bool ahead) {
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

// Begins transfers behind the one that delivery waits for.
void RdmaReceiver::look_ahead() {
  const Position front{first_packet_, arrivals_.empty() ? 0 : arrivals_.front().begin};
  looked_ = std::max(looked_, front);
  while (looked_.packet < first_packet_ + arrivals_.size() && transfers_.size() < transfers_ahead_max) {
    const ReceivedPacket& arrival = arrivals_[looked_.packet - first_packet_];
    if (looked_.offset >= arrival.end) {
      looked_ = {looked_.packet + 1, 0};
      continue;
    }
    const auto record = parse_record(Bytes(arrival.chunk->bytes() + looked_.offset, arrival.end - looked_.offset));
    // Otherwise take_one() ends the connection when it is the record's turn.
    if (!record || !options_.message_limit.allows({record->header.head_bytes, record->header.payload_bytes})) return;
    if (record->header.kind == RdmaRecordKind::rendezvous && !begin_transfer(*record, true)) return;
    looked_.offset += record->size;
  }
}

void RdmaReceiver::read_on() {
  if (std::exchange(due_, false)) deliver();
  if (ended_) return;
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
          staging = acquire_staging();
          if (staging == 0) return;
          const RegisteredMemory& memory = staging_[staging - 1].memory;
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

void RdmaReceiver::on_completed() {
  if (ended_) return;
  bool whole = false;
  while (!reads_.empty() && work_queue_.slots.is_done(reads_.front().id)) {
    const Read read = reads_.pop();
    IncomingTransfer& transfer = *read.transfer;
    if (read.staging != 0) {
      Staging& staging = staging_[read.staging - 1];
      std::byte* const payload = transfer.payload.data();
      if (payload != nullptr) std::memcpy(payload + read.at, staging.memory.data, read.bytes);
      staging.busy = false;
    }
    transfer.done += read.bytes;
    arrived_ += read.bytes;
    if (transfer.complete()) {
      sender_.add_done(transfer.id);
      whole = true;
    }
  }
  if (whole) {
    deliver();
  } else if (!transfers_.empty()) {
    read_on();
  }
}

// Returns the index + 1 of free staging memory; 0 if all is in use.
std::size_t RdmaReceiver::acquire_staging() {
  for (std::size_t i = staging_.size(); i-- > 1;) {
    if (!std::exchange(staging_[i].busy, true)) return i + 1;
  }
  if (staging_.size() <= stagings_max) {
    if (const auto memory = pool_->acquire(options_.staging_bytes, MemoryPool::Use::connection); memory) {
      staging_.push_back({*memory, true});
      return staging_.size();
    }
  }
  // Without other staging memory, the floor is used in small steps.
  if (staging_.size() > 1 || std::exchange(staging_.front().busy, true)) return 0;
  return 1;
}

void RdmaReceiver::drop_transfer(IncomingTransfer& transfer) noexcept {
  if (const std::size_t ahead = std::exchange(transfer.ahead, 0); ahead != 0) {
    ahead_bytes_ -= ahead;
    pool_->end_ahead(ahead);
  }
  if (transfer.block != nullptr) std::exchange(transfer.block, nullptr)->release();
}

void RdmaReceiver::drop_staging() noexcept {
  for (std::size_t i = 1; i < staging_.size(); ++i) pool_->release(staging_[i].memory);
  staging_.resize(1);
  staging_.front().busy = false;
}

// ---- End

void RdmaReceiver::end() noexcept {
  ended_ = true;
  // The account may be destroyed before this.
  for (IncomingTransfer& transfer : transfers_) transfer.payload.release_charge();
  assembly_.release_charge();
  account_ = nullptr;
  if (!taking_) drop_all();
}

void RdmaReceiver::drop_all() noexcept {
  while (!arrivals_.empty()) ring_.finish(*arrivals_.pop().chunk);
  assembly_ = {};
}

}  // namespace hawser::transport::rdma
