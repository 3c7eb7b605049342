#include "block/request_memory.h"

#include <malloc.h>

#include "block/service.h"

namespace hawser::block {

void keep_request_memory() noexcept {
  constexpr int longest = static_cast<int>(request_bytes_max);
  mallopt(M_MMAP_THRESHOLD, longest);
  mallopt(M_TRIM_THRESHOLD, 2 * longest);
}

}  // namespace hawser::block
