#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace hawser::block {

// A read or a write of one block that has succeeded, as its client saw it.
struct BlockAccess {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::uint64_t value = 0;  // Each write has another one.
  bool write = false;
};

// Decides whether the accesses of one block, at most accesses_max, have an order that agrees with their times, in which
// each read has the value of the last write before it. The block is 0 at the beginning. A write has its effect at least
// once between its begin and its end: it is repeated after a lost connection, so that it may have its effect again
// while it is in progress, and never after its end. The search of Wing and Gong (1993), with the memory of visited
// states of Lowe (2017).
class BlockHistory {
 public:
  static constexpr std::size_t accesses_max = 256;

  explicit BlockHistory(std::vector<BlockAccess> accesses) : accesses_(std::move(accesses)) {}

  bool linearizable() { return accesses_.size() <= accesses_max && search({}, 0, INT64_MIN); }

 private:
  using Chosen = std::bitset<accesses_max>;

  // `now`: the last begin of the chosen ones.
  bool search(const Chosen& chosen, std::uint64_t value, std::int64_t now) {
    if (chosen.count() == accesses_.size()) return true;
    if (!visited_.insert(chosen.to_string() + std::to_string(value)).second) return false;
    // An access may be the next one if no other that is left has ended before it began.
    std::int64_t first_end = INT64_MAX;
    for (std::size_t i = 0; i < accesses_.size(); ++i) {
      if (!chosen[i]) first_end = std::min(first_end, accesses_[i].end);
    }
    for (std::size_t i = 0; i < accesses_.size(); ++i) {
      const BlockAccess& access = accesses_[i];
      if (chosen[i]) {
        const bool again = access.write && access.value != value && access.end >= now;
        if (again && search(chosen, access.value, now)) return true;
      } else if (access.begin <= first_end && (access.write || access.value == value)) {
        if (search(Chosen(chosen).set(i), access.value, std::max(now, access.begin))) return true;
      }
    }
    return false;
  }

  const std::vector<BlockAccess> accesses_;
  std::set<std::string> visited_;
};

}  // namespace hawser::block
