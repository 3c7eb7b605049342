#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/loop.h"
#include "kv/engine/shard.h"

namespace hawser::kv {

class Store;

// The keys of one shard that Redis clients keep in caches of their own (CLIENT TRACKING). A client is notified of the
// next change of such a key, once: when it reads the key again, the key is tracked again. Belongs to whoever may change
// the shard.
class TrackedKeys final : public ChangeLog {
 public:
  // Memory that a tracked key takes beside its name.
  static constexpr std::size_t overhead_bytes = 192;
  // Beyond it, clients are notified of keys that have not changed, and these are not tracked any more.
  static constexpr std::size_t bytes_max = std::size_t{16} << 20;

  // The keys of a longer command are not tracked: its client is notified that all keys have changed. One command could
  // replace all tracked keys several times, and hold the loop for seconds while it notifies their clients.
  static constexpr std::size_t command_keys_max = 1024;

  TrackedKeys(Store& store, Shard& shard) noexcept : store_(store), shard_(shard) {}
  TrackedKeys(const TrackedKeys&) = delete;
  TrackedKeys& operator=(const TrackedKeys&) = delete;
  ~TrackedKeys();

  // `client`: RespConnection::id().
  void add(const Key& key, std::uint64_t client);
  // The client is notified that all keys have changed. Any thread that may change the shard.
  void drop_all_of(std::uint64_t client);
  // Keys of clients that have gone count until they change. Any thread.
  std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }

 private:
  // Travels to the loop of the client. It is allocated in advance, because a change must not fail any more.
  struct Invalidation final : detail::Posted {
    Invalidation(Store& owner, std::string name, std::uint64_t id) : store(owner), key(std::move(name)), client(id) {}
    void run() override;
    Store& store;
    std::string key;
    const std::uint64_t client;
    bool all_keys = false;
  };
  using Place = std::pair<std::uint64_t, std::uint64_t>;  // The hash of the key, and the client.
  using Keys = std::map<Place, std::unique_ptr<Invalidation>>;

  void on_set(const Key& key, std::string_view, std::int64_t, std::uint64_t) override { invalidate(key); }
  void on_expiry(const Key& key, std::int64_t) override { invalidate(key); }
  void on_remove(const Key& key) override { invalidate(key); }
  void on_clear() override;
  void invalidate(const Key& key) noexcept;
  std::unique_ptr<Invalidation> take(Keys::iterator at) noexcept;
  void send(std::unique_ptr<Invalidation> invalidation) noexcept;

  Store& store_;
  Shard& shard_;
  Keys keys_;
  std::size_t bytes_ = 0;
  bool follows_ = false;  // The changes of the shard, from the first key on.
  std::atomic<std::size_t> size_ = 0;
};

}  // namespace hawser::kv
