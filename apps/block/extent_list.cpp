#include "block/extent_list.h"

#include <algorithm>
#include <cerrno>
#include <string>

#include "block/store/store_error.h"
#include "block/store/stored_volume.h"

namespace hawser::block {
namespace {

// A search has these bytes of the volume locked.
constexpr std::uint64_t search_bytes_max = std::uint64_t{1} << 30;
// Bytes that one list covers. Without a limit, a list of a volume of zeros reads all of its checksums.
constexpr std::uint64_t list_bytes_max = std::uint64_t{4} << 30;

}  // namespace

Result<std::vector<ExtentStatus>> list_extents(StoredVolume& volume, std::uint64_t offset, std::uint64_t bytes,
                                               std::size_t count_max) {
  count_max = std::clamp<std::size_t>(count_max, 1, extents_max);
  if (bytes == 0 || offset > volume.size() || bytes > volume.size() - offset) {
    return store_fail(EINVAL, "the range of " + std::to_string(bytes) + " bytes at " + std::to_string(offset) +
                                  " is empty or exceeds volume " + volume.name() + " of " +
                                  std::to_string(volume.size()) + " bytes");
  }
  std::vector<ExtentStatus> list;
  const std::uint64_t end = offset + std::min(bytes, list_bytes_max);
  while (offset < end) {
    const Result<StoredVolume::Extent> found = volume.extent(offset, std::min(end, offset + search_bytes_max));
    if (!found) return std::unexpected(found.error());
    if (!list.empty() && list.back().zeros == found->zeros) {
      list.back().bytes += found->end - offset;
    } else if (list.size() == count_max) {
      break;
    } else {
      list.push_back({.bytes = found->end - offset, .zeros = found->zeros});
    }
    offset = found->end;
  }
  return list;
}

}  // namespace hawser::block
