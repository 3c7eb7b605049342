#include "rpc/negotiation/path_health.h"

#include <algorithm>
#include <utility>

namespace hawser::rpc {

namespace {

Time later(Time now, Duration pause) noexcept { return pause < Time::max() - now ? now + pause : Time::max(); }

// Twice `pause`, or `most`.
Duration longer(Duration pause, Duration most) noexcept { return pause < most / 2 ? 2 * pause : most; }

}  // namespace

PathHealth::Path& PathHealth::find(std::string_view name) {
  const auto at = std::find_if(paths_.begin(), paths_.end(), [&](const Path& path) { return path.name == name; });
  if (at != paths_.end()) return *at;
  paths_.push_back({.name = std::string(name)});
  return paths_.back();
}

void PathHealth::broke(std::string_view name, std::string reason, Time now, const TransportOptions& options) {
  Path& path = find(name);
  const bool held = path.taken != Time{} && now - path.taken >= options.retry_max;
  path.pause = path.pause == Duration{} || held ? options.retry_min : longer(path.pause, options.retry_max);
  path.again = later(now, path.pause);
  path.broken = true;
  path.reason = "it broke: " + std::move(reason);
}

void PathHealth::tried_in_vain(Time now, const TransportOptions& options) {
  for (Path& path : paths_) {
    if (!path.broken || path.again > now) continue;
    path.pause = longer(path.pause, options.retry_max);
    path.again = later(now, path.pause);
  }
}

void PathHealth::carries(std::string_view name, Time now) {
  if (name.empty()) return;
  Path& path = find(name);
  path.taken = now;
  path.broken = false;
}

std::vector<TransportNotTaken> PathHealth::avoided(Time now) const {
  std::vector<TransportNotTaken> all;
  for (const Path& path : paths_) {
    if (now < path.again) all.push_back({path.name, path.reason});
  }
  return all;
}

Time PathHealth::next_try() const noexcept {
  Time first = Time::max();
  for (const Path& path : paths_) {
    if (path.broken) first = std::min(first, path.again);
  }
  return first;
}

}  // namespace hawser::rpc
