#include "transport/rdma/protocol/rendezvous_offers.h"

#include <cstring>

#include "transport/common/gather.h"

namespace hawser::transport::rdma {

Buffer RendezvousOffers::offer_copy(Bytes head, std::span<const ConstBuffer> payload, std::size_t payload_bytes) {
  const MemoryPool::PayloadBlock copy = pool_->acquire_block(payload_bytes);
  if (copy.block == nullptr) return {};
  gather(copy.memory.data, payload);
  const ConstBuffer whole{copy.memory.data, payload_bytes};
  Buffer record = make_record(head, std::span(&whole, 1), payload_bytes, nullptr, payload_bytes);
  copy.block->release();
  return record;
}

Buffer RendezvousOffers::make_record(Bytes head, std::span<const ConstBuffer> payload, std::size_t payload_bytes,
                                     SendCompletion* owner, std::size_t copied_bytes) {
  if (payload.size() > table_pieces_max) return {};
  blocks_.clear();
  pieces_.clear();
  std::size_t literals = 0;
  bool reachable = true;
  bool user = false;
  for (const ConstBuffer& piece : payload) {
    if (piece.size == 0) continue;
    RdmaRemoteBuffer remote{.size = static_cast<std::uint32_t>(piece.size)};
    if (piece.size <= literal_bytes_max) {
      literals += align_up(piece.size);
    } else if (const MemoryPool::PayloadBlock found = pool_->retain(piece.data, piece.size); found.block != nullptr) {
      blocks_.push_back(found.block);
      user = user || found.user;
      remote.address = reinterpret_cast<std::uintptr_t>(piece.data);
      remote.key = found.memory.remote_key;
    } else {
      reachable = false;
      break;
    }
    pieces_.push_back(remote);
  }
  const std::size_t table = table_head_bytes + pieces_.size() * RdmaRemoteBuffer::bytes + literals;
  const std::size_t record = RecordHeader::bytes + align_up(head.size()) + align_up(table);
  if (!reachable || record > record_bytes_max_) {
    for (Block* block : blocks_) block->release();
    return {};
  }
  if (user) pool_->count_user_send();
  Buffer made = Buffer::allocate(record);
  std::byte* at = made.mutable_data();
  std::memset(at, 0, record);
  write_header(at, {RdmaRecordKind::rendezvous, static_cast<std::uint32_t>(head.size()),
                    static_cast<std::uint32_t>(payload_bytes), static_cast<std::uint32_t>(table)});
  at += RecordHeader::bytes;
  std::memcpy(at, head.data(), head.size());
  at += align_up(head.size());
  store_le(at, transfers_.begin(blocks_, owner, copied_bytes));
  store_le(at + 4, static_cast<std::uint32_t>(pieces_.size()));
  at += table_head_bytes;
  for (const RdmaRemoteBuffer& piece : pieces_) {
    write_piece(at, piece);
    at += RdmaRemoteBuffer::bytes;
  }
  for (const ConstBuffer& piece : payload) {
    if (piece.size == 0 || piece.size > literal_bytes_max) continue;
    std::memcpy(at, piece.data, piece.size);
    at += align_up(piece.size);
  }
  return made;
}

}  // namespace hawser::transport::rdma
