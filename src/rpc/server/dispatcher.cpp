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

}  // namespace hawser::rpc
