#pragma once

#include <cstdint>
#include <string_view>

#include "hawser/error.h"

namespace hawser::detail {

// The error of a method that its service declares and does not implement: `unknown_method` for the caller.
Error unimplemented(std::string_view method);
// Error::application_code of unimplemented(), by which the server knows it. The caller does not see it.
inline constexpr std::int32_t unimplemented_mark = 0x68617773;

}  // namespace hawser::detail
