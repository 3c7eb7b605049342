#include "hawser/error.h"

#include <array>

namespace hawser {

std::string_view to_string(ErrorCode code) noexcept {
  static constexpr std::array<std::string_view, 17> names = {
      "ok",          "invalid_argument", "unknown_method",  "signature_mismatch", "cancelled",      "deadline_exceeded",
      "overloaded",  "not_sent",         "outcome_unknown", "unavailable",        "protocol_error", "limit_exceeded",
      "application", "internal",         "stale_handle",    "permission_denied",  "unauthenticated"};
  const auto index = static_cast<std::size_t>(code);
  return index < names.size() ? names[index] : "unknown_code";
}

std::string_view to_string(ErrorScope scope) noexcept {
  switch (scope) {
    case ErrorScope::call: return "call";
    case ErrorScope::connection: return "connection";
    case ErrorScope::transport: return "transport";
  }
  return "unknown_scope";
}

std::string Error::describe() const {
  std::string line(to_string(code));
  if (code == ErrorCode::application) line += " " + std::to_string(application_code);
  line += " (";
  line += to_string(scope);
  line += initiator == Initiator::peer ? ", by the peer): " : "): ";
  line += text;
  return line;
}

}  // namespace hawser
