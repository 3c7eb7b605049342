#include "kv/commands.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kv/more_commands.h"
#include "kv/set_options.h"
#include "protocol/resp/number.h"

namespace hawser::kv {
namespace {

using protocol::resp::parse_number;

// ---- Reading and writing values ----

void run_get(Execution& e) {
  Entry* const entry = e.shard().find(e.key(), e.site.now());
  if (entry == nullptr) return e.out.null();
  e.out.bulk(entry->value());
}

// Sets the value and replies with the old one, which is copied: the new one may take its place.
void replace(Execution& e, Entry* entry, std::int64_t expires_at) {
  const bool present = entry != nullptr;
  const std::string old(present ? entry->value() : std::string_view());
  if (e.shard().set(e.key(), e.arguments[2], expires_at) == nullptr) return e.out.error(no_memory);
  present ? e.out.bulk(old) : e.out.null();
}

void run_set(Execution& e) {
  SetOptions options;
  if (!check_key(e, e.arguments[1])) return;
  std::int64_t expires_at = 0;
  if (e.arguments.size() > 3) {
    if (!parse_set_options(e.arguments, 3, false, options)) return e.out.error(syntax_error);
    if (options.unit != ExpiryUnit::none && !expiry_time(e, options, "set", expires_at)) return;
    Entry* const entry = e.shard().find(e.key(), e.site.now(), options.get);
    const bool refused = (options.only_new && entry != nullptr) || (options.only_present && entry == nullptr);
    if (refused) return options.get && entry != nullptr ? e.out.bulk(entry->value()) : e.out.null();
    if (options.keep_expiry && entry != nullptr) expires_at = entry->expires_at;
    if (options.get) return replace(e, entry, expires_at);
  }
  e.shard().set(e.key(), e.arguments[2], expires_at) != nullptr ? e.out.ok() : e.out.error(no_memory);
}

void run_setnx(Execution& e) {
  if (!check_key(e, e.arguments[1])) return;
  if (e.shard().find(e.key(), e.site.now(), false) != nullptr) return e.out.number(0);
  e.shard().set(e.key(), e.arguments[2], 0) != nullptr ? e.out.number(1) : e.out.error(no_memory);
}

void run_setex(Execution& e, bool milliseconds) {
  if (!check_key(e, e.arguments[1])) return;
  SetOptions options;
  options.unit = milliseconds ? ExpiryUnit::milliseconds : ExpiryUnit::seconds;
  options.expiry = e.arguments[2];
  std::int64_t expires_at = 0;
  if (!expiry_time(e, options, milliseconds ? "psetex" : "setex", expires_at)) return;
  e.shard().set(e.key(), e.arguments[3], expires_at) != nullptr ? e.out.ok() : e.out.error(no_memory);
}

void run_getdel(Execution& e) {
  Entry* const entry = e.shard().find(e.key(), e.site.now());
  if (entry == nullptr) return e.out.null();
  e.out.bulk(entry->value());
  e.shard().remove(*entry);
}

void run_getset(Execution& e) {
  if (!check_key(e, e.arguments[1])) return;
  replace(e, e.shard().find(e.key(), e.site.now()), 0);
}

void run_getex(Execution& e) {
  SetOptions options;
  if (!parse_set_options(e.arguments, 2, true, options)) return e.out.error(syntax_error);
  Entry* const entry = e.shard().find(e.key(), e.site.now());
  if (entry == nullptr) return e.out.null();
  std::int64_t expires_at = 0;
  if (options.unit != ExpiryUnit::none && !expiry_time(e, options, "getex", expires_at)) return;
  e.out.bulk(entry->value());
  if (options.unit != ExpiryUnit::none && expires_at <= e.site.now()) {
    e.shard().remove(*entry);
  } else if (options.unit != ExpiryUnit::none || (options.persist && entry->expires_at != 0)) {
    e.shard().set_expiry(*entry, expires_at);
  }
}

void run_mget(Execution& e) {
  const std::int64_t now = e.site.now();
  std::size_t bytes = 0;
  for (const std::string_view key : e.arguments.subspan(1)) {
    const Key named = key_of(e, key);
    Entry* const entry = shard_of(e, named).find(named, now, false);
    bytes += 32 + (entry == nullptr ? 0 : entry->value_bytes);
  }
  if (bytes > reply_bytes_max) return e.out.error(values_too_long);
  e.out.array(e.arguments.size() - 1);
  for (const std::string_view key : e.arguments.subspan(1)) {
    const Key named = key_of(e, key);
    Entry* const entry = shard_of(e, named).find(named, now);
    entry != nullptr ? e.out.bulk(entry->value()) : e.out.null();
  }
}

void run_del(Execution& e) {
  std::int64_t removed = 0;
  for (const std::string_view key : e.arguments.subspan(1)) {
    const Key named = key_of(e, key);
    Entry* const entry = shard_of(e, named).find(named, e.site.now(), false);
    if (entry == nullptr) continue;
    shard_of(e, named).remove(*entry);
    ++removed;
  }
  e.out.number(removed);
}

void run_exists(Execution& e) {
  std::int64_t present = 0;
  for (const std::string_view key : e.arguments.subspan(1)) {
    const Key named = key_of(e, key);
    present += shard_of(e, named).find(named, e.site.now()) != nullptr ? 1 : 0;
  }
  e.out.number(present);
}

// ---- Numbers ----

void increment(Execution& e, std::int64_t by) {
  if (!check_key(e, e.arguments[1])) return;
  Entry* const entry = e.shard().find(e.key(), e.site.now(), false);
  std::int64_t value = 0;
  if (entry != nullptr && !parse_number(entry->value(), value)) return e.out.error(not_integer);
  if (__builtin_add_overflow(value, by, &value)) return e.out.error("ERR increment or decrement would overflow");
  std::array<char, 24> text;
  const char* const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  const std::string_view stored(text.data(), static_cast<std::size_t>(end - text.data()));
  const std::int64_t expires_at = entry == nullptr ? 0 : entry->expires_at;
  if (e.shard().set(e.key(), stored, expires_at) == nullptr) return e.out.error(no_memory);
  e.out.number(value);
}

void run_incr(Execution& e) { increment(e, 1); }
void run_decr(Execution& e) { increment(e, -1); }
void run_incrby(Execution& e) {
  std::int64_t by = 0;
  if (!parse_number(e.arguments[2], by)) return e.out.error(not_integer);
  increment(e, by);
}
void run_decrby(Execution& e) {
  std::int64_t by = 0;
  if (!parse_number(e.arguments[2], by)) return e.out.error(not_integer);
  if (by == INT64_MIN) return e.out.error("ERR decrement would overflow");
  increment(e, -by);
}

// As Redis: 17 digits behind the point, without zeros at the end.
void run_incrbyfloat(Execution& e) {
  if (!check_key(e, e.arguments[1])) return;
  constexpr std::size_t digits_max = 5 * 1024;
  const auto parse = [](std::string_view text, long double& value) {
    if (text.empty() || text.size() >= digits_max || std::strchr(" \t\n\v\f\r", text.front()) != nullptr) return false;
    const std::string copy(text);
    char* end = nullptr;
    errno = 0;
    value = std::strtold(copy.c_str(), &end);
    const bool range = errno == ERANGE && (std::isinf(value) || value == 0);
    return end == copy.c_str() + copy.size() && !range && !std::isnan(value);
  };
  constexpr std::string_view no_number = "ERR value is not a valid float";
  Entry* const entry = e.shard().find(e.key(), e.site.now(), false);
  long double value = 0;
  long double by = 0;
  if (entry != nullptr && !parse(entry->value(), value)) return e.out.error(no_number);
  if (!parse(e.arguments[2], by)) return e.out.error(no_number);
  value += by;
  if (!std::isfinite(value)) return e.out.error("ERR increment would produce NaN or Infinity");
  std::string text(digits_max, '\0');
  text.resize(static_cast<std::size_t>(std::snprintf(text.data(), text.size(), "%.17Lf", value)));
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  if (text == "-0") text = "0";
  const std::int64_t expires_at = entry == nullptr ? 0 : entry->expires_at;
  if (e.shard().set(e.key(), text, expires_at) == nullptr) return e.out.error(no_memory);
  e.out.bulk(text);
}

}  // namespace

// ---- Parts of values ----

Entry* resize_value(Execution& e, Entry* present, std::size_t value_bytes) {
  const char* const before = present == nullptr ? nullptr : present->value().data();
  Entry* const resized = e.shard().resize(e.key(), value_bytes, e.site.now());
  if (resized != nullptr && resized->value().data() != before) e.value_work = value_bytes;
  return resized;
}

namespace {

void run_append(Execution& e) {
  if (!check_key(e, e.arguments[1])) return;
  const std::string_view more = e.arguments[2];
  Entry* entry = e.shard().find(e.key(), e.site.now(), false);
  const std::size_t before = entry == nullptr ? 0 : entry->value_bytes;
  if (before + more.size() > e.site.store().options().value_bytes_max) return e.out.error(too_long);
  entry = resize_value(e, entry, before + more.size());
  if (entry == nullptr) return e.out.error(no_memory);
  if (!more.empty()) std::memcpy(entry->value_data() + before, more.data(), more.size());
  e.shard().changed(*entry);
  e.out.number(static_cast<std::int64_t>(before + more.size()));
}

void run_strlen(Execution& e) {
  Entry* const entry = e.shard().find(e.key(), e.site.now());
  e.out.number(entry == nullptr ? 0 : entry->value_bytes);
}

void run_getrange(Execution& e) {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  if (!parse_number(e.arguments[2], begin) || !parse_number(e.arguments[3], end)) return e.out.error(not_integer);
  Entry* const entry = e.shard().find(e.key(), e.site.now());
  if (entry == nullptr || (begin < 0 && end < 0 && begin > end)) return e.out.bulk({});
  const std::int64_t size = entry->value_bytes;
  begin = std::max<std::int64_t>(begin < 0 ? begin + size : begin, 0);
  end = std::min(std::max<std::int64_t>(end < 0 ? end + size : end, 0), size - 1);
  if (begin > end) return e.out.bulk({});
  e.out.bulk(entry->value().substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin + 1)));
}

