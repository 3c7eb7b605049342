#include "kv/memory_turns.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "hawser/loop.h"

namespace hawser::kv {
namespace {

bool charge_now(rpc::WorkCharge& charge, hawser::detail::ReceiveAccount& account, std::size_t bytes,
                std::size_t needed) {
  if (charge.add(account, bytes, 0)) return true;
  while (bytes > needed && account.plenty(0)) {
    bytes = std::max(bytes / 2, needed);
    if (charge.add(account, bytes, 0)) return true;
  }
  return false;
}

}  // namespace

class MemoryTurns::Place {
 public:
  Place(Turns& turns, const hawser::detail::ReceiveAccount& account) : turns_(turns), account_(account) {
    ++turns_[&account_].calls;
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    const auto found = turns_.find(&account_);
    if (--found->second.calls == 0) turns_.erase(found);
  }
  Mutex& mutex() const { return turns_.find(&account_)->second.mutex; }

 private:
  Turns& turns_;
  const hawser::detail::ReceiveAccount& account_;
};

Task<Result<void>> MemoryTurns::charge(rpc::WorkCharge& charge, hawser::detail::ReceiveAccount& account,
                                       std::size_t bytes, std::size_t needed, std::stop_token token) {
  if (!turns_.contains(&account) && charge_now(charge, account, bytes, needed)) co_return Result<void>();
  const Place place(turns_, account);
  CO_TRY(const Permit permit, co_await place.mutex().lock(token));
  while (!charge_now(charge, account, bytes, needed)) {
    CO_TRY(co_await Loop::current()->sleep(interval, token));
  }
  co_return Result<void>();
}

}  // namespace hawser::kv
