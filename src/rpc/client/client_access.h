#pragma once

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "hawser/client.h"
#include "rpc/client/client_state.h"

namespace hawser::detail {

// The parts of a Client that only the library uses.
struct ClientAccess {
  // For calls whose types are known at run time only.
  static ClientLink& link(const Client& client) noexcept { return *client.link_; }
  // The connection itself, without interceptors.
  static CallChannel* connection(const Client& client) noexcept { return client.state_->link.connection; }
  // Calls that the client accepts beside those in flight; 0 while its connection moves to another transport. Calls
  // whose interceptors wait count as in flight, since they are about to be sent.
  static std::size_t free_places(const Client& client) noexcept {
    const rpc::ClientState& state = *client.state_;
    const std::size_t places = state.free_places();
    if (places == 0 || !state.interception) return places;
    const std::size_t waiting = state.interception->calls_waiting();
    return std::min(places - std::min(places, waiting), state.interception->free_places());
  }
  static bool full(const Client& client) noexcept { return free_places(client) == 0; }
  // `call` is called when a client that was full may take a call again, or has lost its connection.
  // Null: nothing is called.
  static void at_place(Client& client, std::function<void()> call) { client.state_->at_place(std::move(call)); }
  // As Client::close(), with another reason. It also ends the calls whose interceptors wait.
  static void close(Client& client, std::string_view why) {
    client.state_->close(why);
    if (client.state_->interception) client.state_->interception->end(why);
  }
};

}  // namespace hawser::detail
