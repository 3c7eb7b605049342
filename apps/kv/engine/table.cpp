#include "kv/engine/table.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace hawser::kv {

EntryTable::EntryTable(Arena& arena) : arena_(arena) { reset(); }

void EntryTable::reset() {
  segments_.clear();
  mask_ = segment_buckets - 1;
  split_ = 0;
  buckets_ = segment_buckets;
  size_ = 0;
  if (!add_segment()) throw std::bad_alloc();
}

bool EntryTable::add_overflow(Bucket& bucket) {
  Ref more = arena_.take_slot(Arena::bucket_class);
  if (more == 0 && arena_.add_page(Arena::bucket_class)) more = arena_.take_slot(Arena::bucket_class);
  if (more == 0) return false;
  std::memset(arena_.at(more), 0, sizeof(Bucket));
  bucket.overflow = more;
  return true;
}

// Adds to a chain, with an overflow bucket behind it if it is full. Without memory for that: false.
bool EntryTable::put(Bucket* bucket, std::uint8_t tag, Ref ref) {
  for (;;) {
    for (std::size_t i = 0; i < bucket_slots; ++i) {
      if (bucket->tags[i] != 0) continue;
      bucket->tags[i] = tag;
      bucket->refs[i] = ref;
      return true;
    }
    if (bucket->overflow == 0 && !add_overflow(*bucket)) return false;
    bucket = next(*bucket);
  }
}

bool EntryTable::reserve(std::uint64_t hash) {
  Bucket* bucket = bucket_of(hash);
  for (;; bucket = next(*bucket)) {
    for (std::size_t i = 0; i < bucket_slots; ++i) {
      if (bucket->tags[i] == 0) return true;
    }
    if (bucket->overflow == 0) return add_overflow(*bucket);
  }
}

void EntryTable::insert(std::uint64_t hash, Ref ref, bool grows) {
  put(bucket_of(hash), tag_of(hash), ref);
  ++size_;
  // Two, so that a table that could not grow for want of memory catches up.
  for (int i = 0; grows && i < 2 && size_ > buckets_ * load_max; ++i) {
    if (!grow()) break;
  }
}

bool EntryTable::add_segment() {
  const Ref page = arena_.take_page();
  if (page == 0) return false;
  std::memset(arena_.at(page), 0, Arena::page_bytes);
  segments_.push_back(page);
  return true;
}

Ref* EntryTable::place(std::uint64_t hash, Ref ref) noexcept {
  for (Bucket* bucket = bucket_of(hash);; bucket = next(*bucket)) {
    for (std::size_t i = 0; i < bucket_slots; ++i) {
      if (bucket->tags[i] != 0 && bucket->refs[i] == ref) return &bucket->refs[i];
    }
  }
}

void EntryTable::erase(std::uint64_t hash, Ref ref) noexcept {
  for (Bucket* bucket = bucket_of(hash);; bucket = next(*bucket)) {
    for (std::size_t i = 0; i < bucket_slots; ++i) {
      if (bucket->tags[i] == 0 || bucket->refs[i] != ref) continue;
      bucket->tags[i] = 0;
      --size_;
      return;
    }
  }
}

// Splits one bucket: its entries go there or to the new last bucket, by one more bit of their hash. Entries move to
// higher buckets only, so a scan in the order of the buckets misses none.
bool EntryTable::grow() {
  const std::size_t target = buckets_;
  if (target / segment_buckets >= segments_.size() && !add_segment()) return false;
  Bucket* const high = at(target);
  const std::uint64_t bit = mask_ + 1;
  for (Bucket* bucket = at(split_);; bucket = next(*bucket)) {
    for (std::size_t i = 0; i < bucket_slots; ++i) {
      if (bucket->tags[i] == 0) continue;
      const Entry& entry = *reinterpret_cast<const Entry*>(arena_.at(bucket->refs[i]));
      // An entry stays if there is no memory for it in the new chain; then this bucket is not split at all.
      if ((entry.hash & bit) != 0) {
        if (!put(high, bucket->tags[i], bucket->refs[i])) {
          // Moves everything back. The old chain has the room that it had.
          for (Bucket* undo = high;; undo = next(*undo)) {
            for (std::size_t j = 0; j < bucket_slots; ++j) {
              if (undo->tags[j] != 0) static_cast<void>(put(at(split_), undo->tags[j], undo->refs[j]));
              undo->tags[j] = 0;
            }
            if (undo->overflow == 0) return false;
          }
        }
        bucket->tags[i] = 0;
      }
    }
    if (bucket->overflow == 0) break;
  }
  // Empty buckets are freed only now: an entry that cannot move needs the room of the old chain.
  for (Bucket* bucket = at(split_); bucket->overflow != 0;) {
    const Ref following = bucket->overflow;
    Bucket* const after = next(*bucket);
    if (std::any_of(after->tags, after->tags + bucket_slots, [](std::uint8_t tag) { return tag != 0; })) {
      bucket = after;
      continue;
    }
    bucket->overflow = after->overflow;
    arena_.free_slot(following, Arena::bucket_class);
  }
  ++buckets_;
  if (++split_ == mask_ + 1) {
    mask_ = 2 * mask_ + 1;
    split_ = 0;
  }
  return true;
}

}  // namespace hawser::kv
