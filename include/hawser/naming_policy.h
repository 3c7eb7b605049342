#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hawser/balancing.h"

namespace hawser {

// The demands of the source of a name on its clients, beside the list, such as the policies of a cluster of xDS. The
// default demands nothing.
struct NamingPolicy {
  // In place of BalancingOptions::kind, with `choices` and the points of a ring. Keys have no bound of the load then
  // (BalancingOptions::load_max).
  std::optional<Balancing> balancing = {};
  unsigned choices = 2;                // 2 to 10.
  std::size_t ring_points_min = 1024;  // As in BalancingOptions.
  std::size_t ring_points_max = 4096;
  // Metadata whose values are the key of a call, in place of ClusterOptions::key_metadata. Counts with `balancing`. The
  // hash of a call is made of all that it has, in this order, up to a terminal one.
  struct Key {
    std::string metadata;
    bool terminal = false;
    friend bool operator==(const Key&, const Key&) = default;
  };
  std::vector<Key> keys = {};
  // In place of BalancingOptions::load_weights; ignored if ClusterOptions would refuse it. Connections that read no
  // reports are replaced.
  std::optional<LoadWeightOptions> load_weights = {};
  std::optional<OutlierOptions> outliers = {};  // In place of BalancingOptions::outliers.
  std::optional<std::uint32_t> calls_max = {};  // Calls in flight of one client. Others fail with `overloaded`.
  double dropped_part = 0;                      // This part of the calls fails with `overloaded`, by chance. 0 to 1.
  friend bool operator==(const NamingPolicy&, const NamingPolicy&) = default;
};

}  // namespace hawser
