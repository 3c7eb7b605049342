#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/error.h"
#include "hawser/kv.h"
#include "hawser/memory.h"
#include "hawser/task.h"

namespace hawser {
class Server;
}

namespace hawser::kv {

class Store;

// The index of one shard, for readers. docs/kv.md has its layout.
struct ShardIndex {
  std::uint32_t generation = 0;  // 0: the shard has no index. All other fields are 0 then.
  std::uint64_t buckets = 0;
  std::uint64_t ring_bytes = 0;
  RemoteRegion region;
  std::uint64_t identity = 0;   // The first word of the index.
  std::int32_t descriptor = 0;  // The server's descriptor of the memory.
};

// The places in which clients find entries.
struct Directory {
  std::uint64_t secret_first = 0;  // Both are the HashSecret of keys.
  std::uint64_t secret_second = 0;
  std::int32_t process = 0;        // Process id of the server, as the server sees it.
  std::vector<ShardIndex> shards;  // A key's shard is shard_of(hash, shards.size()).
};

// A value, and the generation of its shard's index, by which readers notice that their directory is old.
struct Reading {
  std::optional<Value> value;
  std::uint32_t generation = 0;
};

// The methods of the store for clients of Hawser. Keys and values are bytes. Times to live are milliseconds; 0: the
// entry does not expire. Errors: `invalid_argument` for a key or a value that is too long, `limit_exceeded` if
// there is no memory for a write, `unavailable` while the server starts. A read waits until there is memory to copy the
// values.
class Service {
 public:
  explicit Service(Store& store) noexcept : store_(store) {}

  Task<Result<std::optional<Value>>> get(Context& context, std::string_view key);
  // The same for a client that has not found the key in the index. An entry that the index can have is added to it.
  Task<Result<Reading>> read(Context& context, std::string_view key);
  // Makes the indexes if there are none. Fails with `permission_denied` if the messages of the caller's connection are
  // signed or sealed: what a client reads by itself is not.
  Task<Result<Directory>> directory(Context& context);
  // In the order of the keys. Each value is read at its own time.
  Task<Result<std::vector<std::optional<Value>>>> get_many(Context& context, std::vector<std::string> keys);
  // Returns the new version.
  Task<Result<std::uint64_t>> set(Context& context, std::string_view key, std::string_view value,
                                  std::int64_t lifetime_ms);
  // Sets the value if the key has that version; 0: if the key does not exist. Returns the new version, or nothing if
  // the key has another version. Keeps no earlier expiry.
  Task<Result<std::optional<std::uint64_t>>> compare_and_set(Context& context, std::string_view key,
                                                             std::uint64_t version, std::string_view value,
                                                             std::int64_t lifetime_ms);
  // Returns false if the key did not exist.
  Task<Result<bool>> remove(Context& context, std::string_view key);
  // Adds to the decimal number that is the value, 0 if the key does not exist. Returns the sum.
  Task<Result<std::int64_t>> increment(Context& context, std::string_view key, std::int64_t by);

 private:
  friend void register_service(Server& server, Service& service);

  Store& store_;
  Server* server_ = nullptr;
};

// Registers the methods. `service` outlives the server.
void register_service(Server& server, Service& service);

}  // namespace hawser::kv
