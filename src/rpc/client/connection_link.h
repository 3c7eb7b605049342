#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "hawser/detail/call_channel.h"

namespace hawser::rpc {

class ClientInterception;

// The link of a client of any protocol: calls go to its connection, or to interceptors that stand before it.
struct ConnectionLink : detail::ClientLink {
  ConnectionLink(const std::string& to, std::string_view of) : address(to), protocol(of) {}

  // Null: there is no connection any more.
  void set(detail::CallChannel* to) noexcept {
    connection = to;
    channel = to != nullptr && front != nullptr ? front : to;
  }

  const std::string& address;       // The argument of the last connect().
  const std::string_view protocol;  // A literal.
  detail::CallChannel* connection = nullptr;
  // The interceptors of the client, while it exists. Null without interceptors.
  detail::CallChannel* front = nullptr;
  std::weak_ptr<ClientInterception> interception;
};

}  // namespace hawser::rpc
