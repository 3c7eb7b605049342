#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "hawser/client.h"
#include "rpc/client/client_state.h"

namespace hawser::detail {

// Lets a client of another protocol make its calls through the functions of a Client that is never connected.
struct ClientAccess {
  // `link` must stay valid as long as the client.
  static void set_link(Client& client, rpc::ConnectionLink& link) noexcept {
    client.link_ = &link;
    if (client.state_->interception) client.state_->interception->attach(link);
  }
  // The connection of a client of any protocol, for calls whose types are known at run time only.
  static ClientLink& link(const Client& client) noexcept { return *client.link_; }
  // The connection itself, without interceptors.
  static CallChannel* connection(const Client& client) noexcept {
    return static_cast<const rpc::ConnectionLink&>(*client.link_).connection;
  }
  // Calls that the client accepts beside those in flight; 0 while its connection moves to another transport. Calls
  // whose interceptors wait count as in flight, since they are about to be sent.
  static std::size_t free_places(const Client& client) noexcept {
    const Client::State& state = *client.state_;
    if (!state.session) return 0;
    const std::size_t places = state.session->free_places();
    if (!state.interception) return places;
    const std::size_t waiting = state.interception->calls_waiting();
    return std::min(places - std::min(places, waiting), state.interception->free_places());
  }
  static bool full(const Client& client) noexcept { return free_places(client) == 0; }
  // `call` is called when a client that was full may take a call again, or has lost its connection.
  static void at_place(Client& client, std::function<void()> call) {
    client.state_->place_freed = std::move(call);
    client.state_->watch_interception();
  }
  static const std::shared_ptr<transport::Network>& network(const Client& client) noexcept {
    return client.state_->network;
  }
};

}  // namespace hawser::detail
