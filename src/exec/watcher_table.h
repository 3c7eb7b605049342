#pragma once

#include <cstdint>
#include <vector>

#include "hawser/transport/poller.h"

namespace hawser::exec {

// Gives each watched descriptor a token that becomes stale when the descriptor is unwatched, so that an event which was
// fetched before is not delivered afterwards.
class WatcherTable {
 public:
  std::uint64_t add(int fd, Watcher& watcher) {
    const auto index = static_cast<std::size_t>(fd);
    if (entries_.size() <= index) entries_.resize(index + 1);
    Entry& entry = entries_[index];
    entry.watcher = &watcher;
    return token(index, entry.generation);
  }
  // Returns false if `watcher` does not watch the descriptor here: it may have outlived the loop of another table.
  bool remove(int fd, const Watcher& watcher) noexcept {
    const auto index = static_cast<std::size_t>(fd);
    if (index >= entries_.size() || entries_[index].watcher != &watcher) return false;
    entries_[index].watcher = nullptr;
    ++entries_[index].generation;
    return true;
  }
  // Returns null if the descriptor of `token` is not watched any more.
  Watcher* find(std::uint64_t token) const noexcept {
    const auto index = static_cast<std::size_t>(token & 0xffffffffU);
    if (index >= entries_.size()) return nullptr;
    const Entry& entry = entries_[index];
    return entry.generation == static_cast<std::uint32_t>(token >> 32) ? entry.watcher : nullptr;
  }
  static int fd(std::uint64_t token) noexcept { return static_cast<int>(token & 0xffffffffU); }

 private:
  struct Entry {
    Watcher* watcher = nullptr;
    std::uint32_t generation = 0;
  };
  static std::uint64_t token(std::size_t index, std::uint32_t generation) noexcept {
    return (std::uint64_t{generation} << 32) | index;
  }
  std::vector<Entry> entries_;  // By descriptor.
};

}  // namespace hawser::exec