void run_setrange(Execution& e) {
  if (!check_key(e, e.arguments[1])) return;
  std::int64_t offset = 0;
  if (!parse_number(e.arguments[2], offset)) return e.out.error(not_integer);
  if (offset < 0) return e.out.error("ERR offset is out of range");
  const std::string_view bytes = e.arguments[3];
  Entry* entry = e.shard().find(e.key(), e.site.now(), false);
  const std::size_t before = entry == nullptr ? 0 : entry->value_bytes;
  if (bytes.empty()) return e.out.number(static_cast<std::int64_t>(before));
  const std::size_t most = e.site.store().options().value_bytes_max;
  if (static_cast<std::size_t>(offset) > most || static_cast<std::size_t>(offset) + bytes.size() > most) {
    return e.out.error(too_long);
  }
  const std::size_t size = std::max(before, static_cast<std::size_t>(offset) + bytes.size());
  entry = resize_value(e, entry, size);
  if (entry == nullptr) return e.out.error(no_memory);
  std::memcpy(entry->value_data() + offset, bytes.data(), bytes.size());
  e.shard().changed(*entry);
  e.out.number(static_cast<std::int64_t>(size));
}

// ---- Expiry ----

// EXPIRE and the like: `absolute` times are since 1970, others from now.
void expire(Execution& e, std::string_view name, bool seconds, bool absolute) {
  ExpireConditions when;
  if (!parse_expire_conditions(e, when)) return;
  std::int64_t at = 0;
  if (!parse_number(e.arguments[2], at)) return e.out.error(not_integer);
  const std::int64_t now = e.site.now();
  if ((seconds && __builtin_mul_overflow(at, std::int64_t{1000}, &at)) || (!absolute && at > INT64_MAX - now)) {
    return e.out.error("ERR invalid expire time in '" + std::string(name) + "' command");
  }
  if (!absolute) at += now;
  Entry* const entry = e.shard().find(e.key(), now, false);
  if (entry == nullptr || !when.allow(entry->expires_at, at)) return e.out.number(0);
  if (at <= now) {
    e.shard().remove(*entry);
  } else {
    e.shard().set_expiry(*entry, at);
  }
  e.out.number(1);
}

