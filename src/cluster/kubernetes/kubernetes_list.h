#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/kubernetes/endpoint_slice.h"
#include "hawser/error.h"
#include "hawser/naming.h"

namespace hawser::cluster {

// The endpoints of a service, from its slices: a whole list, then the changes behind its version. The list is one
// answer (on_list), or it is the first events of a watch, which a bookmark ends. No I/O. After an error of on_bytes(),
// the watch is over and the whole list is needed. endpoints() are the last ones that are known.
class KubernetesList {
 public:
  // Limit of the endpoints of all slices. A pod with addresses of both families is in two slices.
  static constexpr std::size_t entries_max = 2 * EndpointLimits::endpoints_max;

  // `port` is that of KubernetesName, `zone` that of KubernetesOptions. `event_bytes_max` limits one event.
  KubernetesList(std::string port, std::string zone, std::size_t event_bytes_max)
      : port_(std::move(port)), zone_(std::move(zone)), event_bytes_max_(event_bytes_max) {}

  // The changes behind this version are not known. Empty: the whole list is needed.
  const std::string& version() const noexcept { return version_; }
  void forget_version() noexcept { version_.clear(); }

  Result<void> on_list(std::string_view body);

  // A new watch begins, of the changes behind version(); without one, of the list and its changes.
  void begin_watch();
  // True until the events of the list have ended.
  bool listing() const noexcept { return version_.empty(); }
  enum class News : std::uint8_t {
    none,
    changed,
    confirmed,  // The list is current.
    expired,    // The server does not have the changes behind version() any more. The watch is over.
  };
  // Takes the next bytes of a watch, which may end anywhere in an event. Events are lines.
  Result<News> on_bytes(std::string_view bytes);
  // False if the watch has ended within an event.
  bool between_events() const noexcept { return partial_.empty(); }

  // Fails with `unavailable` if there is none, with the reason.
  Result<std::vector<Endpoint>> endpoints() const;

 private:
  using Slices = std::map<std::string, EndpointSlice, std::less<>>;  // By name.
  Result<News> on_event(std::string_view line);
  Result<void> put(Slices& slices, std::size_t& entries, EndpointSlice slice) const;
  std::string port_of(const EndpointSlice& slice) const;

  const std::string port_;
  const std::string zone_;
  const std::size_t event_bytes_max_;
  Slices slices_;
  std::size_t entries_ = 0;  // Endpoints in slices_.
  std::string version_;
  Slices initial_;  // The slices of a list whose events have not ended.
  std::size_t initial_entries_ = 0;
  std::string partial_;  // The beginning of an event; at most event_bytes_max_.
};

}  // namespace hawser::cluster
