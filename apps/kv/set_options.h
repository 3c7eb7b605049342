#pragma once

#include <cstdint>
#include <string_view>

#include "kv/commands.h"

namespace hawser::kv {

// True if `text` is the word, which is in lower case, in any case.
bool is_word(std::string_view text, std::string_view word) noexcept;

enum class ExpiryUnit : std::uint8_t { none, seconds, milliseconds, at_seconds, at_milliseconds };

// Options of SET and GETEX.
struct SetOptions {
  bool only_new = false;      // NX
  bool only_present = false;  // XX
  bool get = false;
  bool keep_expiry = false;
  bool persist = false;
  ExpiryUnit unit = ExpiryUnit::none;
  std::string_view expiry = {};
};

// Parses the arguments from `first` on. `reading`: those of GETEX. False: syntax error.
bool parse_set_options(Arguments arguments, std::size_t first, bool reading, SetOptions& options) noexcept;

// Computes the time at which the entry expires. False if it is none; the reply has been written then.
bool expiry_time(Execution& execution, const SetOptions& options, std::string_view command, std::int64_t& expires_at);

// Options of EXPIRE: NX, XX, GT, LT.
struct ExpireConditions {
  bool only_new = false;
  bool only_present = false;
  bool greater = false;
  bool less = false;
  // `present`: the time at which the entry expires; 0: never.
  bool allow(std::int64_t present, std::int64_t given) const noexcept {
    if (only_new && present != 0) return false;
    if (only_present && present == 0) return false;
    if (greater && (present == 0 || given <= present)) return false;
    return !less || present == 0 || given < present;
  }
};
// False if they are wrong; the reply has been written then.
bool parse_expire_conditions(Execution& execution, ExpireConditions& conditions);

}  // namespace hawser::kv
