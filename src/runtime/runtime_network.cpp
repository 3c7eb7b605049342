#include "runtime/runtime_network.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "hawser/runtime.h"
#include "hawser/transport/factory.h"
#include "runtime/transports.h"

namespace hawser::runtime {

// A transport may keep objects that it cannot release yet, such as workers that UCX still uses. They stay reachable in
// the process's runtime, and the last user releases them.
RuntimeNetwork::~RuntimeNetwork() {
  for (auto& [name, kept] : kept_) {
    if (kept.use_count() <= 1) continue;
    static_cast<RuntimeNetwork&>(*Runtime::process_default()->network()).adopt(std::move(kept));
  }
}

void RuntimeNetwork::adopt(std::shared_ptr<void> kept) {
  const std::lock_guard lock(mutex_);
  std::erase_if(adopted_, [](const auto& one) { return one.use_count() == 1; });
  adopted_.push_back(std::move(kept));
}

std::vector<std::string_view> RuntimeNetwork::transport_names() const { return built_in_names(); }

std::uint64_t RuntimeNetwork::in_use() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint64_t>(
      std::ranges::count_if(paths_, [](const InUse& one) { return !one.path.expired(); }));
}

std::vector<std::shared_ptr<transport::Transport>> RuntimeNetwork::transports(const TransportOptions& options) {
  const auto rank = [](const TransportSpec& one) { return one.factory().traits().rank; };
  std::vector<TransportSpec> wanted;
  for (const TransportSpec& one : options.enabled) {
    wanted.insert(std::ranges::upper_bound(wanted, rank(one), {}, rank), one);
  }
  std::vector<std::shared_ptr<transport::Transport>> all;
  std::vector<std::string> lines;
  {
    const std::lock_guard lock(mutex_);
    for (const TransportSpec& one : wanted) {
      if (std::shared_ptr<transport::Transport> path = get(one, lines)) all.push_back(std::move(path));
    }
  }
  for (const std::string& line : lines) log_(LogLevel::warning, "runtime", line);
  return all;
}

std::shared_ptr<transport::Transport> RuntimeNetwork::get(const TransportSpec& wanted,
                                                          std::vector<std::string>& lines) {
  std::erase_if(paths_, [](const InUse& one) { return one.path.expired(); });
  const transport::Traits& traits = wanted.factory().traits();
  std::string differs;
  for (const InUse& one : paths_) {
    if (one.spec.name() != traits.name) continue;
    std::string difference = wanted.factory().difference(one.spec.factory());
    // The last user may release the transport at this moment, on another thread.
    std::shared_ptr<transport::Transport> found = one.path.lock();
    if (found == nullptr) continue;
    if (difference.empty()) return found;
    if (differs.empty()) differs = std::move(difference);
  }
  const auto at = kept_.find(traits.name);
  std::shared_ptr<void>& kept = at != kept_.end() ? at->second : kept_[std::string(traits.name)];
  std::shared_ptr<transport::Transport> made = wanted.factory().make(kept);
  if (made == nullptr) return nullptr;
  if (made->name() != traits.name) {
    throw std::logic_error("hawser: the factory of transport \"" + std::string(traits.name) + "\" made one named \"" +
                           std::string(made->name()) + "\": both must have the same name");
  }
  paths_.push_back({wanted, made});
  if (!differs.empty() && !traits.shared.empty()) {
    not_shared_.fetch_add(1, std::memory_order_relaxed);
    std::string line =
        std::string(traits.name) + " is used with different options in this process: " + std::string(traits.shared) +
        " are not shared, because " + differs + " differs (RuntimeCounters::transports_not_shared counts this)";
    if (logged_.size() < lines_max && logged_.insert(line).second) lines.push_back(std::move(line));
  }
  return made;
}

}  // namespace hawser::runtime
