// Commands about several keys, and about keys without their values.
#include <iterator>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kv/more_commands.h"
#include "kv/resp_connection.h"
#include "kv/set_options.h"
#include "protocol/resp/number.h"

namespace hawser::kv {
namespace {

// A pair of MSET, and what its key had before.
struct Pair {
  Key key;
  std::string_view value;
  std::optional<std::string> before = {};  // Nothing: the key did not exist.
  std::int64_t expires_at_before = 0;
  std::uint64_t version_before = 0;
};

Entry* find_unread(Execution& e, const Key& key) { return shard_of(e, key).find(key, e.site.now(), false); }

void remember(Execution& e, Pair& pair) {
  Entry* const entry = find_unread(e, pair.key);
  if (entry == nullptr) return;
  pair.before = entry->value();
  pair.expires_at_before = entry->expires_at;
  pair.version_before = entry->version;
}

// Restores what set_pairs() has changed. Every new value goes first, so that there is memory for the old ones. An old
// value may still have no room: where the system limits addresses, values lie between the free ones. Its key does not
// exist then.
void restore(Execution& e, std::span<const Pair> changed) {
  for (const Pair& one : changed) {
    if (Entry* const entry = find_unread(e, one.key)) shard_of(e, one.key).remove(*entry);
  }
  for (const Pair& one : changed) {
    // A key may occur twice.
    if (!one.before || find_unread(e, one.key) != nullptr) continue;
    // log_lost() finds the keys for which this fails.
    static_cast<void>(shard_of(e, one.key).restore(one.key, *one.before, one.expires_at_before, one.version_before));
  }
}

// While it exists, the logs of the shards do not see changes. Nothing may be evicted then.
class PausedLogs {
 public:
  PausedLogs(Execution& e, std::span<const Pair> pairs) : e_(e), pairs_(pairs) {
    for (const Pair& one : pairs_) shard_of(e_, one.key).pause_logs();
  }
  PausedLogs(const PausedLogs&) = delete;
  PausedLogs& operator=(const PausedLogs&) = delete;
  ~PausedLogs() {
    for (const Pair& one : pairs_) shard_of(e_, one.key).resume_logs();
  }

 private:
  Execution& e_;
  const std::span<const Pair> pairs_;
};

bool set_or_restore(Execution& e, std::span<const Pair> pairs) {
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    bool set = false;
    try {
      set = shard_of(e, pairs[i].key).set(pairs[i].key, pairs[i].value, 0) != nullptr;
    } catch (const std::bad_alloc&) {
      set = false;
    }
    if (set) continue;
    restore(e, pairs.first(i));
    return false;
  }
  return true;
}

// A refused command has changed nothing that the logs must see, apart from old values that could not be restored.
// Returns the number of their keys.
std::size_t log_lost(Execution& e, std::span<const Pair> pairs) {
  std::set<std::string_view> lost;  // A key may occur twice.
  for (const Pair& one : pairs) {
    if (!one.before || find_unread(e, one.key) != nullptr || !lost.insert(one.key.bytes).second) continue;
    shard_of(e, one.key).log_remove(one.key);
  }
  return lost.size();
}

// Sets all pairs or none. False: there is no memory, and `lost` keys have lost their old values.
bool set_pairs(Execution& e, std::size_t& lost) {
  const StoreOptions& options = e.site.store().options();
  const bool evicts = options.policy == MemoryPolicy::evict;
  std::size_t bytes = 0;
  for (std::size_t i = 2; i < e.arguments.size(); i += 2) bytes += e.arguments[i].size();
  if (evicts && bytes <= options.memory_bytes / e.site.store().shards() / 8) {
    // Entries are evicted for values that are short in proportion, so these have memory.
    for (std::size_t i = 1; i < e.arguments.size(); i += 2) {
      const Key key = key_of(e, e.arguments[i]);
      if (shard_of(e, key).set(key, e.arguments[i + 1], 0) == nullptr) return false;
    }
    return true;
  }
  // New keys first: the table keeps the memory that it takes for them, and the old values of the others must have room
  // again.
  std::vector<Pair> pairs;
  std::vector<Pair> present;
  for (std::size_t i = 1; i < e.arguments.size(); i += 2) {
    Pair pair{key_of(e, e.arguments[i]), e.arguments[i + 1]};
    remember(e, pair);
    (pair.before ? present : pairs).push_back(std::move(pair));
  }
  pairs.insert(pairs.end(), std::make_move_iterator(present.begin()), std::make_move_iterator(present.end()));
  if (evicts) return set_or_restore(e, pairs);
  // A crash, or a client that reads without calls, never finds a change that is taken back.
  bool set = false;
  {
    const PausedLogs paused(e, pairs);
    set = set_or_restore(e, pairs);
  }
  if (!set) {
    lost = log_lost(e, pairs);
    return false;
  }
  for (const Pair& one : pairs) shard_of(e, one.key).log_set(*find_unread(e, one.key));
  return true;
}

void refuse_with_loss(Execution& e, std::size_t lost) {
  e.out.error(std::string(no_memory) + " The old values of " + std::to_string(lost) +
              " keys had no room any more, and these keys do not exist: set them again, one by one");
}

bool check_pairs(Execution& e, std::string_view command) {
  if (e.arguments.size() % 2 == 0) {
    e.out.error("ERR wrong number of arguments for '" + std::string(command) + "' command");
    return false;
  }
  for (std::size_t i = 1; i < e.arguments.size(); i += 2) {
    if (!check_key(e, e.arguments[i])) return false;
  }
  return true;
}

// Gives the second key the value and the expiry of an entry of the first.
bool copy_to(Execution& e, const Key& from, const Key& to) {
  Entry* const entry = find_unread(e, from);
  const std::int64_t expires_at = entry->expires_at;
  const std::string value(entry->value());
  e.value_work = value.size();
  return shard_of(e, to).set(to, value, expires_at) != nullptr;
}

// `only_new`: the second key must not exist.
void rename_key(Execution& e, bool only_new) {
  if (!check_key(e, e.arguments[2])) return;
  const Key from = key_of(e, e.arguments[1]);
  const Key to = key_of(e, e.arguments[2]);
  if (find_unread(e, from) == nullptr) return e.out.error("ERR no such key");
  const bool same = from.bytes == to.bytes;
  if (only_new && (same || find_unread(e, to) != nullptr)) return e.out.number(0);
  if (!same) {
    if (!copy_to(e, from, to)) return e.out.error(no_memory);
    // Each shard has a log of its own: after a crash, one of them may have the removal and the other one not the copy.
    StoreSite& copied = e.site.store().site(e.site.store().shard_of(to.hash));
    if (&copied.shard() != &shard_of(e, from)) {
      copied.wait_for_disk();
      if (const std::string* const why = copied.write_refusal()) return e.out.raw(RespConnection::log_error(*why));
    }
    // The copy may have evicted it.
    if (Entry* const entry = find_unread(e, from)) shard_of(e, from).remove(*entry);
  }
  only_new ? e.out.number(1) : e.out.ok();
}

}  // namespace

