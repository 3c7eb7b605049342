#pragma once

#include <string_view>

#include "hawser/codec/fields.h"

namespace hawser::runtime {

// Returns the name of a pointer to a member, such as "RdmaOptions::device".
template <auto member>
constexpr std::string_view member_name() noexcept {
  std::string_view text = __PRETTY_FUNCTION__;  // "... [member = &hawser::RdmaOptions::device]".
  text = text.substr(0, text.rfind(']'));
  constexpr std::string_view before = "&hawser::";
  return text.substr(text.rfind(before) + before.size());
}

// Returns the name of the first of `members` that differs, or an empty string if none does. `members` must list all
// fields of Options.
template <auto... members, class Options>
constexpr std::string_view first_difference(const Options& a, const Options& b) noexcept {
  static_assert(sizeof...(members) == codec::field_count<Options>, "hawser: an option is missing in this list");
  std::string_view name;
  static_cast<void>(((a.*members == b.*members || (name = member_name<members>(), false)) && ...));
  return name;
}

}  // namespace hawser::runtime
