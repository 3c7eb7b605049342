#pragma once

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
  // True if the connection has as many calls in flight as the client and the server allow.
  static bool full(const Client& client) noexcept { return client.state_->session && client.state_->session->full(); }
  // Calls that the connection accepts beside those in flight.
  static std::size_t free_places(const Client& client) noexcept {
    return client.state_->session ? client.state_->session->free_places() : 0;
  }
  // `call` is called when a client that was full may take a call again, or has lost its connection.
  static void at_place(Client& client, std::function<void()> call) { client.state_->place_freed = std::move(call); }
  static const std::shared_ptr<transport::Network>& network(const Client& client) noexcept {
    return client.state_->network;
  }
};

}  // namespace hawser::detail
