#include "base/misuse.h"

#include <cstdio>
#include <cstdlib>

namespace hawser {

void misuse(std::string_view text) noexcept {
  std::fprintf(stderr, "hawser: %.*s\n", static_cast<int>(text.size()), text.data());
  std::abort();
}

}  // namespace hawser
