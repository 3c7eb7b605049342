#include "protocol/grpc/status.h"

#include <string>
#include <utility>

namespace hawser::protocol::grpc {

Status status_of(const Error& error) noexcept {
  switch (error.code) {
    case ErrorCode::ok: return Status::ok;
    case ErrorCode::invalid_argument: return Status::invalid_argument;
    case ErrorCode::unknown_method:
    case ErrorCode::signature_mismatch: return Status::unimplemented;
    case ErrorCode::cancelled: return Status::cancelled;
    case ErrorCode::deadline_exceeded: return Status::deadline_exceeded;
    case ErrorCode::overloaded:
    case ErrorCode::limit_exceeded: return Status::resource_exhausted;
    case ErrorCode::not_sent:
    case ErrorCode::unavailable:
    case ErrorCode::outcome_unknown: return Status::unavailable;
    case ErrorCode::stale_handle: return Status::failed_precondition;
    case ErrorCode::protocol_error:
    case ErrorCode::internal: return Status::internal;
    case ErrorCode::permission_denied: return Status::permission_denied;
    case ErrorCode::unauthenticated: return Status::unauthenticated;
    case ErrorCode::application:
      return error.application_code >= 1 && error.application_code <= status_max
                 ? static_cast<Status>(error.application_code)
                 : Status::unknown;
  }
  return Status::unknown;
}

Error error_of(int status, std::string text, bool bare) {
  Error error{ErrorCode::application, ErrorScope::call, Initiator::peer, status, std::move(text)};
  switch (static_cast<Status>(status)) {
    case Status::cancelled: error.code = ErrorCode::cancelled; break;
    case Status::deadline_exceeded: error.code = ErrorCode::deadline_exceeded; break;
    case Status::unimplemented:
      if (bare) error.code = ErrorCode::unknown_method;
      break;
    default: break;
  }
  if (error.code != ErrorCode::application) error.application_code = 0;
  return error;
}

Status status_of_http(int http_status) noexcept {
  switch (http_status) {
    case 400:
    case 431: return Status::internal;
    case 401: return Status::unauthenticated;
    case 403: return Status::permission_denied;
    case 404: return Status::unimplemented;
    case 429:
    case 502:
    case 503:
    case 504: return Status::unavailable;
    default: return Status::unknown;
  }
}

Status status_of_reset(std::uint32_t http2_code) noexcept {
  switch (http2_code) {
    case 0x7:  // REFUSED_STREAM
      return Status::unavailable;
    case 0x8:  // CANCEL
      return Status::cancelled;
    case 0xB:  // ENHANCE_YOUR_CALM
      return Status::resource_exhausted;
    case 0xC:  // INADEQUATE_SECURITY
      return Status::permission_denied;
    default: return Status::internal;
  }
}

int parse_status(std::string_view text) noexcept {
  if (text.empty() || text.size() > 9 || (text.size() > 1 && text.front() == '0')) return -1;
  int number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
    number = number * 10 + (c - '0');
  }
  return number > status_max ? static_cast<int>(Status::unknown) : number;
}

}  // namespace hawser::protocol::grpc
