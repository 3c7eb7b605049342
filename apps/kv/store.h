#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "hawser/loop.h"
#include "hawser/server.h"
#include "kv/clients.h"
#include "kv/engine/shard.h"
#include "kv/key_hash.h"
#include "kv/log/log_folder.h"
#include "kv/memory_turns.h"
#include "kv/recent_rate.h"
#include "kv/shard_holds.h"
#include "kv/tracked_keys.h"
#include "kv/watches.h"

namespace hawser::rpc {
struct LoopCounters;
}

namespace hawser::kv {

class IndexPublication;
class RespConnection;
class Store;
struct Command;

struct StoreOptions {
  std::size_t memory_bytes = std::size_t{256} << 20;  // All shards together.
  MemoryPolicy policy = MemoryPolicy::evict;
  unsigned shards = 1;  // The number of loops of the server.
  std::size_t value_bytes_max = std::size_t{64} << 20;
  // Memory of the indexes that clients read without calls, of all shards together, beyond memory_bytes. It is allocated
  // when the first client asks for it, and grows with the number of keys. 0: there are none.
  std::size_t index_bytes_max = std::size_t{64} << 20;
  std::size_t index_buckets_first = 1024;  // Size of a new index with few keys. A power of two.
  // Characters that KEYS compares in a shard before it fails, about half a second. KEYS and SCAN of one EXEC, which
  // nothing interrupts, fail when those before have scanned and compared so much (Execution::scanned).
  std::uint64_t scan_work_max = 500'000'000;
  // Milliseconds since 1970, for simulations. Empty: the system's clock.
  std::function<std::int64_t()> clock = {};
  // Empty: random. For tests.
  HashSecret secret = {};
};

// The part of the store on one loop: a shard, and what the connections of this loop need. Loop's thread only, apart
// from stats().
class StoreSite {
 public:
  StoreSite(Store& store, unsigned index, const ShardOptions& options);
  StoreSite(const StoreSite&) = delete;
  StoreSite& operator=(const StoreSite&) = delete;
  ~StoreSite();

  Store& store() noexcept { return store_; }
  unsigned index() const noexcept { return index_; }
  Loop& loop() noexcept { return *loop_; }
  Shard& shard() noexcept { return shard_; }
  // Milliseconds since 1970 at the beginning of this tick.
  std::int64_t now();

  // Connections of this loop, which answers of other loops look up by their number.
  std::uint64_t add(RespConnection& connection);
  void remove(std::uint64_t number) { connections_.erase(number); }
  RespConnection* find(std::uint64_t number) const noexcept {
    const auto found = connections_.find(number);
    return found == connections_.end() ? nullptr : found->second;
  }
  // Calls RespConnection::on_memory() of this connection once, within some 20 ms.
  void wait_for_memory(std::uint64_t number) { memory_waiters_.push_back(number); }
  std::size_t connections() const noexcept { return connections_.size(); }
  // Calls `step` in later ticks of this loop, once in each, until it returns true. The steps of what was added before
  // come first.
  void add_stepped(std::function<bool()> step);

  // The index of this shard, which is made at the first call; null if the options forbid it or there is no memory.
  // Clients of `server` read it.
  IndexPublication* publish_index(const Server& server);
  // Null if there is none yet.
  IndexPublication* index_publication() noexcept { return publication_.get(); }

  // Why writes must be refused: the log has failed. Null if they need not be.
  const std::string* write_refusal() const noexcept { return log_ == nullptr ? nullptr : log_->refusal(); }
  // Returns true if a write is answered when it is durable.
  bool sync_always() const noexcept { return log_ != nullptr && log_->sync_always(); }
  // Returns true if replies to writes must wait for when_durable().
  bool unsynced() const noexcept { return log_ != nullptr && log_->unsynced(); }
  // As ShardLog::when_durable(). At once if there is no log.
  std::uint64_t when_durable(DurableWaits::Done done) {
    if (log_ == nullptr) return done(nullptr), 0;
    return log_->when_durable(std::move(done));
  }
  // Forgets a call of when_durable() that waits. `waiting` is not 0.
  void forget(std::uint64_t waiting) {
    if (log_ != nullptr) log_->forget(waiting);
  }
  const ShardLog* log() const noexcept { return log_; }
  // Other threads change the shard until this loop executes something again.
  void expect_changes() {
    if (log_ != nullptr) log_->expect_changes();
  }
  // As ShardLog::wait_for_disk().
  void wait_for_disk() {
    if (log_ != nullptr) log_->wait_for_disk();
  }
  MemoryTurns& memory_turns() noexcept { return memory_turns_; }
  Watches& watches() noexcept { return watches_; }
  TrackedKeys& tracked_keys() noexcept { return tracked_keys_; }
  // Counters of the server on this loop.
  void set_counters(const rpc::LoopCounters& counters) noexcept { counters_.store(&counters); }

