#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kv/engine/shard.h"

namespace hawser::kv {

// The keys that one client watches, as WATCH of Redis: a change of any of them makes its next transaction fail.
struct WatchedKeys {
  struct One {
    unsigned shard;
    std::uint64_t hash;
    std::string key;
  };
  // Bytes of memory that a watched key takes here and at its shard, beside two copies of the key.
  static constexpr std::size_t overhead_bytes = 256;

  std::vector<One> keys = {};
  // The loops of the shards write it. Whoever holds the shards of all keys reads what is true.
  std::atomic<bool> changed = false;
};

// The watched keys of one shard. Follows the changes of the shard while there are any. Belongs to the shard's loop.
class Watches final : public ChangeLog {
 public:
  explicit Watches(Shard& shard) noexcept : shard_(shard) {}
  Watches(const Watches&) = delete;
  Watches& operator=(const Watches&) = delete;
  ~Watches() { shard_.remove_log(*this); }

  // A second watch of a key by the same client has no effect.
  void add(const Key& key, const std::shared_ptr<WatchedKeys>& client);
  void remove(const WatchedKeys::One& one, const WatchedKeys& client);
  std::size_t size() const noexcept { return clients_.size(); }

 private:
  struct Watch {
    std::string key;
    std::shared_ptr<WatchedKeys> client;
  };
  void on_set(const Key& key, std::string_view, std::int64_t, std::uint64_t) override { touch(key); }
  void on_expiry(const Key& key, std::int64_t) override { touch(key); }
  void on_remove(const Key& key) override { touch(key); }
  void on_clear() override;
  void touch(const Key& key) noexcept;

  Shard& shard_;
  std::unordered_multimap<std::uint64_t, Watch> clients_;  // By the hash of the key.
};

}  // namespace hawser::kv
