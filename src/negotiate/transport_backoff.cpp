#include "negotiate/transport_backoff.h"

#include <algorithm>
#include <utility>

namespace hawser::negotiate {

namespace {

Time later(Time now, Duration pause) noexcept { return pause < Time::max() - now ? now + pause : Time::max(); }

Duration at_least_min(Duration pause) noexcept { return std::max(pause, TransportBackoff::pause_min); }

// Returns twice `pause`, at most `most`.
Duration longer(Duration pause, Duration most) noexcept { return at_least_min(pause < most / 2 ? 2 * pause : most); }

}  // namespace

TransportBackoff::Entry& TransportBackoff::find(std::string_view name) {
  const auto at = std::find_if(transports_.begin(), transports_.end(),
                               [&](const Entry& transport) { return transport.name == name; });
  if (at != transports_.end()) return *at;
  transports_.push_back({.name = std::string(name)});
  return transports_.back();
}

void TransportBackoff::broke(std::string_view name, std::string reason, Time now, const TransportOptions& options) {
  Entry& transport = find(name);
  const bool held = transport.taken != Time{} && now - transport.taken >= options.retry_max;
  transport.pause = transport.pause == Duration{} || held ? at_least_min(options.retry_min)
                                                          : longer(transport.pause, options.retry_max);
  transport.again = later(now, transport.pause);
  transport.broken = true;
  transport.reason = "it broke: " + std::move(reason);
}

bool TransportBackoff::ended(std::string_view name, const std::string& reason, Time now,
                             const TransportOptions& options) {
  Entry& transport = find(name);
  const bool held = now - transport.taken >= options.retry_max;
  transport.ends = held ? 0 : transport.ends + 1;
  if (transport.ends < ends_max) return false;
  transport.ends = 0;
  broke(name, "the peer closed " + std::to_string(ends_max) + " connections over it soon after they began: " + reason,
        now, options);
  return true;
}

void TransportBackoff::tried_in_vain(Time now, const TransportOptions& options) {
  for (Entry& transport : transports_) {
    if (!transport.broken || transport.again > now) continue;
    transport.pause = longer(transport.pause, options.retry_max);
    transport.again = later(now, transport.pause);
  }
}

void TransportBackoff::carries(std::string_view name, Time now) {
  if (name.empty()) return;
  Entry& transport = find(name);
  transport.taken = now;
  transport.broken = false;
}

std::vector<TransportFallback> TransportBackoff::avoided(Time now) const {
  std::vector<TransportFallback> all;
  for (const Entry& transport : transports_) {
    if (now < transport.again) all.push_back({transport.name, transport.reason});
  }
  return all;
}

Time TransportBackoff::next_try() const noexcept {
  Time first = Time::max();
  for (const Entry& transport : transports_) {
    if (transport.broken) first = std::min(first, transport.again);
  }
  return first;
}

}  // namespace hawser::negotiate
