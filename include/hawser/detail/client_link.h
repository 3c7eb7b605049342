#pragma once

namespace hawser {
class Client;

namespace detail {

struct ClientLink;
// The connection of a client, for CallOperations whose types are known at run time only: bindings of other languages.
// Valid as long as the client.
ClientLink& link_of(const Client& client) noexcept;

}  // namespace detail
}  // namespace hawser
