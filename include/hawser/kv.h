#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/task.h"
#include "hawser/time.h"

namespace hawser {
class Client;
class ClientPool;
class OutgoingCall;
namespace detail {
template <class CallInfo>
class Interceptor;
}  // namespace detail
}  // namespace hawser

// The client of the key-value store hawser-kv. Component hawser::kv. docs/kv.md describes the store.
namespace hawser::kv {

class OneSidedReader;
struct KvClientAccess;

// A value and its version, which changes with each write of the key and never repeats.
struct Value {
  std::string bytes;
  std::uint64_t version = 0;
};

// How KvClient::get() reads.
enum class ReadPolicy : std::uint8_t {
  direct,  // Without a call where the transport allows it: over shared memory and RDMA. Otherwise by a call.
  calls,   // By a call. The server counts each of them as a use of the entry when it evicts others.
};

// The limit of read_password() and send_password(), in bytes.
inline constexpr std::size_t password_bytes_max = 1024;

// Reads the password of a server from a file: one line of text without control characters, and without a space at its
// begin or end. Fails with `invalid_argument` if it is not that, or cannot be read. No error text has the password.
// Blocks the calling thread.
Result<std::string> read_password(const std::string& file);

// Sends the password with each call of a client. For ClientOptions::interceptors, also of a ClientPool:
//   options.interceptors.push_back(hawser::kv::send_password(*hawser::kv::read_password("kv.password")));
// The password travels in plain text, unless ClientOptions::security protects the connection. Throws
// std::invalid_argument if it is not a password that read_password() could return.
std::shared_ptr<detail::Interceptor<OutgoingCall>> send_password(std::string password);

// The operations of the store over a Client or a ClientPool, which outlives this object and its operations. Used from
// that client's thread. Several operations may be in progress. An operation that has begun must end before this object
// is destroyed.
// Keys have at most 8 KiB, values as much as the server's --value-max. A lifetime is rounded up to milliseconds; empty:
// the entry does not expire.
// Errors: `invalid_argument` for a key or value that is too long or a lifetime that is not positive, `limit_exceeded`
// if the server has no memory for a write, `unavailable` while the server starts or if its log cannot be written,
// `unauthenticated` if the server has a password and the client does not send it (send_password()), and those of calls
// (docs/guide/07-errors.md).
class KvClient {
 public:
  explicit KvClient(Client& calls, ReadPolicy reads = ReadPolicy::direct);
  explicit KvClient(ClientPool& calls);  // Every operation is a call.
  KvClient(KvClient&&) noexcept;
  KvClient& operator=(KvClient&&) noexcept;
  ~KvClient();

  // The value; nothing if the key does not exist. A direct read returns a value that was current between its begin and
  // its end.
  Task<Result<std::optional<Value>>> get(std::string key);
  // In the order of the keys. Each value is read at its own time.
  Task<Result<std::vector<std::optional<Value>>>> get_many(std::vector<std::string> keys);
  // Returns the new version.
  Task<Result<std::uint64_t>> set(std::string key, std::string value, std::optional<Duration> lifetime = {});
  // Sets the value if the key has that version; 0: if the key does not exist. Returns the new version, or nothing if
  // the key has another version. Keeps no earlier expiry.
  Task<Result<std::optional<std::uint64_t>>> compare_and_set(std::string key, std::uint64_t version, std::string value,
                                                             std::optional<Duration> lifetime = {});
  // Returns false if the key did not exist.
  Task<Result<bool>> remove(std::string key);
  // Adds to the decimal number that is the value, 0 if the key does not exist. Returns the sum.
  Task<Result<std::int64_t>> increment(std::string key, std::int64_t by);

  // The number of values that get() has read without a call.
  std::uint64_t direct_reads() const noexcept;
  // Why get() reads by calls over shared memory or RDMA, such as the protection of the connection: the last error of
  // the server when it was asked for its index. Empty if there is none. Valid until the next get().
  std::string_view calls_reason() const noexcept;

 private:
  friend struct KvClientAccess;
  struct State;
  explicit KvClient(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace hawser::kv
