#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "hawser/detail/reply_sink.h"

namespace hawser::rpc {

// Maps method ids to a server's methods. Filled before the server starts; all its loops read it afterwards.
class Dispatcher {
 public:
  struct Method {
    std::uint32_t signature = 0;
    std::string name;
    std::unique_ptr<detail::Handler> handler;
  };

  // Throws std::logic_error if the id is in use, by the same function or by another whose name has the same hash.
  void add(std::uint32_t id, Method method);
  // Returns null if there is no such method.
  const Method* find(std::uint32_t id) const noexcept {
    const auto found = methods_.find(id);
    return found == methods_.end() ? nullptr : &found->second;
  }

 private:
  std::unordered_map<std::uint32_t, Method> methods_;
};

}  // namespace hawser::rpc