 private:
  friend class Store;
  void maintain();
  void run_step();

  Store& store_;
  const unsigned index_;
  Shard shard_;
  Watches watches_{shard_};
  TrackedKeys tracked_keys_{store_, shard_};
  Loop* loop_ = nullptr;
  Time now_tick_{};
  std::int64_t now_ = 0;
  std::uint64_t connections_made_ = 0;
  std::unordered_map<std::uint64_t, RespConnection*> connections_;
  std::vector<std::uint64_t> memory_waiters_;
  std::deque<std::function<bool()>> stepped_;
  MemoryTurns memory_turns_;
  std::unique_ptr<IndexPublication> publication_;
  ShardLog* log_ = nullptr;
  std::atomic<const rpc::LoopCounters*> counters_ = nullptr;  // Null before the first Redis client.
};

// The store of a server: one shard a loop, and nothing shared between them. A key belongs to one shard by its hash.
// The store outlives the server.
class Store {
 public:
  explicit Store(StoreOptions options);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  // Reads the log in a folder, and logs all changes from then on. Called at most once, before bind().
  Result<LogReport> open_log(const LogOptions& options);
  // As ShardLog::close() of each shard. Called when the server has stopped, and before it ends.
  Result<void> close_log();

  // Assigns a loop to each shard: as many loops as shards. Loops may occur twice, for simulations. Called once, when
  // the loops exist; connections are refused before. Any thread.
  void bind(std::span<Loop* const> loops);
  // Likewise, from `loops` when the store is first used: a client may connect before Server::start() has returned.
  // Called once, before the start. `loops` returns nothing before the loops exist.
  void bind_on_use(std::function<std::vector<Loop*>()> loops);
  // Background work of a server, once for each loop, after bind(): removes expired entries.
  Task<void> maintain(Background background);
  // Returns whether the shards have their loops. Any thread.
  bool ensure_bound();
  // Returns the part on that loop; null before bind(). If several are on it, each in turn.
  StoreSite* site_on(const Loop& loop);

  // With several shards, the bits that choose the shard come from the hash of the index, whose secret clients know.
  Key key(std::string_view bytes) const noexcept {
    const std::uint64_t hash = hash_of(secret_, bytes);
    if (sites_.size() == 1) return {bytes, hash};
    return {bytes, (hash_of(index_secret_, bytes) >> 48 << 48) | (hash << 16 >> 16)};
  }
  unsigned shard_of(std::uint64_t hash) const noexcept { return kv::shard_of(hash, sites_.size()); }
  // A shard with keys, each one with a probability in proportion to their number; `otherwise` if there are none.
  unsigned random_shard(unsigned otherwise);
  // A number that clients cannot predict. Any thread.
  std::uint64_t random() noexcept;
  unsigned shards() const noexcept { return static_cast<unsigned>(sites_.size()); }
  StoreSite& site(unsigned index) noexcept { return *sites_[index]; }
  const StoreOptions& options() const noexcept { return options_; }
  const HashSecret& secret() const noexcept { return secret_; }
  // The secret of the hash by which clients find entries in an index. A client that abuses it finds nothing there.
  const HashSecret& index_secret() const noexcept { return index_secret_; }
  std::int64_t clock() const;
  // Since the store was made. Steps of the system's clock do not change it.
  std::chrono::seconds uptime() const noexcept;
  // The command has read its keys, whose shards the caller may change, and `client` keeps their values. 0: it does not.
  void track(const Command& command, std::span<const std::string_view> arguments, std::uint64_t client);
  ShardHolds& holds() noexcept { return holds_; }
  Clients& clients() noexcept { return clients_; }
  // Counters of the server, on the loops that have had a Redis client. The server exists.
  struct Activity {
    std::uint64_t clients = 0;  // Connections of all protocols that exist.
    std::uint64_t connections = 0;
    std::uint64_t commands = 0;
    std::uint64_t refused = 0;
  };
  Activity activity() const;
  // Commands in a second, lately.
  std::uint64_t command_rate() const noexcept { return command_rate_.per_second(); }

 private:
  void place(std::span<Loop* const> loops);  // mutex_ is locked.

  const StoreOptions options_;
  HashSecret secret_;
  HashSecret index_secret_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<StoreSite>> sites_;
  LogFolder log_folder_;
  ShardHolds holds_;
  Clients clients_;
  std::mutex mutex_;
  std::function<std::vector<Loop*>()> loops_;
  std::atomic<bool> bound_ = false;
  std::atomic<std::uint64_t> random_count_{0};
  RecentRate command_rate_;  // Sampled on the loop of the first shard.
  unsigned next_ = 0;
};

}  // namespace hawser::kv
