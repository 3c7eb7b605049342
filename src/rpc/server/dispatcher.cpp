#include "rpc/server/dispatcher.h"

#include <stdexcept>
#include <utility>

namespace hawser::rpc {

void Dispatcher::add(Method method) {
  const auto [at, added] = methods_.try_emplace(method.id);
  if (!added) {
    throw std::logic_error(
        at->second.name == method.name
            ? "hawser: handler '" + method.name +
                  "' is registered twice; instantiations of one function template and overloads share "
                  "a name, give each its own by method_name_override"
            : "hawser: handlers '" + at->second.name + "' and '" + method.name +
                  "' have the same name hash: give one another name by method_name_override");
  }
  at->second = std::move(method);
  at->second.index = static_cast<std::uint32_t>(all_.size());
  all_.push_back(&at->second);
  by_name_.emplace(at->second.name, &at->second);
}

const Dispatcher::Method* Dispatcher::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

void Dispatcher::add_routes(const void* protocol, const std::vector<std::string>& counted,
                            const std::vector<std::string>& others) {
  std::vector<Method>& routes = routes_[protocol];
  for (const std::vector<std::string>* const names : {&counted, &others}) {
    for (const std::string& name : *names) {
      Method& route = routes.emplace_back();
      route.name = name;
      route.index = UINT32_MAX;  // MethodTable::of() has counters for it that nobody reads.
    }
  }
  for (std::size_t i = 0; i < counted.size(); ++i) {
    routes[i].index = static_cast<std::uint32_t>(all_.size());
    all_.push_back(&routes[i]);
  }
}

std::span<const Dispatcher::Method> Dispatcher::routes_of(const void* protocol) const noexcept {
  const auto found = routes_.find(protocol);
  return found == routes_.end() ? std::span<const Method>() : std::span<const Method>(found->second);
}

}  // namespace hawser::rpc
