#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/client.h"
#include "hawser/memory.h"
#include "hawser/task.h"
#include "kv/index_layout.h"
#include "kv/key_hash.h"
#include "kv/service.h"

namespace hawser::kv {

// How a client reads entries without calls.
enum class ReadBy : std::uint8_t {
  automatic,  // By mapped memory over shared memory, by the device over RDMA, by calls over anything else.
  memory,     // By RemoteMemory over every transport, also where the server's loop serves it. For tests.
};

// Reads memory of the server: RemoteMemory, or a replacement in tests.
using ReadMemory = std::function<Task<Result<void>>(RemoteRegion region, std::uint64_t offset, MutableBytes into)>;

struct ReaderOptions {
  ReadBy by = ReadBy::automatic;
  // One in so many reads is a call, so that the server's eviction knows that the entry is in use. 0: none.
  unsigned calls_every = 128;
  ReadMemory read_memory = {};  // Empty: RemoteMemory.
  bool verify_crc = true;       // False only in a test of what the checksum prevents.
};

// The part of KvClient that finds entries in the server's index without calls. Nothing that the server sends or writes
// into its index makes it access memory that it must not access. Every function runs on the client's loop.
class OneSidedReader {
 public:
  // A directory is obtained again after this time. The memory of a retired index stays exposed for longer.
  static constexpr Duration directory_age_max = std::chrono::seconds(30);
  // Reads in progress at most; further ones are calls.
  static constexpr std::size_t reads_max = 64;
  static constexpr std::size_t shards_max = 4096;

  struct Counters {
    std::uint64_t found = 0;        // Reads without a call.
    std::uint64_t absent = 0;       // Cells that were missing, torn or moved.
    std::uint64_t failed = 0;       // Accesses that failed.
    std::uint64_t directories = 0;  // Calls for the directory.
  };

  // `link` outlives this object.
  explicit OneSidedReader(Client& link, ReaderOptions options = {});
  OneSidedReader(const OneSidedReader&) = delete;
  OneSidedReader& operator=(const OneSidedReader&) = delete;
  ~OneSidedReader();

  // The value of the key in mapped memory. Nothing: call read().
  std::optional<Value> find(std::string_view key);
  // Obtains the directory if there is none, and reads the index by the transport. Nothing: call Service::read().
  Task<std::optional<Value>> read(std::string_view key);
  // A reply of Service::read() has come.
  void on_reply(std::string_view key, std::uint32_t generation) noexcept;
  // A call has failed: the server may be another one next time.
  void forget() noexcept;

  const Counters& counters() const noexcept { return counters_; }
  // Why the server has not given its directory the last time; empty if it has.
  const std::string& refusal() const noexcept { return refusal_; }
  // True if a reader can use the directory, with mapped memory (`map`) or without.
  static bool valid(const Directory& directory, bool map) { return !check(directory, map).empty(); }
  bool mapped() const noexcept { return !shards_.empty() && shards_.front().mapping != nullptr; }

 private:
  class Mapping;
  struct ReadShard {
    ShardIndex index;
    IndexGeometry geometry;
    std::shared_ptr<Mapping> mapping;
  };
  // Local memory of reads. After a read that failed, a device may still use its part, which is not used again.
  struct Parts {
    RegisteredBuffer buffer;
    std::vector<std::size_t> free;
    bool lost = false;  // A part is not used again, or there is no memory: renew_parts() replaces this.
  };
  class Part;

  bool by_memory() const;
  // Checks everything that later reads rely on. Empty: a reader cannot use it.
  static std::vector<ReadShard> check(const Directory& directory, bool map);
  bool accept(const Directory& directory);
  Task<void> obtain();
  Task<bool> access(RemoteRegion region, std::uint64_t offset, Part& into);
  std::uint64_t hash(std::string_view key) const noexcept { return hash_of(secret_, key); }
  const ReadShard& shard(std::uint64_t hash) const noexcept { return shards_[shard_of(hash, shards_.size())]; }
  bool due() noexcept;
  void renew_parts(Loop& loop);
  std::shared_ptr<Parts> allocate(std::size_t parts, std::size_t bytes);

  Client& link_;
  const ReaderOptions options_;
  HashSecret secret_;
  std::vector<ReadShard> shards_;  // Empty: there is no directory.
  std::uint64_t directory_number_ = 0;
  bool obtaining_ = false;
  Time expires_{};  // The directory is not used after this time, so that its regions are still exposed.
  std::string refusal_;
  Time not_before_{};  // The next call for the directory is not made before.
  std::uint64_t reads_ = 0;
  Time parts_not_before_{};  // Parts are not replaced before, so that a server that fails reads does not cause much.
  std::shared_ptr<Parts> small_;
  std::shared_ptr<Parts> large_;
  Counters counters_;
};

}  // namespace hawser::kv
