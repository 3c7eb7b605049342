#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kv/engine/arena.h"
#include "kv/engine/entry.h"
#include "kv/engine/table.h"

namespace hawser::kv {

enum class MemoryPolicy : std::uint8_t {
  refuse,  // A write that needs more memory than there is fails.
  evict,   // Entries that were not read for long are removed (SIEVE).
};

struct ShardOptions {
  std::size_t memory_bytes = std::size_t{64} << 20;  // Entries, table and values together. At least 1 MiB.
  MemoryPolicy policy = MemoryPolicy::evict;
  std::uint64_t first_version = 1;
};

// Counters of a shard. Its thread writes them, and any thread reads them.
struct ShardStats {
  class Counter {
   public:
    // Modulo 2^64, so that a counter of what exists also becomes smaller.
    void add(std::uint64_t more = 1) noexcept {
      value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }
    void set(std::uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
    std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

   private:
    std::atomic<std::uint64_t> value_{0};
  };
  Counter keys;
  Counter with_expiry;  // Keys that have one.
  Counter memory_bytes;
  Counter hits;
  Counter misses;
  Counter writes;
  Counter expired;
  Counter evicted;
  Counter refused;  // Writes for which there was no memory.
};

// Receives every change of a shard, in order. The key with an empty string and length 0 is a key like any other.
class ChangeLog {
 public:
  virtual void on_set(const Key& key, std::string_view value, std::int64_t expires_at, std::uint64_t version) = 0;
  virtual void on_expiry(const Key& key, std::int64_t expires_at) = 0;
  virtual void on_remove(const Key& key) = 0;
  virtual void on_clear() = 0;

 protected:
  ~ChangeLog() = default;
};

// A time at which no entry has expired: entries that have expired stay, and are found.
constexpr std::int64_t never_expired = INT64_MIN;

// One shard of the store: a hash table of entries with expiry and bounded memory. Belongs to one thread, the one of its
// loop. Times are milliseconds since 1970 and are given by the caller. Pointers to entries and views of their bytes are
// valid until the next call that is not const, of find() as well.
class Shard {
 public:
  static constexpr std::size_t key_bytes_max = 8 * 1024;
  static constexpr std::size_t short_value_bytes_max = Arena::slot_bytes_max;
  // Entries that one eviction examines at most; then it takes the one at the hand.
  static constexpr std::size_t examined_max = 64;

  explicit Shard(const ShardOptions& options);
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Returns the entry of the key, or null. An expired entry is removed. `read`: counts a hit or a miss, and protects
  // the entry from the next eviction.
  Entry* find(const Key& key, std::int64_t now, bool read = true);
  // Begin to fetch what find() reads first, and then what it reads next.
  void prefetch_bucket(std::uint64_t hash) const noexcept { table_.prefetch_bucket(hash); }
  void prefetch_entry(std::uint64_t hash) const noexcept { table_.prefetch_entry(hash); }

  // Sets the value and the expiry. Null if there is no memory; the entry is unchanged then. The key has at most
  // key_bytes_max bytes.
  Entry* set(const Key& key, std::string_view value, std::int64_t expires_at);
  // Gives the value a new length: it keeps its beginning, and new bytes are zero. The caller writes at
  // Entry::value_data() and calls changed() then. A key that does not exist is created without expiry. Null if there is
  // no memory.
  Entry* resize(const Key& key, std::size_t value_bytes, std::int64_t now);
  // The bytes of a value have been written in place.
  void changed(Entry& entry);
  // Gives a key that does not exist a value, an expiry and a version that it had before. The table does not grow, so
  // that there is room for what was removed a moment ago. False if there is no memory.
  bool restore(const Key& key, std::string_view value, std::int64_t expires_at, std::uint64_t version);
  void set_expiry(Entry& entry, std::int64_t expires_at);
  void remove(Entry& entry);
  void clear();

  // Calls `visit(Entry&)` for the entries of the bucket `cursor` that have not expired, and returns the next cursor; 0
  // at the end. A scan from 0 to 0 visits each entry that exists during all of it at least once.
  template <class Visit>
  std::uint64_t scan(std::uint64_t cursor, std::int64_t now, Visit visit) {
    if (cursor >= table_.buckets()) return 0;
    table_.each_of_bucket(cursor, [&](Ref ref) {
      Entry& entry = at(ref);
      if (!entry.expired(now)) visit(entry);
    });
    return cursor + 1 >= table_.buckets() ? 0 : cursor + 1;
  }
  // A scan by sections: from 0 to what sections() returned at its beginning. Each entry that exists during all of it is
  // visited once, although the table grows or is emptied meanwhile.
  std::uint64_t sections() const noexcept { return table_.round_buckets(); }
  template <class Visit>
  void scan_section(std::uint64_t sections, std::uint64_t section, std::int64_t now, Visit visit) {
    table_.each_of_section(sections, section, [&](Ref ref) {
      Entry& entry = at(ref);
      if (!entry.expired(now)) visit(entry);
    });
  }
  // Removes expired entries of the next `buckets` buckets, round after round. Returns their number.
  std::size_t remove_expired(std::int64_t now, std::size_t buckets);

