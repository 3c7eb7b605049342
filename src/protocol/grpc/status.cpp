#include "protocol/grpc/status.h"

#include <string>
#include <utility>

namespace hawser::protocol::grpc {

GrpcStatus status_of(const Error& error) noexcept {
  switch (error.code) {
    case ErrorCode::ok: return GrpcStatus::ok;
    case ErrorCode::invalid_argument: return GrpcStatus::invalid_argument;
    case ErrorCode::unknown_method:
    case ErrorCode::signature_mismatch: return GrpcStatus::unimplemented;
    case ErrorCode::cancelled: return GrpcStatus::cancelled;
    case ErrorCode::deadline_exceeded: return GrpcStatus::deadline_exceeded;
    case ErrorCode::overloaded:
    case ErrorCode::limit_exceeded: return GrpcStatus::resource_exhausted;
    case ErrorCode::not_sent:
    case ErrorCode::unavailable:
    case ErrorCode::outcome_unknown: return GrpcStatus::unavailable;
    case ErrorCode::stale_handle: return GrpcStatus::failed_precondition;
    case ErrorCode::protocol_error:
    case ErrorCode::internal: return GrpcStatus::internal;
    case ErrorCode::permission_denied: return GrpcStatus::permission_denied;
    case ErrorCode::unauthenticated: return GrpcStatus::unauthenticated;
    case ErrorCode::application:
      return error.application_code >= 1 && error.application_code <= status_max
                 ? static_cast<GrpcStatus>(error.application_code)
                 : GrpcStatus::unknown;
  }
  return GrpcStatus::unknown;
}

Error error_of(int status, std::string text, bool bare) {
  Error error{ErrorCode::application, ErrorScope::call, Initiator::peer, status, std::move(text)};
  switch (static_cast<GrpcStatus>(status)) {
    case GrpcStatus::cancelled: error.code = ErrorCode::cancelled; break;
    case GrpcStatus::deadline_exceeded: error.code = ErrorCode::deadline_exceeded; break;
    case GrpcStatus::unimplemented:
      if (bare) error.code = ErrorCode::unknown_method;
      break;
    default: break;
  }
  if (error.code != ErrorCode::application) error.application_code = 0;
  return error;
}

GrpcStatus status_of_http(int http_status) noexcept {
  switch (http_status) {
    case 400:
    case 431: return GrpcStatus::internal;
    case 401: return GrpcStatus::unauthenticated;
    case 403: return GrpcStatus::permission_denied;
    case 404: return GrpcStatus::unimplemented;
    case 429:
    case 502:
    case 503:
    case 504: return GrpcStatus::unavailable;
    default: return GrpcStatus::unknown;
  }
}

GrpcStatus status_of_reset(std::uint32_t http2_code) noexcept {
  switch (http2_code) {
    case 0x7:  // REFUSED_STREAM
      return GrpcStatus::unavailable;
    case 0x8:  // CANCEL
      return GrpcStatus::cancelled;
    case 0xB:  // ENHANCE_YOUR_CALM
      return GrpcStatus::resource_exhausted;
    case 0xC:  // INADEQUATE_SECURITY
      return GrpcStatus::permission_denied;
    default: return GrpcStatus::internal;
  }
}

int parse_status(std::string_view text) noexcept {
  if (text.empty() || text.size() > 9 || (text.size() > 1 && text.front() == '0')) return -1;
  int number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
    number = number * 10 + (c - '0');
  }
  return number > status_max ? static_cast<int>(GrpcStatus::unknown) : number;
}

}  // namespace hawser::protocol::grpc
