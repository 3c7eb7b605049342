// KEYS and SCAN.
#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "kv/commands.h"
#include "kv/glob.h"
#include "kv/more_commands.h"
#include "kv/set_options.h"
#include "protocol/resp/number.h"

namespace hawser::kv {
namespace {

using protocol::resp::parse_number;

void write_keys(Execution& e, const std::vector<std::string>& keys) {
  e.out.array(keys.size());
  for (const std::string& key : keys) e.out.bulk(key);
}

// The characters that a call of SCAN compares before it ends, about 20 ms. It completes its bucket.
constexpr std::uint64_t scan_steps_max = 20'000'000;

bool pattern_fits(Execution& e, std::string_view pattern) {
  if (pattern.size() <= pattern_bytes_max) return true;
  e.out.error(pattern_too_long(pattern));
  return false;
}

// False: an EXEC has scanned enough.
bool may_scan(Execution& e) {
  if (e.scanned <= e.site.store().options().scan_work_max) return true;
  e.out.error(
      "ERR the KEYS and SCAN before this one in the transaction have taken too long: send several transactions");
  return false;
}

// Calls `visit(key)` for the keys that fit the pattern, until their bytes, with those of a string for each, exceed the
// longest reply, or the pattern takes too long. Returns the number of the keys that it has scanned.
template <class Visit>
std::uint64_t each_fitting_key(StoreSite& site, std::string_view pattern, std::size_t& bytes, std::uint64_t& steps,
                               Visit visit) {
  const std::uint64_t steps_max = site.store().options().scan_work_max;
  const bool all = pattern == "*";
  std::uint64_t cursor = 0;
  std::uint64_t keys = 0;
  do {
    cursor = site.shard().scan(cursor, site.now(), [&](Entry& entry) {
      ++keys;
      if (steps > steps_max || (!all && !matches_glob(pattern, entry.key(), steps))) return;
      bytes += entry.key_bytes + sizeof(std::string);
      if (bytes <= reply_bytes_max) visit(entry.key());
    });
  } while (cursor != 0 && bytes <= reply_bytes_max && steps <= steps_max);
  return keys;
}

}  // namespace

// EXEC executes it. Otherwise KeyListing lists the keys.
void run_keys(Execution& e) {
  std::vector<std::string> keys;
  std::size_t bytes = 0;
  const std::string_view pattern = e.arguments[1];
  if (!pattern_fits(e, pattern) || !may_scan(e)) return;
  std::uint64_t steps = 0;
  Store& store = e.site.store();
  for (unsigned i = 0; i < store.shards(); ++i) {
    e.scanned += key_scan_cost * each_fitting_key(store.site(i), pattern, bytes, steps,
                                                  [&](std::string_view key) { keys.emplace_back(key); });
  }
  e.scanned += steps;
  if (steps > store.options().scan_work_max) return e.out.error(pattern_takes_long);
  if (bytes > reply_bytes_max) return e.out.error(keys_too_long);
  write_keys(e, keys);
}

void run_scan(Execution& e) {
  std::uint64_t cursor = 0;
  if (!parse_cursor(e.arguments[1], cursor)) return e.out.error("ERR invalid cursor");
  std::int64_t count = 10;
  std::string_view pattern = "*";
  bool strings = true;
  for (std::size_t i = 2; i < e.arguments.size(); i += 2) {
    if (i + 1 == e.arguments.size()) return e.out.error(syntax_error);
    const std::string_view value = e.arguments[i + 1];
    if (is_word(e.arguments[i], "count")) {
      if (!parse_number(value, count)) return e.out.error(not_integer);
      if (count < 1) return e.out.error(syntax_error);
    } else if (is_word(e.arguments[i], "match")) {
      if (!pattern_fits(e, value)) return;
      pattern = value;
    } else if (is_word(e.arguments[i], "type")) {
      strings = is_word(value, "string");
    } else {
      return e.out.error(syntax_error);
    }
  }
  if (!may_scan(e)) return;
  // Bounds the time of one call.
  constexpr std::int64_t count_max = 10'000;
  constexpr std::size_t bytes_max = std::size_t{4} << 20;
  // Buckets without keys take little time.
  const std::int64_t buckets_max = std::max<std::int64_t>(1024, 16 * std::min(count, count_max));
  std::vector<std::string> keys;
  std::size_t bytes = 0;
  std::int64_t seen = 0;
  std::int64_t buckets = 0;
  std::uint64_t steps = 0;
  std::uint64_t bucket = cursor >> cursor_shard_bits;
  do {
    bucket = e.shard().scan(bucket, e.site.now(), [&](Entry& entry) {
      ++seen;
      if (!strings || !matches_glob(pattern, entry.key(), steps)) return;
      bytes += entry.key_bytes;
      keys.emplace_back(entry.key());
    });
    ++buckets;
  } while (bucket != 0 && seen < std::min(count, count_max) && buckets < buckets_max && bytes < bytes_max &&
           steps < scan_steps_max);
  e.scanned +=
      key_scan_cost * static_cast<std::uint64_t>(seen) + bucket_scan_cost * static_cast<std::uint64_t>(buckets) + steps;
  std::uint64_t next = bucket << cursor_shard_bits | e.site.index();
  if (bucket == 0) {
    // A key that exists during the whole scan has been counted before it began.
    Store& store = e.site.store();
    unsigned shard = e.site.index() + 1;
    while (shard < store.shards() && store.site(shard).shard().stats().keys.get() == 0) ++shard;
    next = shard == store.shards() ? 0 : shard;
  }
  e.out.array(2);
  e.out.bulk(std::to_string(next));
  write_keys(e, keys);
}

bool parse_cursor(std::string_view text, std::uint64_t& cursor) noexcept {
  const std::from_chars_result result = std::from_chars(text.data(), text.data() + text.size(), cursor);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

std::string pattern_too_long(std::string_view pattern) {
  return "ERR the pattern has " + std::to_string(pattern.size()) + " bytes, and at most " +
         std::to_string(pattern_bytes_max) + " are allowed";
}

// 0 for a command that will fail.
std::size_t bytes_of_keys(StoreSite& site, std::string_view pattern, std::uint64_t& scanned) {
  const std::uint64_t steps_max = site.store().options().scan_work_max;
  if (pattern.size() > pattern_bytes_max || scanned > steps_max) return 0;
  std::size_t found = 0;
  std::size_t bytes = 0;
  std::uint64_t steps = 0;
  scanned += key_scan_cost * each_fitting_key(site, pattern, bytes, steps, [&](std::string_view key) {
               found += key.size() + listed_key_overhead_bytes;
             });
  scanned += steps;
  return bytes > reply_bytes_max || steps > steps_max ? 0 : found;
}

}  // namespace hawser::kv