  std::size_t size() const noexcept { return table_.size(); }
  std::size_t buckets() const noexcept { return table_.buckets(); }
  std::size_t with_expiry() const noexcept { return stats_.with_expiry.get(); }
  std::size_t memory_used() const noexcept { return arena_.used(); }
  std::size_t memory_max() const noexcept { return arena_.bytes_max(); }
  // False: no value has more than short_value_bytes_max bytes.
  bool has_long_values() const noexcept { return arena_.outside() != 0; }
  ShardStats& stats() noexcept { return stats_; }
  // `log` receives changes until it is removed. It outlives the shard, or is removed before.
  void add_log(ChangeLog& log) { logs_.push_back(&log); }
  void remove_log(ChangeLog& log) noexcept { std::erase(logs_, &log); }
  // Entries of a log are read: without eviction they may exceed the memory by a quarter. Keys are distributed to
  // shards in another way than before, so that one shard may get more of them than it had.
  void begin_reading() noexcept {
    if (policy_ == MemoryPolicy::refuse) arena_.begin_excess();
  }
  void end_reading() noexcept { arena_.end_excess(); }
  // Logs receive nothing until resume_logs(). Neither has an effect twice.
  void pause_logs() noexcept {
    if (paused_logs_.empty()) paused_logs_.swap(logs_);
  }
  void resume_logs() noexcept {
    if (logs_.empty()) paused_logs_.swap(logs_);
  }
  // The logs receive an entry that was set while they were paused.
  void log_set(Entry& entry) {
    for (ChangeLog* log : logs_) log->on_set({entry.key(), entry.hash}, entry.value(), entry.expires_at, entry.version);
  }
  // The same for a key that was removed meanwhile.
  void log_remove(const Key& key) {
    for (ChangeLog* log : logs_) log->on_remove(key);
  }
  // Later versions are at least `version`.
  void raise_version(std::uint64_t version) noexcept {
    if (version_ < version) version_ = version;
  }

 private:
  struct Queue {  // One for each size class, in the order of insertion.
    Ref newest = 0;
    Ref oldest = 0;
    Ref hand = 0;
    std::size_t size = 0;
    std::uint64_t evictions = 0;  // Since the last page was moved.
  };

  Entry& at(Ref ref) const noexcept { return *reinterpret_cast<Entry*>(arena_.at(ref)); }
  Entry* create(const Key& key, std::size_t value_bytes, Ref old);
  Entry* put(const Key& key, std::size_t value_bytes, std::size_t kept_bytes, Ref old);
  bool must_go_first(const Entry& old, std::size_t value_bytes) const noexcept;
  Entry* set_alone(const Key& key, std::string_view value, std::int64_t expires_at, Entry& old);
  // An entry that goes before its successor is there.
  struct SavedEntry {
    std::string value;
    std::int64_t expires_at;
    std::uint64_t version;
  };
  static SavedEntry save(Entry& entry);
  Entry* take_back(const Key& key, const SavedEntry& saved);
  Entry* resize_alone(const Key& key, std::size_t value_bytes, Entry& old);
  Entry* put_again(const Key& key, std::size_t value_bytes);
  Entry* restore_unlogged(const Key& key, std::string_view value, std::int64_t expires_at, std::uint64_t version);
  Entry* fill(Entry& entry, std::string_view value, std::int64_t expires_at);
  bool reserve(std::uint64_t hash);
  Ref take_slot(std::uint8_t size_class);
  char* take_value(std::size_t bytes);
  bool make_room(std::size_t bytes);
  bool evict_from(Queue& queue);
  bool empty_page(std::uint8_t for_class, bool idle_only);
  void enqueue(Entry& entry) noexcept;
  void dequeue(Entry& entry) noexcept;
  void release(Entry& entry) noexcept;
  void drop(Entry& entry);
  void drop_unlogged(Entry& entry);
  Queue& queue_of(const Entry& entry) noexcept {
    return queues_[entry.outside != 0 ? Arena::classes : entry.size_class];
  }
  void count_expiry(std::int64_t before, std::int64_t now) noexcept {
    stats_.with_expiry.add(static_cast<std::uint64_t>(now != 0) - static_cast<std::uint64_t>(before != 0));
  }
  void update_sizes() noexcept {
    stats_.keys.set(table_.size());
    stats_.memory_bytes.set(arena_.used());
  }

  const MemoryPolicy policy_;
  Arena arena_;
  EntryTable table_;
  Queue queues_[Arena::classes + 1];  // The last one has the entries whose value lies outside.
  Ref pinned_ = 0;                    // Must not be evicted now.
  std::uint64_t version_;
  std::uint64_t expiry_cursor_ = 0;
  std::vector<ChangeLog*> logs_;
  std::vector<ChangeLog*> paused_logs_;
  bool table_grows_ = true;
  ShardStats stats_;
};

}  // namespace hawser::kv
