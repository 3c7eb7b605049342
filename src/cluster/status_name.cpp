#include "cluster/status_name.h"

#include <algorithm>
#include <array>

namespace hawser::cluster {
namespace {

constexpr std::int32_t status_unknown = 2;

// The status of number n has the index n - 1.
const std::array<StatusName, statuses_count - 1>& statuses() {
  using enum ErrorCode;
  static const std::array<StatusName, statuses_count - 1> names = {
      {{"CANCELLED", 1, {cancelled}},
       {"UNKNOWN", 2, {}},
       {"INVALID_ARGUMENT", 3, {invalid_argument}},
       {"DEADLINE_EXCEEDED", 4, {deadline_exceeded}},
       {"NOT_FOUND", 5, {}},
       {"ALREADY_EXISTS", 6, {}},
       {"PERMISSION_DENIED", 7, {permission_denied}},
       {"RESOURCE_EXHAUSTED", 8, {overloaded, limit_exceeded}},
       {"FAILED_PRECONDITION", 9, {stale_handle}},
       {"ABORTED", 10, {}},
       {"OUT_OF_RANGE", 11, {}},
       {"UNIMPLEMENTED", 12, {unknown_method, signature_mismatch}},
       {"INTERNAL", 13, {internal, protocol_error}},
       {"UNAVAILABLE", 14, {unavailable, not_sent, outcome_unknown}},
       {"DATA_LOSS", 15, {}},
       {"UNAUTHENTICATED", 16, {unauthenticated}}}};
  return names;
}

}  // namespace

const StatusName* status_named(std::string_view name) {
  const auto found = std::ranges::find(statuses(), name, &StatusName::name);
  return found == statuses().end() ? nullptr : &*found;
}

std::string_view name_of_status(std::int32_t number) {
  if (number == 0) return "OK";
  const bool known = number > 0 && number < statuses_count;
  return statuses()[static_cast<std::size_t>((known ? number : status_unknown) - 1)].name;
}

std::int32_t status_of(const Error* error, bool over_grpc) {
  if (error == nullptr) return 0;
  if (error->code == ErrorCode::application) {
    const std::int32_t number = error->application_code;
    return over_grpc && number > 0 && number < statuses_count ? number : status_unknown;
  }
  for (const StatusName& one : statuses()) {
    if (std::ranges::find(one.codes, error->code) != one.codes.end()) return one.number;
  }
  return status_unknown;
}

}  // namespace hawser::cluster
