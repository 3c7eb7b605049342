#include "cluster/kubernetes/kubernetes_list.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/escaped_text.h"
#include "base/try.h"

namespace hawser::cluster {
namespace {

constexpr std::size_t shown_ports_bytes_max = 200;
constexpr int gone_status = 410;

bool is_number(std::string_view text) noexcept {
  return !text.empty() && std::ranges::all_of(text, [](char one) { return one >= '0' && one <= '9'; });
}

// An endpoint and what decides about it.
struct SliceCandidate {
  const SliceEndpoint* endpoint = nullptr;
  std::string port;
};

std::string shown_ports(const std::map<std::string, EndpointSlice, std::less<>>& slices) {
  std::set<std::string_view> names;
  for (const auto& [key, slice] : slices) {
    for (const SlicePort& port : slice.ports) names.insert(port.name);
  }
  std::string shown;
  for (const std::string_view name : names) {
    if (shown.size() > shown_ports_bytes_max) break;
    shown += shown.empty() ? "'" : ", '";
    append_escaped(shown, name, shown_ports_bytes_max);
    shown += '\'';
  }
  return shown;
}

std::string without_port_text(const std::string& port, const std::string& ports) {
  if (ports.empty()) return "the service has no TCP port: write the number of a port of its pods";
  return port.empty() ? "the service has several ports, " + ports + ": write the name of one"
                      : "no endpoint has a TCP port '" + port + "'; the ports are: " + ports;
}

}  // namespace

Result<void> KubernetesList::put(Slices& slices, std::size_t& entries, EndpointSlice slice) const {
  const auto known = slices.find(slice.name);
  const std::size_t before = known == slices.end() ? 0 : known->second.endpoints.size();
  const std::size_t after = entries - before + slice.endpoints.size();
  if (after > entries_max || (known == slices.end() && slices.size() == KubernetesSlices::slices_max)) {
    return fail(Error::of_call(Initiator::peer, ErrorCode::limit_exceeded,
                               "the service has more than " + std::to_string(KubernetesSlices::slices_max) +
                                   " slices or " + std::to_string(entries_max) + " endpoints in them"));
  }
  entries = after;
  std::string name = slice.name;
  slices.insert_or_assign(std::move(name), std::move(slice));
  return {};
}

Result<void> KubernetesList::on_list(std::string_view body) {
  TRY(KubernetesSlices list, read_kubernetes_slices(body, zone_));
  Slices slices;
  std::size_t entries = 0;
  for (EndpointSlice& slice : list.slices) TRY(put(slices, entries, std::move(slice)));
  slices_ = std::move(slices);
  entries_ = entries;
  version_ = std::move(list.version);
  return {};
}

void KubernetesList::begin_watch() {
  partial_.clear();
  initial_.clear();
  initial_entries_ = 0;
}

Result<KubernetesList::News> KubernetesList::on_bytes(std::string_view bytes) {
  News news = News::none;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    bytes.remove_prefix(std::min(part.size() + 1, bytes.size()));
    if (partial_.size() + part.size() > event_bytes_max_) {
      version_.clear();
      return fail(Error::of_call(
          Initiator::peer, ErrorCode::limit_exceeded,
          "an event of the watch has more than message_bytes_max (" + std::to_string(event_bytes_max_) + ") bytes"));
    }
    if (end == std::string_view::npos) {
      partial_ += part;
      break;
    }
    std::string_view line = part;
    std::string whole;
    if (!partial_.empty()) {
      whole = std::exchange(partial_, {});
      whole += part;
      line = whole;
    }
    if (line.empty()) continue;
    Result<News> one = on_event(line);
    if (!one) {
      version_.clear();
      return one;
    }
    if (*one == News::expired) return one;
    if (news != News::changed && *one != News::none) news = *one;
  }
  return news;
}

