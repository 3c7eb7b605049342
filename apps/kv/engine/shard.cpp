#include "kv/engine/shard.h"

#include <algorithm>
#include <cstring>

namespace hawser::kv {
namespace {

// Entry::size_class of a slot that has no entry.
constexpr std::uint8_t free_mark = 0xff;

}  // namespace

Shard::Shard(const ShardOptions& options)
    : policy_(options.policy), arena_(options.memory_bytes), table_(arena_), version_(options.first_version) {
  update_sizes();
}

// ---- Eviction ----

void Shard::enqueue(Entry& entry) noexcept {
  Queue& queue = queue_of(entry);
  const Ref ref = arena_.ref_of(&entry);
  entry.newer = 0;
  entry.older = queue.newest;
  if (queue.newest != 0) at(queue.newest).newer = ref;
  queue.newest = ref;
  if (queue.oldest == 0) queue.oldest = ref;
  ++queue.size;
}

void Shard::dequeue(Entry& entry) noexcept {
  Queue& queue = queue_of(entry);
  if (queue.hand == arena_.ref_of(&entry)) queue.hand = entry.newer;
  (entry.newer != 0 ? at(entry.newer).older : queue.newest) = entry.older;
  (entry.older != 0 ? at(entry.older).newer : queue.oldest) = entry.newer;
  --queue.size;
}

// SIEVE: the hand moves from old to new, spares entries that were read, and takes the first that was not.
bool Shard::evict_from(Queue& queue) {
  Ref ref = queue.hand != 0 ? queue.hand : queue.oldest;
  for (std::size_t examined = 0; ref != 0; ++examined) {
    Entry& entry = at(ref);
    const Ref following = entry.newer != 0 ? entry.newer : queue.oldest;
    if (ref == pinned_) {
      if (queue.size == 1) return false;
    } else if (entry.visited == 0 || examined >= examined_max) {
      queue.hand = ref;  // drop() moves it on.
      ++queue.evictions;
      stats_.evicted.add();
      drop(entry);
      return true;
    } else {
      entry.visited = 0;
    }
    ref = following;
  }
  return false;
}

// Evicts all entries of one page, so that another class, the table or a large value can have it. `idle_only`: of a
// class that has evicted nothing since the last time.
bool Shard::empty_page(std::uint8_t for_class, bool idle_only) {
  std::size_t most = idle_only ? 1 : 0;
  std::size_t from = Arena::classes;
  for (std::size_t i = 0; i < Arena::classes; ++i) {
    const bool eligible = i != for_class && queues_[i].size != 0 && (!idle_only || queues_[i].evictions == 0);
    if (eligible && arena_.pages_of(static_cast<std::uint8_t>(i)) > most) {
      most = arena_.pages_of(static_cast<std::uint8_t>(i));
      from = i;
    }
  }
  if (from == Arena::classes) return false;
  Queue& queue = queues_[from];
  const Ref ref = queue.hand != 0 ? queue.hand : queue.oldest;
  bool complete = true;
  arena_.each_slot_of_page(ref, [&](Ref slot) {
    Entry& entry = at(slot);
    if (entry.size_class == free_mark) return;
    if (slot == pinned_) {
      complete = false;
      return;
    }
    stats_.evicted.add();
    drop(entry);
  });
  return complete;
}

// Makes room for `bytes` in the whole arena, for a page or a value outside.
bool Shard::make_room(std::size_t bytes) {
  if (bytes > arena_.bytes_max()) return false;
  while (arena_.used() + bytes > arena_.bytes_max()) {
    if (policy_ == MemoryPolicy::refuse) return false;
    Queue& outside = queues_[Arena::classes];
    const bool much_outside = arena_.outside() > arena_.bytes_max() / 2;
    if (much_outside && evict_from(outside)) continue;
    if (!empty_page(Arena::classes, false) && !evict_from(outside)) return false;
  }
  return true;
}

Ref Shard::take_slot(std::uint8_t size_class) {
  for (;;) {
    if (const Ref ref = arena_.take_slot(size_class); ref != 0) return ref;
    if (arena_.add_page(size_class)) continue;
    if (policy_ == MemoryPolicy::refuse) return 0;
    Queue& queue = queues_[size_class];
    const std::size_t slots = Arena::page_bytes / Arena::class_bytes(size_class);
    if (queue.size > slots) {
      // After as many evictions as a page has slots, the class gets a page of a class that needs none.
      if (queue.evictions >= slots) {
        const bool moved = empty_page(size_class, true);
        for (Queue& other : queues_) other.evictions = 0;
        if (moved) continue;
      }
      if (!evict_from(queue)) return 0;
    } else if (!make_room(Arena::page_bytes) && !evict_from(queue)) {
      return 0;
    }
  }
}

// Memory for a value outside, for which there is room. Where values lie between the free addresses, others are evicted.
char* Shard::take_value(std::size_t bytes) {
  for (;;) {
    char* const data = arena_.take_value(bytes);
    if (data != nullptr || policy_ == MemoryPolicy::refuse || !evict_from(queues_[Arena::classes])) return data;
  }
}

// ---- Entries ----

// Frees the memory of an entry that is in no queue and not in the table.
void Shard::release(Entry& entry) noexcept {
  if (entry.outside != 0) arena_.free_value(entry.outside_data(), entry.value_bytes);
  const std::uint8_t size_class = entry.size_class;
  entry.size_class = free_mark;
  arena_.free_slot(arena_.ref_of(&entry), size_class);
}

void Shard::drop(Entry& entry) {
  for (ChangeLog* log : logs_) log->on_remove({entry.key(), entry.hash});
  drop_unlogged(entry);
}

void Shard::drop_unlogged(Entry& entry) {
  if (entry.expires_at != 0) count_expiry(entry.expires_at, 0);
  table_.erase(entry.hash, arena_.ref_of(&entry));
  dequeue(entry);
  release(entry);
  update_sizes();
}

Entry* Shard::find(const Key& key, std::int64_t now, bool read) {
  const Ref ref = table_.find(key);
  if (ref == 0) {
    if (read) stats_.misses.add();
    return nullptr;
  }
  Entry& entry = at(ref);
  if (entry.expired(now)) [[unlikely]] {
    stats_.expired.add();
    if (read) stats_.misses.add();
    drop(entry);
    return nullptr;
  }
  if (read) {
    stats_.hits.add();
    if (entry.visited == 0) entry.visited = 1;
  }
  return &entry;
}

// A new entry that is neither in the table nor in a queue. Null if there is no memory.
Entry* Shard::create(const Key& key, std::size_t value_bytes, Ref old) {
  const bool outside = Entry::slot_bytes(key.bytes.size(), value_bytes, false) > Arena::slot_bytes_max;
  const std::size_t bytes = Entry::slot_bytes(key.bytes.size(), value_bytes, outside);
  const std::uint8_t size_class = Arena::class_of(bytes);
  pinned_ = old;
  char* data = nullptr;
  if (outside) {
    if (value_bytes <= UINT32_MAX && make_room(ValueArea::charge_of(value_bytes))) data = take_value(value_bytes);
    if (data == nullptr) return pinned_ = 0, nullptr;
  }
  const Ref ref = take_slot(size_class);
  pinned_ = 0;
  if (ref == 0) {
    if (outside) arena_.free_value(data, value_bytes);
    return nullptr;
  }
  Entry& entry = at(ref);
  entry.hash = key.hash;
  entry.expires_at = 0;
  entry.value_bytes = static_cast<std::uint32_t>(value_bytes);
  entry.key_bytes = static_cast<std::uint16_t>(key.bytes.size());
  entry.size_class = size_class;
  entry.visited = 0;
  entry.outside = outside ? 1 : 0;
  if (outside) entry.set_outside_data(data);
  if (!key.bytes.empty()) std::memcpy(entry.key_data(), key.bytes.data(), key.bytes.size());
  return &entry;
}

// Allocates what the table needs for one more key.
bool Shard::reserve(std::uint64_t hash) {
  if (policy_ == MemoryPolicy::evict && table_.needs_segment() && make_room(Arena::page_bytes)) table_.add_segment();
  return table_.reserve(hash) || (make_room(Arena::page_bytes) && table_.reserve(hash));
}

// Gives the key a value of this length whose first `kept_bytes` are those of the entry `old` (0: none), which it
// replaces. The rest is not initialised. Keeps the expiry.
Entry* Shard::put(const Key& key, std::size_t value_bytes, std::size_t kept_bytes, Ref old) {
  if (old != 0) {
    Entry& present = at(old);
    const std::size_t bytes = Entry::slot_bytes(present.key_bytes, value_bytes, false);
    if (present.outside == 0 && bytes <= Arena::slot_bytes_max && Arena::class_of(bytes) == present.size_class) {
      present.value_bytes = static_cast<std::uint32_t>(value_bytes);
      present.visited = 1;
      return &present;
    }
    if (present.outside != 0 && value_bytes <= UINT32_MAX && bytes > Arena::slot_bytes_max &&
        ValueArea::charge_of(value_bytes) == ValueArea::charge_of(present.value_bytes)) {
      present.value_bytes = static_cast<std::uint32_t>(value_bytes);
      return &present;
    }
  }
  Entry* const entry = old != 0 || reserve(key.hash) ? create(key, value_bytes, old) : nullptr;
  if (entry == nullptr) {
    stats_.refused.add();
    return nullptr;
  }
  const Ref ref = arena_.ref_of(entry);
  if (old != 0) {
    Entry& replaced = at(old);
    if (kept_bytes != 0) std::memcpy(entry->value_data(), replaced.value_data(), kept_bytes);
    entry->expires_at = replaced.expires_at;
    entry->visited = 1;
    dequeue(replaced);
    table_.replace(key.hash, old, ref);
    release(replaced);
  } else {
    table_.insert(key.hash, ref, table_grows_);
  }
  enqueue(*entry);
  update_sizes();
  return entry;
}

// True if the old value and the new one do not fit together, and the new one fits alone.
bool Shard::must_go_first(const Entry& old, std::size_t value_bytes) const noexcept {
  const std::size_t before = ValueArea::charge_of(old.value_bytes);
  const std::size_t after = ValueArea::charge_of(value_bytes);
  constexpr std::size_t margin = 2 * Arena::page_bytes;  // For a slot and a bucket.
  const std::size_t others = margin + (policy_ == MemoryPolicy::refuse ? arena_.used() - before : 0);
  return before != after && others + after <= arena_.bytes_max() && others + before + after > arena_.bytes_max();
}

// Sets an entry whose old value and new value do not fit together. The logs see one change, so that a crash leaves the
// old value or the new one. Without memory for the new value the entry has the old one again.
Entry* Shard::set_alone(const Key& key, std::string_view value, std::int64_t expires_at, Entry& old) {
  const SavedEntry saved = save(old);
  drop_unlogged(old);
  if (Entry* const entry = put_again(key, value.size())) return fill(*entry, value, expires_at);
  return take_back(key, saved);
}

// The same for resize(): the caller writes the rest of the value and calls changed().
Entry* Shard::resize_alone(const Key& key, std::size_t value_bytes, Entry& old) {
  const SavedEntry saved = save(old);
  drop_unlogged(old);
  Entry* const entry = put_again(key, value_bytes);
  if (entry == nullptr) return take_back(key, saved);
  std::memcpy(entry->value_data(), saved.value.data(), std::min(saved.value.size(), value_bytes));
  count_expiry(0, saved.expires_at);
  entry->expires_at = saved.expires_at;
  entry->version = saved.version;
  return entry;
}

Shard::SavedEntry Shard::save(Entry& entry) { return {std::string(entry.value()), entry.expires_at, entry.version}; }

// Always null: the new value has no memory.
Entry* Shard::take_back(const Key& key, const SavedEntry& saved) {
  if (!restore_unlogged(key, saved.value, saved.expires_at, saved.version)) {
    for (ChangeLog* log : logs_) log->on_remove({key.bytes, key.hash});
  }
  return nullptr;
}

// Creates the entry of a key that was removed a moment ago.
Entry* Shard::put_again(const Key& key, std::size_t value_bytes) {
  table_grows_ = false;
  Entry* const entry = put(key, value_bytes, 0, 0);
  table_grows_ = true;
  return entry;
}

Entry* Shard::restore_unlogged(const Key& key, std::string_view value, std::int64_t expires_at, std::uint64_t version) {
  Entry* const entry = put_again(key, value.size());
  if (entry == nullptr) return nullptr;
  if (!value.empty()) std::memcpy(entry->value_data(), value.data(), value.size());
  count_expiry(0, expires_at);
  entry->expires_at = expires_at;
  entry->version = version;
  return entry;
}

bool Shard::restore(const Key& key, std::string_view value, std::int64_t expires_at, std::uint64_t version) {
  Entry* const entry = restore_unlogged(key, value, expires_at, version);
  if (entry != nullptr) log_set(*entry);
  return entry != nullptr;
}

Entry* Shard::set(const Key& key, std::string_view value, std::int64_t expires_at) {
  const Ref old = table_.find(key);
  if (old != 0 && at(old).outside != 0 && must_go_first(at(old), value.size())) [[unlikely]] {
    return set_alone(key, value, expires_at, at(old));
  }
  Entry* const entry = put(key, value.size(), 0, old);
  return entry == nullptr ? nullptr : fill(*entry, value, expires_at);
}

Entry* Shard::fill(Entry& entry, std::string_view value, std::int64_t expires_at) {
  if (!value.empty()) std::memcpy(entry.value_data(), value.data(), value.size());
  count_expiry(entry.expires_at, expires_at);
  entry.expires_at = expires_at;
  changed(entry);
  return &entry;
}

Entry* Shard::resize(const Key& key, std::size_t value_bytes, std::int64_t now) {
  static_cast<void>(find(key, now, false));
  const Ref old = table_.find(key);
  const std::size_t before = old == 0 ? 0 : at(old).value_bytes;
  const bool alone = old != 0 && at(old).outside != 0 && must_go_first(at(old), value_bytes);
  Entry* const entry =
      alone ? resize_alone(key, value_bytes, at(old)) : put(key, value_bytes, std::min(before, value_bytes), old);
  if (entry != nullptr && value_bytes > before) std::memset(entry->value_data() + before, 0, value_bytes - before);
  return entry;
}

void Shard::changed(Entry& entry) {
  entry.version = version_++;
  stats_.writes.add();
  log_set(entry);
}

void Shard::set_expiry(Entry& entry, std::int64_t expires_at) {
  count_expiry(entry.expires_at, expires_at);
  entry.expires_at = expires_at;
  entry.version = version_++;
  for (ChangeLog* log : logs_) log->on_expiry({entry.key(), entry.hash}, expires_at);
}

void Shard::remove(Entry& entry) { drop(entry); }

void Shard::clear() {
  if (table_.size() != 0) {
    for (ChangeLog* log : logs_) log->on_clear();
  }
  for (Queue& queue : queues_) queue = {};
  stats_.with_expiry.set(0);
  expiry_cursor_ = 0;
  arena_.reset();
  table_.reset();
  update_sizes();
}

std::size_t Shard::remove_expired(std::int64_t now, std::size_t buckets) {
  std::size_t removed = 0;
  if (with_expiry() == 0) return 0;
  for (std::size_t i = 0; i < buckets; ++i) {
    if (expiry_cursor_ >= table_.buckets()) expiry_cursor_ = 0;
    table_.each_of_bucket(expiry_cursor_++, [&](Ref ref) {
      Entry& entry = at(ref);
      if (!entry.expired(now)) return;
      stats_.expired.add();
      drop(entry);
      ++removed;
    });
  }
  return removed;
}

}  // namespace hawser::kv
