#include "transport/rdma/protocol/records.h"

namespace hawser::transport::rdma {

std::expected<RdmaRecord, std::string_view> parse_record(Bytes rest) noexcept {
  const auto wrong = [](std::string_view text) { return std::unexpected(text); };
  if (rest.size() < RecordHeader::bytes) return wrong("a packet ends within the header of a record");
  const auto kind = load_le<std::uint32_t>(rest.data());
  if (kind < 1 || kind > 4) return wrong("a record of an unknown kind");
  RdmaRecord record;
  record.header = {static_cast<RdmaRecordKind>(kind), load_le<std::uint32_t>(rest.data() + 4),
                   load_le<std::uint32_t>(rest.data() + 8), load_le<std::uint32_t>(rest.data() + 12)};
  const RecordHeader& header = record.header;
  const Bytes body = rest.subspan(RecordHeader::bytes);
  const std::size_t head = header.head_bytes;
  const std::size_t total = head + header.payload_bytes;
  std::size_t used = 0;
  switch (header.kind) {
    case RdmaRecordKind::message:
      if (header.carried_bytes != total)
        return wrong("a message record whose carried bytes differ from its head and payload");
      used = align_up(head) + align_up(header.payload_bytes);
      if (used > body.size()) return wrong("a message extends beyond its packet");
      record.head = body.first(head);
      record.carried = body.subspan(align_up(head), header.payload_bytes);
      break;
    case RdmaRecordKind::begin:
      if (header.carried_bytes >= total) return wrong("a BEGIN record that carries the whole message");
      used = align_up(header.carried_bytes);
      if (used > body.size()) return wrong("a BEGIN record extends beyond its packet");
      record.carried = body.first(header.carried_bytes);
      break;
    case RdmaRecordKind::fragment:
      if (total != 0 || header.carried_bytes == 0)
        return wrong("a FRAGMENT record that is empty, or that announces a head or payload");
      used = align_up(header.carried_bytes);
      if (used > body.size()) return wrong("a FRAGMENT record extends beyond its packet");
      record.carried = body.first(header.carried_bytes);
      break;
    case RdmaRecordKind::rendezvous:
      used = align_up(head) + align_up(header.carried_bytes);
      if (used > body.size()) return wrong("a rendezvous extends beyond its packet");
      record.head = body.first(head);
      record.carried = body.subspan(align_up(head), header.carried_bytes);
      break;
  }
  record.size = RecordHeader::bytes + used;
  return record;
}

std::expected<RendezvousTable, std::string_view> parse_table(Bytes table, std::uint32_t payload_bytes) noexcept {
  const auto wrong = [](std::string_view text) { return std::unexpected(text); };
  if (table.size() < table_head_bytes) return wrong("a rendezvous without a table");
  RendezvousTable parsed;
  parsed.transfer = load_le<std::uint32_t>(table.data());
  parsed.pieces = load_le<std::uint32_t>(table.data() + 4);
  const Bytes rest = table.subspan(table_head_bytes);
  if (parsed.pieces == 0 || parsed.pieces > table_pieces_max || parsed.pieces * RdmaRemoteBuffer::bytes > rest.size()) {
    return wrong("a rendezvous table with too few or too many pieces");
  }
  parsed.entries = rest.first(parsed.pieces * RdmaRemoteBuffer::bytes);
  parsed.literals = rest.subspan(parsed.entries.size());
  std::uint64_t total = 0;
  std::size_t literal = 0;
  bool read = false;
  for (std::size_t i = 0; i < parsed.pieces; ++i) {
    const RdmaRemoteBuffer piece = parsed.piece(i);
    if (piece.size == 0 || piece.address + piece.size < piece.address)
      return wrong("a rendezvous piece that is nowhere");
    total += piece.size;
    if (piece.address == 0) {
      literal += align_up(piece.size);
    } else {
      read = true;
    }
  }
  if (total != payload_bytes) return wrong("rendezvous pieces that do not make up the payload");
  if (!read) return wrong("a rendezvous with nothing to read");
  if (literal != parsed.literals.size()) return wrong("rendezvous literals that are cut off or too long");
  return parsed;
}

}  // namespace hawser::transport::rdma
