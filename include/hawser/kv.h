#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hawser/error.h"
#include "hawser/task.h"
#include "hawser/time.h"

namespace hawser {
class Client;
class ClientPool;
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

// The operations of the store over a Client or a ClientPool, which outlives this object and its operations. Used from
// that client's thread. Several operations may be in progress. An operation that has begun must end before this object
// is destroyed.
// Keys have at most 8 KiB, values as much as the server's --value-max. A lifetime is rounded up to milliseconds; empty:
// the entry does not expire.
// Errors: `invalid_argument` for a key or value that is too long or a lifetime that is not positive, `limit_exceeded`
// if the server has no memory for a write, `unavailable` while the server starts or if its log cannot be written, and
// those of calls (docs/guide/07-errors.md).
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

 private:
  friend struct KvClientAccess;
  struct State;
  explicit KvClient(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace hawser::kv
