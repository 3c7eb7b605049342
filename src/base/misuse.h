#pragma once

#include <string_view>

namespace hawser {

// Writes `text` to standard error and ends the process. For misuse of the library that cannot be handled and would
// otherwise end in a hang or a crash elsewhere.
[[noreturn]] void misuse(std::string_view text) noexcept;
// Only writes `text`, for misuse that harms nothing.
void report_misuse(std::string_view text) noexcept;

}  // namespace hawser
