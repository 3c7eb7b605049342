#pragma once

#include <cstdint>

#include "hawser/error.h"

// The error codes of bRPC. Values of errno share the field.
namespace hawser::protocol::baidu_std {

enum RpcError : std::int32_t {
  no_service = 1001,
  no_method = 1002,
  bad_request = 1003,
  bad_credential = 1004,
  rpc_timed_out = 1008,
  overcrowded = 1011,
  rejected = 1018,
  internal_error = 2001,
  bad_response = 2002,
  log_off = 2003,
  limit_reached = 2004,
  closed = 2005,
  permission_refused = 13,  // EACCES of Linux.
  cancelled_call = 125,     // ECANCELED of Linux.
};

// The code that a reply carries for `error`. Never 0.
std::int32_t rpc_error_of(const Error& error) noexcept;
// The code of an error that a server answered with `code`, which is not 0. ErrorCode::application: `code` is the
// application_code.
ErrorCode error_code_of(std::int32_t code) noexcept;

}  // namespace hawser::protocol::baidu_std