void run_ttl(Execution& e, bool seconds, bool absolute) {
  Entry* const entry = e.shard().find(e.key(), e.site.now());
  if (entry == nullptr) return e.out.number(-2);
  if (entry->expires_at == 0) return e.out.number(-1);
  const std::int64_t left = absolute ? entry->expires_at : entry->expires_at - e.site.now();
  // Rounded without a sum, which would overflow for the latest time.
  e.out.number(seconds ? left / 1000 + (left % 1000 >= 500 ? 1 : 0) : left);
}

void run_persist(Execution& e) {
  Entry* const entry = e.shard().find(e.key(), e.site.now(), false);
  if (entry == nullptr || entry->expires_at == 0) return e.out.number(0);
  e.shard().set_expiry(*entry, 0);
  e.out.number(1);
}

void run_type(Execution& e) { e.out.status(e.shard().find(e.key(), e.site.now()) == nullptr ? "none" : "string"); }

// ---- All keys ----

// Calls `visit(Shard&)` for all shards if they are held.
template <class Visit>
void each_shard(Execution& e, Visit visit) {
  if (!e.held) return visit(e.shard());
  for (unsigned i = 0; i < e.site.store().shards(); ++i) visit(e.site.store().site(i).shard());
}

void run_dbsize(Execution& e) {
  std::size_t keys = 0;
  each_shard(e, [&](Shard& shard) { keys += shard.size(); });
  e.out.number(static_cast<std::int64_t>(keys));
}

