#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "hawser/detail/receive_account.h"
#include "kv/transaction.h"
#include "pipe/held_charge.h"

namespace hawser::kv {

// A client of Redis prepares EXEC here: it keeps the commands since MULTI and the keys that the client watches. Their
// memory is charged to the connection. Loop's thread only.
class ClientTransaction {
 public:
  // `account` outlives this.
  explicit ClientTransaction(hawser::detail::ReceiveAccount& account) noexcept : charge_(account) {}
  ClientTransaction(const ClientTransaction&) = delete;
  ClientTransaction& operator=(const ClientTransaction&) = delete;

  // ---- MULTI ----
  bool open() const noexcept { return multi_ != nullptr; }
  bool failed() const noexcept { return failed_; }
  void begin(std::shared_ptr<Transaction> empty) noexcept {
    multi_ = std::move(empty);
    failed_ = false;
  }
  // EXEC will execute nothing. Without an open transaction it has no effect.
  void fail() noexcept {
    if (open()) failed_ = true;
  }
  // Keeps a command for EXEC. The commands take at most `bytes_max`. Returns the error of one that is refused: the
  // transaction has failed then.
  std::optional<std::string> add(const Command& command, Arguments arguments, std::size_t bytes_max);
  // The commands since MULTI, for their execution. Their charge stays until end().
  std::shared_ptr<Transaction> take() noexcept { return std::exchange(multi_, nullptr); }
  // `executing`: a transaction that take() has returned is not complete, and its charge stays.
  void end(bool executing) noexcept;

  // ---- WATCH ----
  // Null: no key is watched.
  const std::shared_ptr<WatchedKeys>& watched() const noexcept { return watched_; }
  // Adds keys, which the shards do not watch yet. False, without an effect: they are too many, or there is no memory.
  bool watch(const Store& store, Arguments keys);
  // `home`: the site of the connection. It may be null while no key is watched.
  void unwatch(StoreSite* home);

  // The connection has ended: nothing is charged from here on.
  void release() noexcept {
    charge_.set_always(0);
    watched_bytes_ = 0;
  }

 private:
  std::shared_ptr<Transaction> multi_;  // Since MULTI; null: none.
  bool failed_ = false;
  std::shared_ptr<WatchedKeys> watched_;
  std::size_t watched_bytes_ = 0;
  pipe::HeldCharge charge_;  // For these, the commands, and those that take() has returned.
};

}  // namespace hawser::kv
