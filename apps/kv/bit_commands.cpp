// Commands about the bits of values. Bit 0 is the highest bit of the first byte.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "kv/more_commands.h"
#include "kv/set_options.h"
#include "protocol/resp/number.h"

namespace hawser::kv {
namespace {

// False if the offset is none; the reply has been written then.
bool parse_offset(Execution& e, std::int64_t& offset) {
  const auto most = static_cast<std::int64_t>(e.site.store().options().value_bytes_max);
  if (protocol::resp::parse_number(e.arguments[2], offset) && offset >= 0 && offset / 8 < most) return true;
  e.out.error("ERR bit offset is not an integer or out of range");
  return false;
}

int bit_at(std::string_view value, std::size_t index) noexcept {
  return (static_cast<unsigned char>(value[index / 8]) >> (7 - index % 8)) & 1;
}

// Bits of a value: the first one, and the one behind the last one.
struct BitRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Begin and end count from the end of the value if they are negative, in bytes or in bits.
BitRange range_of(std::int64_t begin, std::int64_t end, std::size_t bytes, bool bits) noexcept {
  const auto size = static_cast<std::int64_t>(bits ? bytes * 8 : bytes);
  begin = std::max<std::int64_t>(begin < 0 ? begin + size : begin, 0);
  end = std::min(std::max<std::int64_t>(end < 0 ? end + size : end, 0), size - 1);
  if (begin > end) return {};
  const std::int64_t unit = bits ? 1 : 8;
  return {static_cast<std::size_t>(begin * unit), static_cast<std::size_t>((end + 1) * unit)};
}

// The unit of a range. False: neither BYTE nor BIT; the reply has been written then.
bool parse_unit(Execution& e, std::string_view word, bool& bits) {
  bits = is_word(word, "bit");
  if (bits || is_word(word, "byte")) return true;
  e.out.error(syntax_error);
  return false;
}

std::int64_t count_bits(std::string_view value, BitRange range) noexcept {
  std::int64_t count = 0;
  std::size_t at = range.begin;
  while (at < range.end && at % 8 != 0) count += bit_at(value, at++);
  for (; range.end - std::min(at, range.end) >= 64; at += 64) {
    std::uint64_t word = 0;
    std::memcpy(&word, value.data() + at / 8, sizeof word);
    count += std::popcount(word);
  }
  while (at < range.end) count += bit_at(value, at++);
  return count;
}

// The first bit that is `bit`; the end of the range if there is none.
std::size_t find_bit(std::string_view value, BitRange range, int bit) noexcept {
  const char skipped = static_cast<char>(bit == 0 ? 0xff : 0);
  std::size_t at = range.begin;
  while (at < range.end) {
    if (at % 8 == 0 && range.end - at >= 8 && value[at / 8] == skipped) {
      at += 8;
    } else if (bit_at(value, at) == bit) {
      return at;
    } else {
      ++at;
    }
  }
  return range.end;
}

}  // namespace

void run_setbit(Execution& e) {
  if (!check_key(e, e.arguments[1])) return;
  std::int64_t offset = 0;
  if (!parse_offset(e, offset)) return;
  const std::string_view bit = e.arguments[3];
  if (bit != "0" && bit != "1") return e.out.error("ERR bit is not an integer or out of range");
  Entry* entry = e.shard().find(e.key(), e.site.now(), false);
  const auto index = static_cast<std::size_t>(offset);
  const std::size_t before = entry == nullptr ? 0 : entry->value_bytes;
  entry = resize_value(e, entry, std::max(before, index / 8 + 1));
  if (entry == nullptr) return e.out.error(no_memory);
  const int old = bit_at(entry->value(), index);
  if ((old != 0) != (bit == "1")) {
    char& byte = entry->value_data()[index / 8];
    byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (0x80U >> (index % 8)));
  }
  e.shard().changed(*entry);
  e.out.number(old);
}

void run_getbit(Execution& e) {
  std::int64_t offset = 0;
  if (!parse_offset(e, offset)) return;
  Entry* const entry = e.shard().find(e.key(), e.site.now());
  const auto index = static_cast<std::size_t>(offset);
  e.out.number(entry == nullptr || index / 8 >= entry->value_bytes ? 0 : bit_at(entry->value(), index));
}

