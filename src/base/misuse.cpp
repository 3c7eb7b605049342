#include "base/misuse.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "base/log_output.h"
#include "hawser/detail/task_promise.h"

namespace hawser {

void misuse(std::string_view text) noexcept {
  std::fprintf(stderr, "hawser: %.*s\n", static_cast<int>(text.size()), text.data());
  std::abort();
}

void report_misuse(std::string_view text) noexcept try {
  write_ready(STDERR_FILENO, "hawser: " + std::string(text) + "\n");
} catch (const std::bad_alloc&) {
  // There is no memory for the line.
}

void detail::awaited_again() noexcept {
  misuse("a Task or a Call is awaited although it was awaited or moved from before; await it once");
}

}  // namespace hawser
