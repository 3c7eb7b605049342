#include <algorithm>

#include "hawser/interceptor.h"

namespace hawser {

bool OutgoingCall::may_repeat() const noexcept { return arguments_exist_ && repeatable_; }

std::optional<std::string_view> OutgoingCall::find_metadata(std::string_view key) const noexcept {
  const Metadata& all = options_.metadata;
  const auto at = std::ranges::find(all, key, &Metadata::value_type::first);
  if (at == all.end()) return std::nullopt;
  return at->second;
}

void OutgoingCall::set_metadata(std::string_view key, std::string_view value) {
  const std::string text(value);  // It may lie in what is removed.
  std::string name(key);
  remove_metadata(name);
  options_.metadata.emplace_back(std::move(name), text);
}

void OutgoingCall::remove_metadata(std::string_view key) {
  const std::string name(key);
  std::erase_if(options_.metadata, [&](const auto& entry) { return entry.first == name; });
}

}  // namespace hawser
