#include "cluster/route_match.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/ascii_case.h"

namespace hawser::cluster {
namespace {

using Header = NamingRoutes::Header;

bool in_range(const Header& header, std::string_view value) {
  if (value.starts_with('+')) {
    value.remove_prefix(1);
    if (value.starts_with('-')) return false;
  }
  std::int64_t number = 0;
  const auto [stop, problem] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool read = problem == std::errc() && stop == value.data() + value.size();
  return read && number >= header.first && number < header.end;
}

bool holds(const Header& header, std::string_view value) {
  switch (header.kind) {
    case Header::Kind::exact: return value == header.text;
    case Header::Kind::prefix: return value.starts_with(header.text);
    case Header::Kind::suffix: return value.ends_with(header.text);
    case Header::Kind::contains: return value.contains(header.text);
    case Header::Kind::range: return in_range(header, value);
    case Header::Kind::present: return true;
    case Header::Kind::absent: break;
  }
  return false;
}

bool matches_header(const Header& header, const Metadata& metadata) {
  std::string joined;
  const std::optional<std::string_view> value = metadata_value(metadata, header.name, joined);
  if (!value) return header.kind == Header::Kind::absent;
  return (header.any_case ? holds(header, in_lower_case(*value)) : holds(header, *value)) != header.inverted;
}

}  // namespace

std::optional<std::string_view> metadata_value(const Metadata& metadata, std::string_view name, std::string& joined) {
  if (name.ends_with("-bin")) return std::nullopt;
  if (name == "content-type") return "application/grpc";
  std::optional<std::string_view> value;
  for (const auto& [entry, one] : metadata) {
    if (entry != name) continue;
    if (value) {
      if (joined.empty()) joined = *value;
      joined += "," + one;
    }
    value = value ? std::string_view(joined) : std::string_view(one);
  }
  return value;
}

void MethodPath::set(std::string_view method) {
  const std::size_t colons = method.contains('/') ? std::string_view::npos : method.rfind("::");
  std::size_t bytes = method.size() + 1;
  if (bytes > short_.size()) long_.resize(bytes);
  char* const path = bytes > short_.size() ? long_.data() : short_.data();
  path[0] = '/';
  method.copy(path + 1, method.size());
  if (colons != std::string_view::npos) {
    path[colons + 1] = '/';
    std::memmove(path + colons + 2, path + colons + 3, method.size() - colons - 2);
    --bytes;
  }
  text_ = {path, bytes};
  lower_.clear();
}

std::string_view MethodPath::lower_text() {
  if (lower_.empty()) lower_ = in_lower_case(text_);
  return lower_;
}

bool MethodPath::matches(const NamingRoutes::Match& match) {
  const std::string_view given = match.any_case ? lower_text() : text();
  return match.whole ? given == match.path : given.starts_with(match.path);
}

bool matches_each_path(const NamingRoutes::Match& match) noexcept {
  return !match.whole && (match.path.empty() || match.path == "/");
}

bool has_conditions(const NamingRoutes::Match& match) noexcept {
  return !match.headers.empty() || match.parts_per_million < all_calls_per_million;
}

bool conditions_hold(const NamingRoutes::Match& match, const Metadata& metadata, Random& random) {
  const auto matches = [&metadata](const Header& header) { return matches_header(header, metadata); };
  if (!std::ranges::all_of(match.headers, matches)) return false;
  return match.parts_per_million >= all_calls_per_million ||
         random.below(all_calls_per_million) < match.parts_per_million;
}

}  // namespace hawser::cluster
