#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "hawser/client_pool.h"
#include "hawser/reply.h"

namespace hawser::detail {

// The connections of a ClientPool, for a client that chooses among pools and makes calls again by its own rules.
struct PoolAccess {
  // A connection that accepts another call now; null if there is none. Opens another connection if that is useful.
  static std::shared_ptr<Client> try_acquire(ClientPool& pool);
  // Waits for such a connection. With `options`, its timeout and token end the wait.
  static Task<Result<std::shared_ptr<Client>>> acquire(ClientPool& pool, std::optional<CallOptions> options = {});
  // Number of connections to a server that is not stopping.
  static std::size_t usable(const ClientPool& pool) noexcept;
  // As the destructor: `why`, a literal, is the error of all calls.
  static void end(ClientPool& pool, const char* why);
};

}  // namespace hawser::detail
