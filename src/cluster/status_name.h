#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "hawser/error.h"

namespace hawser::cluster {

// A status of gRPC.
struct StatusName {
  std::string_view name;
  std::int32_t number;
  std::vector<ErrorCode> codes;  // The errors of this library that have the status.
};

inline constexpr std::int32_t statuses_count = 17;
inline constexpr std::int32_t status_cancelled = 1;

// Null if there is no such failure.
const StatusName* status_named(std::string_view name);
// "OK" and the failures; "UNKNOWN" for other numbers.
std::string_view name_of_status(std::int32_t number);
// The number of the status of a call: 0, if `error` is null. Over gRPC, a code of the application is a status.
std::int32_t status_of(const Error* error, bool over_grpc);

}  // namespace hawser::cluster