void run_flush(Execution& e) {
  const bool known = e.arguments.size() == 1 ||
                     (e.arguments.size() == 2 && (is_word(e.arguments[1], "async") || is_word(e.arguments[1], "sync")));
  if (!known) return e.out.error(syntax_error);
  each_shard(e, [](Shard& shard) { shard.clear(); });
  e.out.ok();
}

// ---- The table of commands ----

constexpr Command commands[] = {
    {"get", 2, CommandRoute::key, false, run_get},
    {"set", -3, CommandRoute::key, true, run_set},
    {"setnx", 3, CommandRoute::key, true, run_setnx},
    {"setex", 4, CommandRoute::key, true, [](Execution& e) { run_setex(e, false); }},
    {"psetex", 4, CommandRoute::key, true, [](Execution& e) { run_setex(e, true); }},
    {"getdel", 2, CommandRoute::key, true, run_getdel},
    {"getset", 3, CommandRoute::key, true, run_getset},
    {"getex", -2, CommandRoute::key, true, run_getex},
    {"del", -2, CommandRoute::keys_sum, true, run_del},
    {"unlink", -2, CommandRoute::keys_sum, true, run_del},
    {"exists", -2, CommandRoute::keys_sum, false, run_exists},
    {"touch", -2, CommandRoute::keys_sum, false, run_exists},
    {"mget", -2, CommandRoute::keys_list, false, run_mget},
    {"mset", -3, CommandRoute::together, true, run_mset, Own::none, {1, -1, 2}},
    {"msetnx", -3, CommandRoute::together, true, run_msetnx, Own::none, {1, -1, 2}},
    {"incr", 2, CommandRoute::key, true, run_incr},
    {"decr", 2, CommandRoute::key, true, run_decr},
    {"incrby", 3, CommandRoute::key, true, run_incrby},
    {"decrby", 3, CommandRoute::key, true, run_decrby},
    {"incrbyfloat", 3, CommandRoute::key, true, run_incrbyfloat},
    {"append", 3, CommandRoute::key, true, run_append},
    {"strlen", 2, CommandRoute::key, false, run_strlen},
    {"getrange", 4, CommandRoute::key, false, run_getrange},
    {"substr", 4, CommandRoute::key, false, run_getrange},
    {"setrange", 4, CommandRoute::key, true, run_setrange},
    {"expire", -3, CommandRoute::key, true, [](Execution& e) { expire(e, "expire", true, false); }},
    {"pexpire", -3, CommandRoute::key, true, [](Execution& e) { expire(e, "pexpire", false, false); }},
    {"expireat", -3, CommandRoute::key, true, [](Execution& e) { expire(e, "expireat", true, true); }},
    {"pexpireat", -3, CommandRoute::key, true, [](Execution& e) { expire(e, "pexpireat", false, true); }},
    {"ttl", 2, CommandRoute::key, false, [](Execution& e) { run_ttl(e, true, false); }},
    {"pttl", 2, CommandRoute::key, false, [](Execution& e) { run_ttl(e, false, false); }},
    {"expiretime", 2, CommandRoute::key, false, [](Execution& e) { run_ttl(e, true, true); }},
    {"pexpiretime", 2, CommandRoute::key, false, [](Execution& e) { run_ttl(e, false, true); }},
    {"persist", 2, CommandRoute::key, true, run_persist},
    {"setbit", 4, CommandRoute::key, true, run_setbit},
    {"getbit", 3, CommandRoute::key, false, run_getbit},
    {"bitcount", -2, CommandRoute::key, false, run_bitcount},
    {"bitpos", -3, CommandRoute::key, false, run_bitpos},
    {"bitop", -4, CommandRoute::together, true, run_bitop, Own::none, {2, -1, 1}},
    {"rename", 3, CommandRoute::together, true, run_rename, Own::none, {1, 2, 1}},
    {"renamenx", 3, CommandRoute::together, true, run_renamenx, Own::none, {1, 2, 1}},
    {"copy", -3, CommandRoute::together, true, run_copy, Own::none, {1, 2, 1}},
    {"object", 3, CommandRoute::together, false, run_object, Own::none, {2, 2, 1}},
    {"randomkey", 1, CommandRoute::random, false, run_randomkey},
    {"type", 2, CommandRoute::key, false, run_type},
    {"scan", -2, CommandRoute::cursor, false, run_scan},
    {"keys", 2, CommandRoute::all_list, false, run_keys},
    {"dbsize", 1, CommandRoute::all_sum, false, run_dbsize},
    {"flushall", -1, CommandRoute::all_status, true, run_flush},
    {"flushdb", -1, CommandRoute::all_status, true, run_flush},
    {"ping", -1, CommandRoute::connection, false, nullptr, Own::ping},
    {"echo", 2, CommandRoute::connection, false, nullptr, Own::echo},
    {"info", -1, CommandRoute::connection, false, nullptr, Own::info},
    {"config", -2, CommandRoute::connection, false, nullptr, Own::config},
    {"command", -1, CommandRoute::connection, false, nullptr, Own::command},
    {"client", -2, CommandRoute::connection, false, nullptr, Own::client},
    {"hello", -1, CommandRoute::connection, false, nullptr, Own::hello},
    {"select", 2, CommandRoute::connection, false, nullptr, Own::select},
    {"quit", -1, CommandRoute::connection, false, nullptr, Own::quit},
    {"reset", 1, CommandRoute::connection, false, nullptr, Own::reset},
    {"auth", -2, CommandRoute::connection, false, nullptr, Own::auth},
    {"time", 1, CommandRoute::connection, false, nullptr, Own::time},
    {"wait", 3, CommandRoute::connection, false, nullptr, Own::wait},
    {"multi", 1, CommandRoute::connection, false, nullptr, Own::multi},
    {"exec", 1, CommandRoute::connection, false, nullptr, Own::exec},
    {"discard", 1, CommandRoute::connection, false, nullptr, Own::discard},
    {"watch", -2, CommandRoute::together, false, run_watch_keys, Own::watch, {1, -1, 1}},
    {"unwatch", 1, CommandRoute::connection, false, nullptr, Own::unwatch},
};

