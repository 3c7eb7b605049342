#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/etcd/etcd_messages.h"
#include "hawser/error.h"
#include "hawser/naming.h"

namespace hawser::cluster {

// The endpoints of a service: a whole list (Range), then the changes behind its revision (Watch). No I/O. After an
// error, the list is unknown: it begins again with a whole list.
class EtcdList {
 public:
  // Limit of the parts of one change.
  static constexpr std::size_t fragments_max = 1000;
  // Keys that are longer by more than this than the prefix are cut.
  static constexpr std::size_t key_bytes_max = 512;

  explicit EtcdList(std::string prefix) : prefix_(std::move(prefix)) {}

  std::string range_request() const;
  // For the changes behind what is known.
  std::string watch_request() const;

  Result<void> on_range(std::string_view response);
  enum class News : std::uint8_t {
    none,
    changed,
    confirmed,  // The list is current.
  };
  Result<News> on_watch(std::string_view response);

  // False while parts of a change are missing.
  bool whole() const noexcept { return fragments_ == 0; }
  // In the order of the keys.
  std::vector<Endpoint> endpoints() const;

 private:
  void apply(const EtcdKey& key);
  Result<void> check_count(std::int64_t count) const;

  const std::string prefix_;
  std::map<std::string, Endpoint, std::less<>> endpoints_;  // By key; at most EndpointLimits::endpoints_max.
  std::int64_t revision_ = 0;                               // The list contains the changes up to this one.
  std::size_t fragments_ = 0;                               // Received parts of a change that is not whole yet.
};

}  // namespace hawser::cluster
