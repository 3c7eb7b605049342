#include "hawser/detail/client_link.h"

#include "rpc/client/client_access.h"

namespace hawser::detail {

ClientLink& link_of(const Client& client) noexcept { return ClientAccess::link(client); }

}  // namespace hawser::detail
