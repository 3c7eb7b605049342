#include "kv/set_options.h"

#include <string>

#include "protocol/resp/number.h"

namespace hawser::kv {

bool is_word(std::string_view text, std::string_view word) noexcept {
  if (text.size() != word.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] | 0x20) : text[i];
    if (c != word[i]) return false;
  }
  return true;
}

bool parse_set_options(Arguments arguments, std::size_t first, bool reading, SetOptions& options) noexcept {
  for (std::size_t i = first; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    ExpiryUnit unit = ExpiryUnit::none;
    if (!reading && is_word(word, "nx") && !options.only_present) {
      options.only_new = true;
    } else if (!reading && is_word(word, "xx") && !options.only_new) {
      options.only_present = true;
    } else if (!reading && is_word(word, "get")) {
      options.get = true;
    } else if (!reading && is_word(word, "keepttl") && options.unit == ExpiryUnit::none) {
      options.keep_expiry = true;
    } else if (reading && is_word(word, "persist") && options.unit == ExpiryUnit::none) {
      options.persist = true;
    } else if (is_word(word, "ex")) {
      unit = ExpiryUnit::seconds;
    } else if (is_word(word, "px")) {
      unit = ExpiryUnit::milliseconds;
    } else if (is_word(word, "exat")) {
      unit = ExpiryUnit::at_seconds;
    } else if (is_word(word, "pxat")) {
      unit = ExpiryUnit::at_milliseconds;
    } else {
      return false;
    }
    if (unit == ExpiryUnit::none) continue;
    const bool other = options.unit != ExpiryUnit::none && options.unit != unit;
    if (other || options.keep_expiry || options.persist || i + 1 == arguments.size()) return false;
    options.unit = unit;
    options.expiry = arguments[++i];
  }
  return true;
}

bool expiry_time(Execution& execution, const SetOptions& options, std::string_view command, std::int64_t& expires_at) {
  std::int64_t given = 0;
  if (!protocol::resp::parse_number(options.expiry, given)) {
    execution.out.error("ERR value is not an integer or out of range");
    return false;
  }
  const bool seconds = options.unit == ExpiryUnit::seconds || options.unit == ExpiryUnit::at_seconds;
  const bool relative = options.unit == ExpiryUnit::seconds || options.unit == ExpiryUnit::milliseconds;
  bool valid = given > 0;
  if (valid && seconds) valid = !__builtin_mul_overflow(given, std::int64_t{1000}, &given);
  if (valid && relative) valid = !__builtin_add_overflow(given, execution.site.now(), &given);
  if (!valid) {
    execution.out.error("ERR invalid expire time in '" + std::string(command) + "' command");
    return false;
  }
  expires_at = given;
  return true;
}

bool parse_expire_conditions(Execution& execution, ExpireConditions& conditions) {
  for (const std::string_view word : execution.arguments.subspan(3)) {
    if (is_word(word, "nx")) {
      conditions.only_new = true;
    } else if (is_word(word, "xx")) {
      conditions.only_present = true;
    } else if (is_word(word, "gt")) {
      conditions.greater = true;
    } else if (is_word(word, "lt")) {
      conditions.less = true;
    } else {
      execution.out.error("ERR Unsupported option " + std::string(word));
      return false;
    }
  }
  if (conditions.only_new && (conditions.only_present || conditions.greater || conditions.less)) {
    execution.out.error("ERR NX and XX, GT or LT options at the same time are not compatible");
    return false;
  }
  if (conditions.greater && conditions.less) {
    execution.out.error("ERR GT and LT options at the same time are not compatible");
    return false;
  }
  return true;
}

}  // namespace hawser::kv
