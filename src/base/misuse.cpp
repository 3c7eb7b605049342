#include "base/misuse.h"

#include <cstdio>
#include <cstdlib>

#include "hawser/detail/task_promise.h"

namespace hawser {

void misuse(std::string_view text) noexcept {
  std::fprintf(stderr, "hawser: %.*s\n", static_cast<int>(text.size()), text.data());
  std::abort();
}

void detail::awaited_again() noexcept {
  misuse("a Task or a Call is awaited although it was awaited or moved from before; await it once");
}

}  // namespace hawser
