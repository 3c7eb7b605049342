#include "block/nbd/memory_holder.h"

#include <algorithm>

namespace hawser::block::nbd {

void HolderPace::observe(Time now, bool holds, std::uint64_t moved, std::uint64_t bytes_min) noexcept {
  if (holds && moved - moved_ < bytes_min) return;
  since_ = now;
  moved_ = moved;
}

std::vector<std::size_t> holders_to_end(std::span<const NbdMemoryHolder> holders, std::size_t memory_bytes,
                                        std::size_t wanted) {
  std::size_t held = 0;
  for (const NbdMemoryHolder& holder : holders) held += holder.held_bytes;
  if (held + wanted <= memory_bytes) return {};
  std::vector<std::size_t> ended;
  for (std::size_t i = 0; i < holders.size(); ++i) {
    if (holders[i].silent && holders[i].held_bytes > 0) ended.push_back(i);
  }
  if (!ended.empty()) return ended;
  const auto most = std::ranges::max_element(holders, {}, &NbdMemoryHolder::missing_bytes);
  if (most != holders.end() && most->missing_bytes > 0)
    ended.push_back(static_cast<std::size_t>(most - holders.begin()));
  return ended;
}

}  // namespace hawser::block::nbd
