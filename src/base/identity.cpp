#include "hawser/identity.h"

#include <algorithm>

#include "base/escaped_text.h"

namespace hawser {

bool Identity::has_claim(std::string_view name, std::string_view value) const noexcept {
  return std::ranges::any_of(claims, [&](const auto& claim) { return claim.first == name && claim.second == value; });
}

std::string Identity::text() const {
  constexpr std::size_t text_bytes_max = 256;
  switch (kind) {
    case Kind::none: break;
    case Kind::unix_peer:
      return "unix uid " + std::to_string(uid) + " gid " + std::to_string(gid) + " pid " + std::to_string(pid);
    case Kind::certificate:
    case Kind::token:
    case Kind::shared_key: {
      const std::string& name = spiffe_id.empty() ? subject : spiffe_id;
      std::string text(to_string(kind));
      text += ' ';
      append_escaped(text, name.empty() ? "without a subject" : std::string_view(name), text_bytes_max - text.size());
      return text;
    }
  }
  return "nobody";
}

std::string_view to_string(Identity::Kind kind) noexcept {
  switch (kind) {
    case Identity::Kind::none: return "none";
    case Identity::Kind::unix_peer: return "unix_peer";
    case Identity::Kind::certificate: return "certificate";
    case Identity::Kind::token: return "token";
    case Identity::Kind::shared_key: return "shared_key";
  }
  return "none";
}

const Identity& no_identity() noexcept {
  static const Identity none;
  return none;
}

}  // namespace hawser