Result<KubernetesList::News> KubernetesList::on_event(std::string_view line) {
  using Kind = KubernetesEvent::Kind;
  TRY(KubernetesEvent event, read_kubernetes_event(line, zone_));
  KubernetesObject& object = event.object;
  if (event.kind == Kind::error) {
    if (object.code == gone_status) {
      version_.clear();
      return News::expired;
    }
    return fail(Error::of_call(Initiator::peer, ErrorCode::unavailable,
                               "the watch has ended with " + std::to_string(object.code) + ": " + object.message));
  }
  if (event.kind == Kind::other) return News::none;
  if (object.version.empty()) {
    return fail(Error::of_call(Initiator::peer, ErrorCode::protocol_error,
                               "the API server has sent an event without a resourceVersion"));
  }
  const bool first = listing();
  Slices& slices = first ? initial_ : slices_;
  std::size_t& entries = first ? initial_entries_ : entries_;
  if (event.kind == Kind::changed) {
    TRY(put(slices, entries, std::move(object.slice)));
  } else if (event.kind == Kind::deleted) {
    if (const auto gone = slices.find(object.slice.name); gone != slices.end()) {
      entries -= gone->second.endpoints.size();
      slices.erase(gone);
    }
  } else if (first && object.initial_end) {
    slices_ = std::exchange(initial_, {});
    entries_ = std::exchange(initial_entries_, 0);
    version_ = std::move(object.version);
    return News::changed;
  }
  if (first) return News::none;
  version_ = std::move(object.version);
  return event.kind == Kind::bookmark ? News::confirmed : News::changed;
}

// Empty: the slice has no such port.
std::string KubernetesList::port_of(const EndpointSlice& slice) const {
  if (is_number(port_)) return port_;
  if (port_.empty() && slice.ports.size() == 1) return std::to_string(slice.ports.front().port);
  const auto named = std::ranges::find(slice.ports, port_, &SlicePort::name);
  return port_.empty() || named == slice.ports.end() ? std::string() : std::to_string(named->port);
}

Result<std::vector<Endpoint>> KubernetesList::endpoints() const {
  // Slices may repeat an endpoint while Kubernetes changes them: the one that is ready counts. A pod with addresses of
  // both families has one endpoint, that of IPv4.
  std::vector<SliceCandidate> candidates;
  std::unordered_map<std::string, std::size_t> known;
  std::size_t not_serving = 0;
  std::size_t without_port = 0;
  for (const bool ipv6 : {false, true}) {
    for (const auto& [name, slice] : slices_) {
      if (slice.ipv6 != ipv6) continue;
      not_serving += slice.not_serving;
      const std::string port = port_of(slice);
      if (port.empty()) {
        without_port += slice.endpoints.size();
        continue;
      }
      for (const SliceEndpoint& one : slice.endpoints) {
        std::string key = one.pod.empty() ? one.address + ":" + port : "pod " + one.pod;
        const auto [at, added] = known.emplace(std::move(key), candidates.size());
        if (added) {
          candidates.push_back({&one, port});
        } else if (one.ready && !candidates[at->second].endpoint->ready) {
          candidates[at->second] = {&one, port};
        }
      }
    }
  }
  if (candidates.empty()) {
    std::string why = "the service has no endpoint that is ready; " + std::to_string(not_serving) + " are not";
    if (without_port != 0) why = without_port_text(port_, shown_ports(slices_));
    return fail(Error::of_call(ErrorCode::unavailable, std::move(why)));
  }
  const bool any_ready = std::ranges::any_of(candidates, [](const auto& one) { return one.endpoint->ready; });
  if (any_ready) std::erase_if(candidates, [](const auto& one) { return !one.endpoint->ready; });
  // As kube-proxy: hints count only if all endpoints have them, and if one of them is for the own zone.
  const bool hints = !zone_.empty() &&
                     std::ranges::all_of(candidates, [](const auto& one) { return one.endpoint->hinted; }) &&
                     std::ranges::any_of(candidates, [](const auto& one) { return one.endpoint->for_own_zone; });
  std::vector<Endpoint> endpoints;
  endpoints.reserve(candidates.size());
  for (const auto& [endpoint, port] : candidates) {
    endpoints.push_back({.address = endpoint->address + ":" + port,
                         .priority = hints && !endpoint->for_own_zone ? 1U : 0U,
                         .zone = endpoint->zone});
  }
  // Changes of the order in slices are not changes.
  std::ranges::sort(endpoints, {}, &Endpoint::address);
  return endpoints;
}

}  // namespace hawser::cluster
