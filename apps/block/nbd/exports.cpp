#include "block/nbd/exports.h"

#include <cerrno>

#include "block/nbd/protocol.h"
#include "block/store/store_error.h"

namespace hawser::block::nbd {

std::uint32_t state_of(bool zeros, bool preallocated) noexcept {
  if (!zeros) return 0;
  return preallocated ? state_zero : state_zero | state_hole;
}

std::unexpected<Error> no_default_export(std::size_t volumes) {
  return store_fail(
      ENOENT, "an empty name is that of the only volume, and there are " + std::to_string(volumes) + ": name one");
}

}  // namespace hawser::block::nbd
