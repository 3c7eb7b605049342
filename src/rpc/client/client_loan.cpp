#include "hawser/loan.h"
#include "rpc/client/client_access.h"
#include "rpc/client/client_session.h"
#include "transport/common/loan_memory.h"

namespace hawser {

Buffer loan(const Client& client, std::size_t bytes) {
  Buffer loaned;
  auto* const session = dynamic_cast<rpc::ClientSession*>(detail::ClientAccess::connection(client));
  if (session != nullptr && !session->closed()) loaned = transport::loan_of(session->connection(), bytes);
  return loaned.empty() ? Buffer::allocate(bytes) : loaned;
}

}  // namespace hawser
