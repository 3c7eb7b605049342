#pragma once

#include <cstdint>
#include <string_view>

#include "hawser/error.h"

namespace hawser::protocol::grpc {

// Status codes of gRPC (doc/statuscodes.md of gRPC).
enum class GrpcStatus : std::uint8_t {
  ok = 0,
  cancelled = 1,
  unknown = 2,
  invalid_argument = 3,
  deadline_exceeded = 4,
  not_found = 5,
  already_exists = 6,
  permission_denied = 7,
  resource_exhausted = 8,
  failed_precondition = 9,
  aborted = 10,
  out_of_range = 11,
  unimplemented = 12,
  internal = 13,
  unavailable = 14,
  data_loss = 15,
  unauthenticated = 16,
};
inline constexpr int status_max = 16;

// The status that a caller receives for an error. An application's code from 1 to 16 is that status; other codes of an
// application become `unknown`.
GrpcStatus status_of(const Error& error) noexcept;

// The error of a call that a server answered with `status`. Statuses that an application chooses become
// ErrorCode::application with the status as application_code, because the handler may have run. `bare`: the answer had
// no initial metadata and no message, so that `unimplemented` says that the server has no such method.
Error error_of(int status, std::string text, bool bare);

// The status of an answer without grpc-status (doc/http-grpc-status-mapping.md of gRPC).
GrpcStatus status_of_http(int http_status) noexcept;
// The status of a stream that its peer reset with that code of HTTP/2.
GrpcStatus status_of_reset(std::uint32_t http2_code) noexcept;

// Parses grpc-status: decimal without leading zeros. Numbers above 16 are `unknown`. -1 if the text is malformed.
int parse_status(std::string_view text) noexcept;

}  // namespace hawser::protocol::grpc
