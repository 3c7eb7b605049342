#include "transport/rdma/protocol/receiver.h"

#include <algorithm>
#include <utility>

namespace hawser::transport::rdma {

RdmaReceiver::RdmaReceiver(RdmaReceiverOwner& owner, WorkQueue& work_queue, RdmaSender& sender,
                           std::shared_ptr<MemoryPool> pool, ReceiveRing& ring, const RegisteredMemory& floor,
                           const ReceiverOptions& options)
    : owner_(owner),
      work_queue_(work_queue),
      sender_(sender),
      ring_(ring),
      options_(options),
      transfers_(work_queue, sender, std::move(pool), floor, options.transfers) {}

RdmaReceiver::~RdmaReceiver() { drop_all(); }

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
  if (records == 0 || received_fin() || !known) {
    ring_.finish(chunk);
  } else {
    arrivals_.push({&chunk, 0, records});
  }
  // Grants may still follow the last message, because the peer may not have sent all of its own yet.
  if (!known || (received_fin() && (records != 0 || decoded.fin))) {
    protocol_violation(known ? "a message or a second fin after fin"
                             : "the id of a finished transfer names no open transfer");
    return;
  }
  if (decoded.fin) fin_ = Fin::received;
  deliver();
}

void RdmaReceiver::deliver() {
  if (std::exchange(taking_, true)) return;
  while (!ended_ && !paused_ && !arrivals_.empty()) {
    ArrivedPackets::Packet& front = arrivals_.front();
    if (front.begin == front.end) {
      ring_.finish(*arrivals_.pop().chunk);
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
  if (fin_ == Fin::received && !paused_ && arrivals_.empty()) {
    fin_ = Fin::delivered;
    if (assembly_.active()) {
      protocol_violation("fin before the end of a fragmented message");
    } else {
      owner_.on_fin();
    }
  }
}

// Processes one record. False if it has to wait, or the connection has ended.
bool RdmaReceiver::take_one(ArrivedPackets::Packet& arrival) {
  const auto parsed = parse_record(arrival.rest());
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
  transfers_.revoke(memory);
}

// ---- Rendezvous

bool RdmaReceiver::take_rendezvous(ArrivedPackets::Packet& arrival, const RdmaRecord& record) {
  if (!arrivals_.front_is_searched()) {
    if (!begin_transfer(record, false)) return false;
    arrivals_.front_searched(record.size);
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
  transfers_.pop_front();
  return true;
}

// Asks the sink about a transfer that was begun before its turn, which has now come. False: the connection has ended.
bool RdmaReceiver::select_receive_buffer_late(IncomingTransfer& transfer, Bytes head) {
  transfer.selected = true;
  const ReceiveBuffer selected = sink_->select_receive_buffer(head, transfer.size);
  if (ended_) return false;
  transfer.payload.select(selected);
  if (transfer.payload.discarded()) transfers_.cut_short(transfer);
  return true;
}

// `ahead`: begins before the transfer's turn, so the sink is not asked; false then means "not now". Otherwise false
// means that the connection has ended.
bool RdmaReceiver::begin_transfer(const RdmaRecord& record, bool ahead) {
  const std::size_t size = record.header.payload_bytes;
  if (options_.transfers.reads_max == 0)
    return ahead ? false : protocol_violation("a rendezvous from a peer that serves no RDMA reads");
  const auto table = parse_table(record.carried, record.header.payload_bytes);
  if (!table) return ahead ? false : protocol_violation(table.error());
  PayloadBuffer payload(size, account_);
  if (!ahead) {
    const ReceiveBuffer selected = sink_->select_receive_buffer(record.head, size);
    if (ended_) return false;
    payload.select(selected);
  }
  return transfers_.begin(*table, std::move(payload), ahead);
}

// Begins transfers behind the one that delivery waits for.
void RdmaReceiver::look_ahead() {
  while (transfers_.size() < transfers_ahead_max) {
    const Bytes rest = arrivals_.unsearched();
    if (rest.empty()) return;
    const auto record = parse_record(rest);
    // Otherwise take_one() ends the connection when it is the record's turn.
    if (!record || !options_.message_limit.allows({record->header.head_bytes, record->header.payload_bytes})) return;
    if (record->header.kind == RdmaRecordKind::rendezvous && !begin_transfer(*record, true)) return;
    arrivals_.searched(record->size);
  }
}

void RdmaReceiver::read_on() {
  if (transfers_.take_cut_short()) deliver();
  if (!ended_) transfers_.post_reads();
}

void RdmaReceiver::on_completed() {
  if (ended_) return;
  const IncomingTransfers::Progress progress = transfers_.take_completed();
  arrived_ += progress.bytes;
  if (progress.completed) {
    deliver();
  } else if (!transfers_.empty()) {
    read_on();
  }
}

// ---- End

void RdmaReceiver::end() noexcept {
  ended_ = true;
  // The account may be destroyed before this.
  transfers_.release_charges();
  assembly_.release_charge();
  account_ = nullptr;
  if (!taking_) drop_all();
}

void RdmaReceiver::drop_all() noexcept {
  while (!arrivals_.empty()) ring_.finish(*arrivals_.pop().chunk);
  assembly_ = {};
}

}  // namespace hawser::transport::rdma