void run_mset(Execution& e) {
  if (!check_pairs(e, "mset")) return;
  std::size_t lost = 0;
  if (set_pairs(e, lost)) return e.out.ok();
  lost == 0 ? e.out.error(no_memory) : refuse_with_loss(e, lost);
}

void run_msetnx(Execution& e) {
  if (!check_pairs(e, "msetnx")) return;
  for (std::size_t i = 1; i < e.arguments.size(); i += 2) {
    if (find_unread(e, key_of(e, e.arguments[i])) != nullptr) return e.out.number(0);
  }
  std::size_t lost = 0;  // No key had a value.
  set_pairs(e, lost) ? e.out.number(1) : e.out.error(no_memory);
}

void run_rename(Execution& e) { rename_key(e, false); }
void run_renamenx(Execution& e) { rename_key(e, true); }

void run_copy(Execution& e) {
  bool replace = false;
  for (std::size_t i = 3; i < e.arguments.size(); ++i) {
    std::int64_t database = 0;
    if (is_word(e.arguments[i], "replace")) {
      replace = true;
    } else if (is_word(e.arguments[i], "db") && i + 1 < e.arguments.size()) {
      if (!protocol::resp::parse_number(e.arguments[++i], database)) return e.out.error(not_integer);
      if (database != 0) return e.out.error("ERR DB index is out of range");
    } else {
      return e.out.error(syntax_error);
    }
  }
  if (!check_key(e, e.arguments[2])) return;
  const Key from = key_of(e, e.arguments[1]);
  const Key to = key_of(e, e.arguments[2]);
  if (from.bytes == to.bytes) return e.out.error("ERR source and destination objects are the same");
  if (find_unread(e, from) == nullptr) return e.out.number(0);
  if (!replace && find_unread(e, to) != nullptr) return e.out.number(0);
  copy_to(e, from, to) ? e.out.number(1) : e.out.error(no_memory);
}

void run_watch_keys(Execution& e) {
  Store& store = e.site.store();
  for (const std::string_view bytes : e.arguments.subspan(1)) {
    const Key key = store.key(bytes);
    // Removes an entry that has expired: the expiry is not a later change.
    static_cast<void>(find_unread(e, key));
    store.site(store.shard_of(key.hash)).watches().add(key, *e.watched);
  }
  e.out.ok();
}

void run_randomkey(Execution& e) {
  Store& store = e.site.store();
  Shard& shard = e.held ? store.site(store.random_shard(e.site.index())).shard() : e.shard();
  // The scan returns the bucket behind the one that it has visited, and 0 behind the last one.
  std::string chosen;
  std::uint64_t seen = 0;
  std::uint64_t bucket = store.random() % shard.buckets();
  for (std::size_t i = 0; i < shard.buckets() && seen == 0; ++i) {
    e.value_work += bucket_scan_cost;
    bucket = shard.scan(bucket, e.site.now(), [&](Entry& entry) {
      if (store.random() % ++seen == 0) chosen = entry.key();
    });
  }
  seen == 0 ? e.out.null() : e.out.bulk(chosen);
}

void run_object(Execution& e) {
  if (const std::string error = subcommand_error(*find_command("object"), e.arguments); !error.empty()) {
    return e.out.error(error);
  }
  const std::string_view what = e.arguments[1];
  const bool encoding = is_word(what, "encoding");
  Entry* const entry = find_unread(e, key_of(e, e.arguments[2]));
  if (entry == nullptr) return e.out.null();
  if (is_word(what, "freq")) {
    return e.out.error(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching "
        "between policies at runtime LRU and LFU data will take some time to adjust.");
  }
  // Uses of entries are not timed.
  if (!encoding) return e.out.number(is_word(what, "idletime") ? 0 : 1);
  constexpr std::size_t embedded_bytes_max = 44;
  std::int64_t number = 0;
  const std::string_view value = entry->value();
  e.out.bulk(protocol::resp::parse_number(value, number) ? "int"
             : value.size() <= embedded_bytes_max        ? "embstr"
                                                         : "raw");
}

}  // namespace hawser::kv
