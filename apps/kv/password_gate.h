#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "hawser/interceptor.h"
#include "hawser/loop.h"
#include "hawser/server.h"

namespace hawser::kv {

class Service;
class Store;

// The password that every client of a server needs, whatever its protocol. Thread-safe.
class PasswordGate {
 public:
  // The only user.
  static constexpr std::string_view user = "default";
  // The connection of a client that has sent so many wrong passwords ends.
  static constexpr unsigned wrong_max = 10;

  // `password` is one that read_password() accepts.
  explicit PasswordGate(std::string password) : password_(std::move(password)) {}
  PasswordGate(const PasswordGate&) = delete;
  PasswordGate& operator=(const PasswordGate&) = delete;
  ~PasswordGate();

  // The time depends on the length of `given` only.
  bool matches(std::string_view given) const noexcept;
  void count_wrong() noexcept { wrong_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t wrong() const noexcept { return wrong_.load(std::memory_order_relaxed); }
  // Writes that the connection of a client ends, at most once a second.
  void log_end(Loop& loop, const std::string& peer) noexcept;

  // A call of a client of Hawser has a wrong password. Ends its connection if it is one too many.
  void on_wrong_call(IncomingCall& call);

 private:
  // Connections with wrong passwords that are remembered. If there are more, one of them is forgotten.
  static constexpr std::size_t remembered_max = 1024;

  std::string password_;
  std::atomic<std::uint64_t> wrong_{0};
  std::atomic<std::int64_t> log_second_{-1};
  std::mutex mutex_;  // Guards the next member.
  // Wrong passwords by connection. A connection may have the address of an earlier one: then it has fewer attempts.
  std::unordered_map<const void*, unsigned> by_connection_;
};

// Lets a server serve the store to clients of Redis and to clients of Hawser. With a gate all of them need its
// password, for every method. `store` and `service` outlive the server. Called once, before the server starts.
void attach_store(Server& server, Store& store, Service& service, std::shared_ptr<PasswordGate> gate);

}  // namespace hawser::kv