void run_bitcount(Execution& e) {
  Entry* const entry = e.shard().find(e.key(), e.site.now());
  if (entry == nullptr) return e.out.number(0);
  const std::size_t size = e.arguments.size();
  std::int64_t begin = 0;
  std::int64_t end = -1;
  bool bits = false;
  if (size == 3 || size > 5) return e.out.error(syntax_error);
  if (size >= 4) {
    if (!protocol::resp::parse_number(e.arguments[2], begin) || !protocol::resp::parse_number(e.arguments[3], end)) {
      return e.out.error(not_integer);
    }
    if (begin < 0 && end < 0 && begin > end) return e.out.number(0);
    if (size == 5 && !parse_unit(e, e.arguments[4], bits)) return;
  }
  const BitRange range = range_of(begin, end, entry->value_bytes, bits);
  e.value_work = (range.end - range.begin) / 8;
  e.out.number(count_bits(entry->value(), range));
}

void run_bitpos(Execution& e) {
  std::int64_t bit = 0;
  if (!protocol::resp::parse_number(e.arguments[2], bit)) return e.out.error(not_integer);
  if (bit != 0 && bit != 1) return e.out.error("ERR The bit argument must be 1 or 0.");
  Entry* const entry = e.shard().find(e.key(), e.site.now());
  if (entry == nullptr) return e.out.number(bit == 1 ? -1 : 0);
  const std::size_t size = e.arguments.size();
  std::int64_t begin = 0;
  std::int64_t end = -1;
  bool bits = false;
  if (size > 6) return e.out.error(syntax_error);
  if (size >= 4 && !protocol::resp::parse_number(e.arguments[3], begin)) return e.out.error(not_integer);
  if (size == 6 && !parse_unit(e, e.arguments[5], bits)) return;
  if (size >= 5 && !protocol::resp::parse_number(e.arguments[4], end)) return e.out.error(not_integer);
  const BitRange range = range_of(begin, end, entry->value_bytes, bits);
  if (range.begin == range.end) return e.out.number(-1);
  const std::size_t found = find_bit(entry->value(), range, static_cast<int>(bit));
  e.value_work = (found - range.begin) / 8;
  // Without an end, zeros follow the value.
  const bool none = found == range.end && (bit == 1 || size >= 5);
  e.out.number(none ? -1 : static_cast<std::int64_t>(found));
}

void run_bitop(Execution& e) {
  const std::string_view what = e.arguments[1];
  const bool invert = is_word(what, "not");
  const bool all = is_word(what, "and");
  const bool any = is_word(what, "or");
  if (!invert && !all && !any && !is_word(what, "xor")) return e.out.error(syntax_error);
  if (invert && e.arguments.size() != 4) {
    return e.out.error("ERR BITOP NOT must be called with a single source key.");
  }
  if (!check_key(e, e.arguments[2])) return;
  // Shorter values end with zeros.
  std::string result;
  for (std::size_t i = 3; i < e.arguments.size(); ++i) {
    const Key key = key_of(e, e.arguments[i]);
    Entry* const entry = shard_of(e, key).find(key, e.site.now());
    const std::string_view value = entry == nullptr ? std::string_view() : entry->value();
    const std::size_t common = std::min(result.size(), value.size());
    e.value_work += value.size();
    if (i == 3) {
      result = value;
    } else if (all) {
      result.resize(std::max(result.size(), value.size()));
      for (std::size_t j = 0; j < common; ++j) result[j] = static_cast<char>(result[j] & value[j]);
      std::fill(result.begin() + static_cast<std::ptrdiff_t>(common), result.end(), '\0');
    } else {
      result.resize(std::max(result.size(), value.size()));
      for (std::size_t j = 0; j < value.size(); ++j) {
        result[j] = static_cast<char>(any ? result[j] | value[j] : result[j] ^ value[j]);
      }
    }
  }
  if (invert) {
    for (char& c : result) c = static_cast<char>(~c);
  }
  const Key to = key_of(e, e.arguments[2]);
  Shard& shard = shard_of(e, to);
  if (result.empty()) {
    if (Entry* const entry = shard.find(to, e.site.now(), false)) shard.remove(*entry);
  } else if (shard.set(to, result, 0) == nullptr) {
    return e.out.error(no_memory);
  }
  e.out.number(static_cast<std::int64_t>(result.size()));
}

}  // namespace hawser::kv
