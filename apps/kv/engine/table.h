#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/engine/arena.h"
#include "kv/engine/entry.h"

namespace hawser::kv {

// Hash table of entries in an arena, by linear hashing (Litwin, 1980): it grows by splitting one bucket at a time, so
// no operation waits for the growth of the whole table. A bucket is one cache line with twelve tags and positions. Does
// not shrink, except by reset(). One thread only.
class EntryTable {
 public:
  static constexpr std::size_t bucket_slots = 12;
  // Entries per bucket beyond which the table grows.
  static constexpr std::size_t load_max = 8;

  // Throws std::bad_alloc if the arena has no page left.
  explicit EntryTable(Arena& arena);

  Ref find(const Key& key) const noexcept {
    const std::uint8_t tag = tag_of(key.hash);
    for (const Bucket* bucket = bucket_of(key.hash);; bucket = next(*bucket)) {
      for (std::uint64_t tags = matches(*bucket, tag); tags != 0; tags &= tags - 1) {
        const Ref ref = bucket->refs[first(tags)];
        if (holds(ref, key)) return ref;
      }
      if (bucket->overflow == 0) return 0;
    }
  }
  void prefetch_bucket(std::uint64_t hash) const noexcept { __builtin_prefetch(bucket_of(hash)); }
  // Reads the bucket, and begins to fetch the first entry that find() would compare: its first 128 bytes.
  void prefetch_entry(std::uint64_t hash) const noexcept {
    const Bucket& bucket = *bucket_of(hash);
    const std::uint64_t tags = matches(bucket, tag_of(hash));
    if (tags == 0) return;
    const std::byte* const entry = arena_.at(bucket.refs[first(tags)]);
    __builtin_prefetch(entry);
    __builtin_prefetch(entry + 64);
  }

  // Allocates what the next insert() of that hash needs. False if the arena has no memory for another bucket.
  bool reserve(std::uint64_t hash);
  // Adds an entry whose key is not in the table, after reserve(). `grows`: the table may take memory for more buckets.
  void insert(std::uint64_t hash, Ref ref, bool grows = true);
  // True if the table is full and needs a page to grow; then add_segment() takes one.
  bool needs_segment() const noexcept {
    return size_ >= buckets_ * load_max && buckets_ / segment_buckets >= segments_.size();
  }
  bool add_segment();
  // `from` is in the table under that hash.
  void replace(std::uint64_t hash, Ref from, Ref to) noexcept { *place(hash, from) = to; }
  void erase(std::uint64_t hash, Ref ref) noexcept;

  std::size_t size() const noexcept { return size_; }
  std::size_t buckets() const noexcept { return buckets_; }
  // Calls `visit(ref)` for the entries of a bucket, which may erase them.
  template <class Visit>
  void each_of_bucket(std::size_t index, Visit visit) {
    for (Bucket* bucket = at(index);; bucket = next(*bucket)) {
      for (std::size_t i = 0; i < bucket_slots; ++i) {
        if (bucket->tags[i] != 0) visit(bucket->refs[i]);
      }
      if (bucket->overflow == 0) return;
    }
  }
  // The buckets at the beginning of this round of splits, a power of two.
  std::size_t round_buckets() const noexcept { return mask_ + 1; }
  // Calls `visit(ref)` for the entries whose hash modulo `sections`, a power of two, is `section`: of one bucket or of
  // several ones, whatever has been split or emptied since `sections` was round_buckets().
  template <class Visit>
  void each_of_section(std::uint64_t sections, std::uint64_t section, Visit visit) {
    std::size_t bucket = index_of(section);
    do {
      each_of_bucket(bucket, [&](Ref ref) {
        if ((reinterpret_cast<const Entry*>(arena_.at(ref))->hash & (sections - 1)) == section) visit(ref);
      });
      bucket = bucket < section ? buckets_ : bucket + sections;
    } while (bucket < buckets_);
  }
  // Empties the table after the arena has been reset. Throws as the constructor does.
  void reset();

 private:
  static constexpr std::size_t segment_buckets = Arena::page_bytes / 64;
  struct alignas(64) Bucket {
    std::uint8_t tags[bucket_slots];  // 0: the slot is free.
    Ref refs[bucket_slots];
    Ref overflow;  // The next bucket of the same chain; 0: none.
  };
  static_assert(sizeof(Bucket) == 64);

  // At least 2: matches() may take a tag for another that differs in bit 0, and must not take a free slot for one.
  static std::uint8_t tag_of(std::uint64_t hash) noexcept {
    const std::uint8_t tag = static_cast<std::uint8_t>(hash >> 40);
    return tag < 2 ? tag + 2 : tag;
  }
  // Bit 7 of byte i is set if tag i may be equal; the caller compares hash and key. Bytes 8 to 11 are folded into bits
  // 3 of bytes 0 to 3.
  static std::uint64_t matches(const Bucket& bucket, std::uint8_t tag) noexcept {
    std::uint64_t low = 0;
    std::uint32_t high = 0;
    __builtin_memcpy(&low, bucket.tags, 8);
    __builtin_memcpy(&high, bucket.tags + 8, 4);
    low ^= 0x0101010101010101U * tag;
    high ^= 0x01010101U * tag;
    const std::uint64_t in_low = (low - 0x0101010101010101U) & ~low & 0x8080808080808080U;
    const std::uint32_t in_high = (high - 0x01010101U) & ~high & 0x80808080U;
    return in_low | (in_high >> 4);
  }
  static std::size_t first(std::uint64_t tags) noexcept {
    const unsigned bit = static_cast<unsigned>(__builtin_ctzll(tags));
    return (bit >> 3) + ((bit & 7) == 3 ? 8 : 0);
  }
  bool holds(Ref ref, const Key& key) const noexcept {
    Entry& entry = *reinterpret_cast<Entry*>(arena_.at(ref));
    return entry.hash == key.hash && entry.key() == key.bytes;
  }
  std::size_t index_of(std::uint64_t hash) const noexcept {
    const std::size_t index = hash & mask_;
    return index < split_ ? hash & (2 * mask_ + 1) : index;
  }
  Bucket* at(std::size_t index) const noexcept {
    return reinterpret_cast<Bucket*>(arena_.at(segments_[index / segment_buckets])) + index % segment_buckets;
  }
  Bucket* bucket_of(std::uint64_t hash) const noexcept { return at(index_of(hash)); }
  Bucket* next(const Bucket& bucket) const noexcept { return reinterpret_cast<Bucket*>(arena_.at(bucket.overflow)); }
  Ref* place(std::uint64_t hash, Ref ref) noexcept;
  bool put(Bucket* bucket, std::uint8_t tag, Ref ref);
  bool add_overflow(Bucket& bucket);
  bool grow();

  Arena& arena_;
  std::vector<Ref> segments_;
  std::size_t mask_ = segment_buckets - 1;  // Buckets at the beginning of this round of splits, minus one.
  std::size_t split_ = 0;                   // The bucket that is split next.
  std::size_t buckets_ = segment_buckets;
  std::size_t size_ = 0;
};

}  // namespace hawser::kv
