#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hawser/detail/served_method.h"

namespace hawser::rpc {

// Maps method ids and names to a server's methods. Filled before the server starts; all its loops read it afterwards.
class Dispatcher {
 public:
  using Method = detail::ServedMethod;

  // Throws std::logic_error if the id is in use, by the same function or by another whose name has the same hash.
  void add(Method method);
  // Returns null if there is no such method.
  const Method* find(std::uint32_t id) const noexcept {
    const auto found = methods_.find(id);
    return found == methods_.end() ? nullptr : &found->second;
  }
  const Method* find(std::string_view name) const noexcept;

  // Adds the names of what a protocol serves beside methods, such as the paths of HTTP. find() does not return them.
  // Those of `counted` have the counters of methods. Called once for each protocol, before the server starts.
  void add_routes(const void* protocol, const std::vector<std::string>& counted,
                  const std::vector<std::string>& others);
  // Returns those of the protocol: first the counted ones, then the others.
  std::span<const Method> routes_of(const void* protocol) const noexcept;

  // The methods in the order of their registration, and the counted routes.
  const std::vector<const Method*>& all() const noexcept { return all_; }

  // Calls `change` for each method, which may replace its handler.
  template <class Change>
  void change(Change change) {
    for (auto& [id, method] : methods_) change(method);
  }
  // Calls `visit` for each method.
  template <class Visit>
  void each(Visit visit) const {
    for (const auto& [id, method] : methods_) visit(method);
  }

 private:
  std::unordered_map<std::uint32_t, Method> methods_;
  std::unordered_map<std::string_view, const Method*> by_name_;  // The names lie in methods_.
  std::vector<const Method*> all_;                               // Likewise, and in routes_.
  std::unordered_map<const void*, std::vector<Method>> routes_;
};

}  // namespace hawser::rpc
