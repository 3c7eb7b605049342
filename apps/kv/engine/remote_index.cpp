#include "kv/engine/remote_index.h"

#include <algorithm>
#include <array>

namespace hawser::kv {
namespace {

constexpr std::size_t cell_words = IndexGeometry::cell_bytes / 8;
constexpr std::size_t head_words = sizeof(CellHead) / 8;

}  // namespace

RemoteIndex::RemoteIndex(MutableBytes memory, const IndexGeometry& geometry, std::uint32_t generation) noexcept
    : memory_(memory), geometry_(geometry), generation_(generation) {}

CellHead RemoteIndex::head(std::uint64_t cell) const noexcept {
  CellHead head;
  std::memcpy(&head, at(cell), sizeof head);
  return head;
}

std::uint64_t RemoteIndex::find(std::string_view key, std::uint64_t hash) const noexcept {
  const std::uint64_t begin = (hash & (geometry_.buckets - 1)) * IndexGeometry::bucket_cells;
  const std::size_t first = IndexGeometry::first_candidate(hash);
  for (std::size_t i = 0; i < IndexGeometry::candidates; ++i) {
    const std::uint64_t cell = begin + (first + i) % IndexGeometry::candidates;
    const CellHead found = head(cell);
    if (found.kind == CellKind::free || found.hash != hash || found.key_bytes != key.size()) continue;
    const std::size_t before = sizeof(CellHead) + (found.kind == CellKind::ring ? sizeof(RingPlace) : 0);
    if (key.empty() || std::memcmp(at(cell) + before, key.data(), key.size()) == 0) return cell;
  }
  return no_cell;
}

// A free candidate, or else one whose entry is replaced, each in turn.
std::uint64_t RemoteIndex::place_for(std::uint64_t hash) noexcept {
  const std::uint64_t begin = (hash & (geometry_.buckets - 1)) * IndexGeometry::bucket_cells;
  const std::size_t first = IndexGeometry::first_candidate(hash);
  for (std::size_t i = 0; i < IndexGeometry::candidates; ++i) {
    const std::uint64_t cell = begin + (first + i) % IndexGeometry::candidates;
    if (head(cell).kind == CellKind::free) return cell;
  }
  const std::uint64_t cell = begin + replaced_++ % IndexGeometry::candidates;
  erase(cell);
  return cell;
}

// The generation and the kind of a free cell are 0, so no reader takes what is left of it for an entry.
void RemoteIndex::erase(std::uint64_t cell) noexcept {
  constexpr std::array<std::uint64_t, head_words> zero{};
  copy_to_shared(reinterpret_cast<std::uint64_t*>(at(cell)), zero.data(), zero.size());
  --size_;
}

// Values are overwritten in the order in which they were added. The cell of a value that is overwritten is freed first.
RingPlace RemoteIndex::add_to_ring(std::string_view value, std::uint64_t cell, std::uint64_t version) {
  const std::uint64_t bytes = (value.size() + 63) / 64 * 64;
  const auto drop_oldest = [&] {
    const RingValue old = ring_.front();
    ring_.pop_front();
    const CellHead present = head(old.cell);
    if (present.kind == CellKind::ring && present.version == old.version) erase(old.cell);
  };
  if (ring_next_ + bytes > geometry_.ring_bytes) {
    // Values of the previous round, up to the end of the ring.
    while (!ring_.empty() && ring_.front().begin >= ring_next_) drop_oldest();
    ring_next_ = 0;
  }
  const std::uint64_t begin = ring_next_;
  while (!ring_.empty() && ring_.front().begin < begin + bytes && begin < ring_.front().end) drop_oldest();
  std::array<std::uint64_t, 64> piece;
  std::uint64_t* to = reinterpret_cast<std::uint64_t*>(memory_.data() + geometry_.ring_offset() + begin);
  for (std::size_t done = 0; done < value.size(); done += sizeof piece) {
    const std::size_t now = std::min(value.size() - done, sizeof piece);
    std::memcpy(piece.data(), value.data() + done, now);
    copy_to_shared(to + done / 8, piece.data(), (now + 7) / 8);
  }
  ring_.push_back({begin, begin + bytes, cell, version});
  ring_next_ = begin + bytes;
  return {geometry_.ring_offset() + begin, crc32c(as_bytes(value)), 0};
}

void RemoteIndex::put(std::string_view key, std::uint64_t hash, std::string_view value, std::uint64_t version) {
  const bool inside = key.size() + value.size() <= cell_payload_max;
  const bool fits = inside || (key.size() <= ring_key_max && value.size() <= IndexGeometry::value_bytes_max &&
                               value.size() <= geometry_.ring_bytes / 8);
  std::uint64_t cell = find(key, hash);
  if (!fits) {
    if (cell != no_cell) erase(cell);
    return;
  }
  if (cell != no_cell && !inside) {
    // The ring may overwrite the present value of this cell.
    erase(cell);
    cell = no_cell;
  }
  if (cell == no_cell) {
    cell = place_for(hash);
    ++size_;
  }
  alignas(8) std::array<std::byte, IndexGeometry::cell_bytes> made{};
  CellHead head{.crc = 0,
                .generation = generation_,
                .hash = hash,
                .version = version,
                .value_bytes = static_cast<std::uint32_t>(value.size()),
                .key_bytes = static_cast<std::uint16_t>(key.size()),
                .kind = inside ? CellKind::inside : CellKind::ring,
                .zero = 0};
  std::byte* payload = made.data() + sizeof head;
  if (!inside) {
    const RingPlace place = add_to_ring(value, cell, version);
    std::memcpy(payload, &place, sizeof place);
    payload += sizeof place;
  }
  if (!key.empty()) std::memcpy(payload, key.data(), key.size());
  if (inside && !value.empty()) std::memcpy(payload + key.size(), value.data(), value.size());
  std::memcpy(made.data(), &head, sizeof head);
  head.crc = cell_crc(made, payload_bytes(head));
  std::memcpy(made.data(), &head, sizeof head);
  // The previous entry of the key may have been in another cell. Whoever has read the new one never reads the previous
  // one again: this orders its removal before the new cell, and OneSidedReader orders its reads.
  __atomic_thread_fence(__ATOMIC_RELEASE);
  copy_to_shared(reinterpret_cast<std::uint64_t*>(at(cell)), reinterpret_cast<const std::uint64_t*>(made.data()),
                 cell_words);
}

void RemoteIndex::remove(std::string_view key, std::uint64_t hash) noexcept {
  const std::uint64_t cell = find(key, hash);
  if (cell != no_cell) erase(cell);
}

bool RemoteIndex::contains(std::string_view key, std::uint64_t hash) const noexcept {
  return find(key, hash) != no_cell;
}

void RemoteIndex::clear() noexcept {
  for (std::uint64_t cell = 0; cell < geometry_.cells() && size_ != 0; ++cell) {
    if (head(cell).kind != CellKind::free) erase(cell);
  }
  ring_.clear();
  ring_next_ = 0;
}

}  // namespace hawser::kv