// Names are found by their letters in two words, in a table with open addressing that is made by the compiler.
constexpr std::size_t name_bytes_max = 16;
constexpr std::size_t places = 256;

struct Packed {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Packed&) const = default;
};

constexpr Packed pack(std::string_view name) noexcept {
  Packed packed;
  for (std::size_t i = 0; i < name.size(); ++i) {
    // Bit 5 makes letters small. A command has letters only, and other bytes stay different from letters.
    const unsigned char c = static_cast<unsigned char>(name[i]);
    const std::uint64_t lower = c >= 'A' && c <= 'Z' ? c | 0x20U : c;
    (i < 8 ? packed.low : packed.high) |= lower << (8 * (i % 8));
  }
  return packed;
}

// pack() of at most 8 bytes, without a loop.
inline std::uint64_t pack_short(const char* name, std::size_t size) noexcept {
  std::uint64_t word = 0;
  if (size >= 4) {
    std::uint32_t front = 0;
    std::uint32_t back = 0;  // Overlaps `front` in the middle.
    std::memcpy(&front, name, 4);
    std::memcpy(&back, name + size - 4, 4);
    word = front | std::uint64_t{back} << (8 * (size - 4));
  } else if (size != 0) {
    const auto at = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(name[i])} << (8 * i); };
    word = at(0) | at(size / 2) | at(size - 1);
  }
  // Bit 7 of each byte that is a capital letter: at least 'A', at most 'Z', and below 128.
  constexpr std::uint64_t each = 0x0101010101010101U;
  const std::uint64_t low = word & (0x7f * each);
  const std::uint64_t capital = (low + (0x80 - 'A') * each) & ~(low + (0x80 - 'Z' - 1) * each) & ~word & (0x80 * each);
  return word | capital >> 2;
}

