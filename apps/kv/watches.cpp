#include "kv/watches.h"

#include <limits>

namespace hawser::kv {

void Watches::add(const Key& key, const std::shared_ptr<WatchedKeys>& client) {
  const auto [begin, end] = clients_.equal_range(key.hash);
  for (auto at = begin; at != end; ++at) {
    if (at->second.client == client && at->second.key == key.bytes) return;
  }
  if (clients_.empty()) shard_.add_log(*this);
  clients_.emplace(key.hash, Watch{std::string(key.bytes), client});
}

void Watches::remove(const WatchedKeys::One& one, const WatchedKeys& client) {
  const auto [begin, end] = clients_.equal_range(one.hash);
  for (auto at = begin; at != end; ++at) {
    if (at->second.client.get() != &client || at->second.key != one.key) continue;
    clients_.erase(at);
    if (clients_.empty()) shard_.remove_log(*this);
    return;
  }
}

void Watches::touch(const Key& key) noexcept {
  const auto [begin, end] = clients_.equal_range(key.hash);
  for (auto at = begin; at != end; ++at) {
    if (at->second.key == key.bytes) at->second.client->changed.store(true, std::memory_order_relaxed);
  }
}

// As in Redis, a key that does not exist does not change.
void Watches::on_clear() {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::min();
  for (auto& [hash, watch] : clients_) {
    if (shard_.find({watch.key, hash}, never, false) != nullptr) {
      watch.client->changed.store(true, std::memory_order_relaxed);
    }
  }
}

}  // namespace hawser::kv
