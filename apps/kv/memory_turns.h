#pragma once

#include <chrono>
#include <cstddef>
#include <stop_token>
#include <unordered_map>

#include "hawser/detail/receive_account.h"
#include "hawser/error.h"
#include "hawser/sync.h"
#include "hawser/task.h"
#include "hawser/timer.h"
#include "rpc/session/work_charge.h"

namespace hawser::kv {

// Calls of clients of Hawser that wait for memory for values. Of the calls of one connection, the one that has waited
// longest looks for it. Loop's thread only.
class MemoryTurns {
 public:
  static constexpr Duration interval = std::chrono::milliseconds(5);

  // Charges `bytes`. Waits until the account has so many left, or fails when `token` is stopped. More than `needed`
  // may be more than the account can ever have: less is charged for it, at least `needed`, if much memory is free.
  Task<Result<void>> charge(rpc::WorkCharge& charge, hawser::detail::ReceiveAccount& account, std::size_t bytes,
                            std::size_t needed, std::stop_token token);

 private:
  struct Turn {
    Mutex mutex;
    std::size_t calls = 0;
  };
  using Turns = std::unordered_map<const hawser::detail::ReceiveAccount*, Turn>;
  // A call that waits.
  class Place;

  Turns turns_;
};

}  // namespace hawser::kv
