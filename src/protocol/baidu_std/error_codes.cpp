#include "protocol/baidu_std/error_codes.h"

namespace hawser::protocol::baidu_std {

std::int32_t rpc_error_of(const Error& error) noexcept {
  switch (error.code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::signature_mismatch:
    case ErrorCode::protocol_error:
    case ErrorCode::limit_exceeded:
    case ErrorCode::stale_handle: return bad_request;
    case ErrorCode::unknown_method: return no_method;
    case ErrorCode::cancelled: return cancelled_call;
    case ErrorCode::deadline_exceeded: return rpc_timed_out;
    case ErrorCode::overloaded: return limit_reached;
    case ErrorCode::unavailable: return log_off;
    case ErrorCode::unauthenticated: return bad_credential;
    case ErrorCode::permission_denied: return permission_refused;
    case ErrorCode::application: return error.application_code != 0 ? error.application_code : internal_error;
    // A client of bRPC sends a call again after EFAILEDSOCKET, so these two do not become that.
    case ErrorCode::not_sent:
    case ErrorCode::outcome_unknown:
    case ErrorCode::ok:
    case ErrorCode::internal: break;
  }
  return internal_error;
}

ErrorCode error_code_of(std::int32_t code) noexcept {
  switch (code) {
    case no_service:
    case no_method: return ErrorCode::unknown_method;
    case bad_request: return ErrorCode::invalid_argument;
    case bad_credential: return ErrorCode::unauthenticated;
    case rpc_timed_out: return ErrorCode::deadline_exceeded;
    case overcrowded:
    case rejected:
    case limit_reached: return ErrorCode::overloaded;
    case log_off:
    case closed: return ErrorCode::unavailable;
    case internal_error:
    case bad_response: return ErrorCode::internal;
    case cancelled_call: return ErrorCode::cancelled;
    default: return ErrorCode::application;
  }
}

}  // namespace hawser::protocol::baidu_std