constexpr std::size_t place_of(const Packed& packed) noexcept {
  return static_cast<std::size_t>(((packed.low ^ (packed.high * 31)) * 0x9e3779b97f4a7c15U) >> 56);
}

struct NameTable {
  Packed names[places] = {};
  const Command* found[places] = {};
};

constexpr NameTable name_table = [] {
  NameTable table;
  for (const Command& command : commands) {
    const Packed packed = pack(command.name);
    std::size_t place = place_of(packed);
    while (table.found[place] != nullptr) place = (place + 1) % places;
    table.names[place] = packed;
    table.found[place] = &command;
  }
  return table;
}();

}  // namespace

bool check_key(Execution& e, std::string_view key) {
  if (key.size() <= Shard::key_bytes_max) [[likely]]
    return true;
  e.out.error("ERR the key has " + std::to_string(key.size()) + " bytes, and at most " +
              std::to_string(Shard::key_bytes_max) + " are possible");
  return false;
}

const Command* find_command(std::string_view name) noexcept {
  if (name.size() > name_bytes_max) return nullptr;
  const Packed packed = name.size() <= 8 ? Packed{.low = pack_short(name.data(), name.size())} : pack(name);
  for (std::size_t place = place_of(packed); name_table.found[place] != nullptr; place = (place + 1) % places) {
    if (name_table.names[place] == packed && name_table.found[place]->name.size() == name.size()) {
      return name_table.found[place];
    }
  }
  return nullptr;
}

std::span<const Command> all_commands() noexcept { return commands; }

}  // namespace hawser::kv
