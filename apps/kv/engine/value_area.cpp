#include "kv/engine/value_area.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

namespace hawser::kv {
namespace {

void* map(std::size_t bytes) noexcept {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  // With huge pages the kernel would give memory to units that have returned theirs.
  madvise(mapped, bytes, MADV_NOHUGEPAGE);
  return mapped;
}

}  // namespace

ValueArea::ValueArea(std::size_t bytes_max, std::size_t page_bytes) noexcept
    : bytes_max_(bytes_max), page_bytes_(page_bytes) {}

ValueArea::~ValueArea() {
  if (base_ != nullptr) munmap(base_, units_ * unit_bytes);
  if (tags_ != nullptr) munmap(tags_, units_ * sizeof(Tag));
}

// Eight times the memory, or less where the system limits addresses.
bool ValueArea::reserve() noexcept {
  for (std::size_t times = 8; times != 0 && base_ == nullptr; times /= 2) {
    units_ = units_of(bytes_max_) * times;
    if (units_ >= no_unit) continue;
    void* const tags = map(units_ * sizeof(Tag));
    if (tags == nullptr) continue;
    base_ = static_cast<char*>(map(units_ * unit_bytes));
    if (base_ == nullptr) {
      munmap(tags, units_ * sizeof(Tag));
      continue;
    }
    tags_ = static_cast<Tag*>(tags);
    insert(0, units_, State::cold);
  }
  return base_ != nullptr;
}

std::size_t ValueArea::bin_of(std::size_t units) noexcept {
  if (units < 8) return units;
  const std::size_t width = static_cast<std::size_t>(std::bit_width(units));
  return 8 * (width - 3) + ((units >> (width - 4)) & 7);
}

std::size_t ValueArea::least_units(std::size_t bin) noexcept { return bin < 8 ? bin : (8 + bin % 8) << (bin / 8 - 1); }

void ValueArea::mark(Unit at, std::size_t units, State state) noexcept {
  for (const std::size_t end : {std::size_t{at}, at + units - 1}) {
    tags_[end].units = static_cast<Unit>(units);
    tags_[end].state = state;
  }
}

void ValueArea::insert(Unit at, std::size_t units, State state) noexcept {
  mark(at, units, state);
  FreeBlocks& blocks = free_blocks(state);
  const std::size_t bin = bin_of(units);
  tags_[at].previous = no_unit;
  tags_[at].next = blocks.first[bin];
  if (blocks.first[bin] != no_unit) tags_[blocks.first[bin]].previous = at;
  blocks.first[bin] = at;
  blocks.filled[bin / 64] |= std::uint64_t{1} << (bin % 64);
}

void ValueArea::remove(Unit at) noexcept {
  const Tag& tag = tags_[at];
  FreeBlocks& blocks = free_blocks(tag.state);
  const std::size_t bin = bin_of(tag.units);
  if (tag.next != no_unit) tags_[tag.next].previous = tag.previous;
  if (tag.previous != no_unit) {
    tags_[tag.previous].next = tag.next;
    return;
  }
  blocks.first[bin] = tag.next;
  if (tag.next == no_unit) blocks.filled[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
}

// Inserts the block as one with its neighbours that have the same state. Returns that one.
ValueArea::Unit ValueArea::insert_merged(Unit at, std::size_t units, State state) noexcept {
  if (at != 0 && tags_[at - 1].state == state) {
    const Unit before = tags_[at - 1].units;
    at -= before;
    units += before;
    remove(at);
  }
  if (at + units < units_ && tags_[at + units].state == state) {
    const Unit behind = static_cast<Unit>(at + units);
    remove(behind);
    units += tags_[behind].units;
  }
  insert(at, units, state);
  return at;
}

// Returns the pages of the units [begin, end), which lie in the cold block `block`, as far as all of a page lies in it.
// The system would also take the rest of the last page.
void ValueArea::return_pages(std::size_t begin, std::size_t end, Unit block) noexcept {
  const std::size_t block_end = (std::size_t{block} + tags_[block].units) * unit_bytes;
  std::size_t first = begin * unit_bytes / page_bytes_ * page_bytes_;
  std::size_t last = (end * unit_bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  if (first < block * unit_bytes) first += page_bytes_;
  if (last > block_end) last -= page_bytes_;
  if (first < last) madvise(base_ + first, last - first, MADV_DONTNEED);
}

// Good fit: the first block of the smallest bin whose blocks are all long enough, or of the value's own bin if that one
// is.
char* ValueArea::take(std::size_t bytes, State state) noexcept {
  const std::size_t units = units_of(bytes);
  FreeBlocks& blocks = free_blocks(state);
  std::size_t bin = bin_of(units);
  if (bin >= bins) return nullptr;
  Unit at = blocks.first[bin];
  if (at == no_unit || tags_[at].units < units) {
    ++bin;
    std::size_t word = bin / 64;
    std::uint64_t filled = word < blocks.filled.size() ? blocks.filled[word] >> (bin % 64) << (bin % 64) : 0;
    while (filled == 0 && ++word < blocks.filled.size()) filled = blocks.filled[word];
    if (filled == 0) return nullptr;
    at = blocks.first[64 * word + static_cast<std::size_t>(std::countr_zero(filled))];
  }
  const std::size_t found = tags_[at].units;
  remove(at);
  if (found > units) insert(static_cast<Unit>(at + units), found - units, state);
  mark(at, units, State::in_use);
  return base_ + at * unit_bytes;
}

char* ValueArea::take_warm(std::size_t bytes) noexcept {
  char* const data = take(bytes, State::warm);
  if (data != nullptr) warm_units_ -= units_of(bytes);
  return data;
}

char* ValueArea::take_cold(std::size_t bytes) noexcept {
  if (base_ == nullptr && !reserve()) return nullptr;
  char* data = take(bytes, State::cold);
  if (data == nullptr && warm_units_ != 0) {
    cool(warm_bytes());
    data = take(bytes, State::cold);
  }
  if (data != nullptr) {
    touched_ = std::max(touched_, static_cast<std::size_t>(data - base_) / unit_bytes + units_of(bytes));
  }
  return data;
}

void ValueArea::free(char* data, std::size_t bytes) noexcept {
  const std::size_t units = units_of(bytes);
  warm_units_ += units;
  insert_merged(static_cast<Unit>(static_cast<std::size_t>(data - base_) / unit_bytes), units, State::warm);
  if (warm_bytes() > warm_bytes_max()) cool(warm_bytes() - warm_bytes_max());
}

void ValueArea::cool(std::size_t bytes) noexcept {
  for (std::size_t left = (bytes + charge_of(1) - 1) / charge_of(1); left != 0 && warm_units_ != 0;) {
    // The longest block: it needs the fewest calls of the system.
    std::size_t word = warm_.filled.size() - 1;
    while (warm_.filled[word] == 0) --word;
    const Unit at = warm_.first[64 * word + 63 - static_cast<std::size_t>(std::countl_zero(warm_.filled[word]))];
    const std::size_t units = tags_[at].units;
    const std::size_t cooled = std::min(units, left);
    remove(at);
    if (cooled < units) insert(at, units - cooled, State::warm);
    const Unit begin = static_cast<Unit>(at + units - cooled);
    return_pages(begin, begin + cooled, insert_merged(begin, cooled, State::cold));
    warm_units_ -= cooled;
    left -= cooled;
  }
}

void ValueArea::reset() noexcept {
  if (base_ == nullptr) return;
  madvise(base_, touched_ * unit_bytes, MADV_DONTNEED);
  madvise(tags_, units_ * sizeof(Tag), MADV_DONTNEED);
  touched_ = warm_units_ = 0;
  warm_ = {};
  cold_ = {};
  insert(0, units_, State::cold);
}

}  // namespace hawser::kv
