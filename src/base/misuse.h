#pragma once

#include <string_view>

namespace hawser {

// Ends the process after saying on standard error what the program did wrong: for misuse that nothing could be done
// about, and that would be a hang or a crash elsewhere otherwise.
[[noreturn]] void misuse(std::string_view text) noexcept;

}  // namespace hawser
