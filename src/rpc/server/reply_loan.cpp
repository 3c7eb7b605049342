#include "hawser/detail/context_access.h"
#include "hawser/loan.h"
#include "hawser/loop.h"
#include "rpc/server/server_session.h"
#include "transport/common/loan_memory.h"

namespace hawser {

Buffer loan(const Context& context, std::size_t bytes) {
  Buffer loaned;
  // An offloaded handler runs on another thread than its connection.
  if (Loop::current() == &context.loop()) {
    auto* const session = dynamic_cast<rpc::ServerSession*>(&detail::ContextAccess::reply_sink(context).origin());
    if (session != nullptr && !session->closed()) loaned = transport::loan_of(session->connection(), bytes);
  }
  return loaned.empty() ? Buffer::allocate(bytes) : loaned;
}

}  // namespace hawser
