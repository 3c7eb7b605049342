#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/lines_per_second.h"
#include "hawser/interceptor.h"
#include "hawser/loop.h"
#include "hawser/server.h"
#include "heap/secret_memory.h"

namespace hawser::kv {

class Service;
class Store;

// The passwords of a server, of which every client needs one, whatever its protocol. Thread-safe.
class PasswordGate {
 public:
  // The only user.
  static constexpr std::string_view user = "default";
  // The connection of a client that has sent so many wrong passwords ends.
  static constexpr unsigned wrong_max = 10;
  // Passwords that are accepted at the same time.
  static constexpr std::size_t passwords_max = 2;
  // A refused request of a client of Hawser of more bytes counts as large_counts wrong passwords, because it was
  // received before it could be refused.
  static constexpr std::size_t small_bytes_max = 64 * 1024;
  static constexpr unsigned large_counts = 5;

  // Passwords are those that read_password() accepts.
  explicit PasswordGate(std::string password);
  explicit PasswordGate(std::vector<std::string> passwords);
  PasswordGate(const PasswordGate&) = delete;
  PasswordGate& operator=(const PasswordGate&) = delete;

  // Replaces the passwords. Calls of clients of Hawser need one of the new ones from now on. Connections of clients of
  // Redis that have authenticated stay. 1 to passwords_max passwords. The memory of the old ones is kept and wiped in
  // the end, because other threads may compare them.
  void set_passwords(std::vector<std::string> passwords);
  // The time depends on the length of `given` and on the number of passwords.
  bool matches(std::string_view given) const noexcept;
  void count_wrong() noexcept { wrong_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t wrong() const noexcept { return wrong_.load(std::memory_order_relaxed); }
  // Writes that the connection of a client ends, at most once a second.
  void log_end(Loop& loop, const std::string& peer) noexcept;

  // A call of a client of Hawser has a wrong password, or none. Ends its connection if it is one too many.
  void on_refused_call(IncomingCall& call, bool wrong);

 private:
  using Passwords = std::vector<SecretText>;

  std::mutex mutex_;                                  // Guards the next member.
  std::vector<std::unique_ptr<Passwords>> all_;       // The present ones, and all before them.
  std::atomic<const Passwords*> passwords_{nullptr};  // The last one of all_.
  std::atomic<std::uint64_t> wrong_{0};
  LinesPerSecond log_lines_;
};

// Lets a server serve the store to clients of Redis and to clients of Hawser. With a gate all of them need its
// password, for every method. `store` and `service` outlive the server. Called once, before the server starts.
void attach_store(Server& server, Store& store, Service& service, std::shared_ptr<PasswordGate> gate);

}  // namespace hawser::kv
