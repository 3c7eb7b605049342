#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser::transport {

// Map from address ranges that do not overlap to entries. Any part of a range finds its entry. Not thread-safe.
template <class Entry>
class AddressRangeMap {
 public:
  // Adds a range. Returns `invalid_argument` if it overlaps a range of the map.
  Result<void> add(MutableBytes memory, Entry entry) {
    const auto after = by_address_.lower_bound(memory.data());
    const bool over_next = after != by_address_.end() && after->first < memory.data() + memory.size();
    const bool over_last =
        after != by_address_.begin() && std::prev(after)->first + std::prev(after)->second.bytes > memory.data();
    if (over_next || over_last) {
      return fail(ErrorCode::invalid_argument, "this memory, or a part of it, is registered already");
    }
    by_address_.emplace(memory.data(), Stretch{memory.size(), std::move(entry)});
    bytes_ += memory.size();
    return {};
  }
  // Removes the range that begins at `memory`, which must be in the map.
  void remove(const std::byte* memory) noexcept {
    const auto found = by_address_.find(memory);
    bytes_ -= found->second.bytes;
    by_address_.erase(found);
  }

  struct Found {
    MutableBytes memory;  // The whole range.
    Entry* entry = nullptr;
  };
  // Finds the range that contains [data, data + bytes). `entry` is null if there is none.
  Found find(const std::byte* data, std::size_t bytes) noexcept {
    auto found = by_address_.upper_bound(data);
    if (found == by_address_.begin()) return {};
    --found;
    Stretch& stretch = found->second;
    const auto offset = static_cast<std::size_t>(data - found->first);
    if (offset >= stretch.bytes || bytes > stretch.bytes - offset) return {};
    return {{const_cast<std::byte*>(found->first), stretch.bytes}, &stretch.entry};
  }

  // Calls f(memory, entry) for each range.
  template <class F>
  void each(F f) {
    for (auto& [data, stretch] : by_address_)
      f(MutableBytes(const_cast<std::byte*>(data), stretch.bytes), stretch.entry);
  }

  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Stretch {
    std::size_t bytes = 0;
    Entry entry;
  };
  std::map<const std::byte*, Stretch> by_address_;
  std::size_t bytes_ = 0;
};

}  // namespace hawser::transport
