#pragma once

#include <new>
#include <string>
#include <string_view>

#include "hawser/error.h"

namespace hawser {

// Returns an error with this text, or with the text "out of memory" if there is none for it: for functions that nobody
// calls who could handle an exception.
inline Error error_without_throwing(Initiator initiator, ErrorScope scope, ErrorCode code,
                                    std::string_view text) noexcept {
  Error error{.code = code, .scope = scope, .initiator = initiator, .text = {}};
  try {
    error.text = text;
  } catch (const std::bad_alloc&) {
    error.text = "out of memory";  // Short enough to be kept within the object.
  }
  return error;
}

}  // namespace hawser
