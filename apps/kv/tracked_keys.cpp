#include "kv/tracked_keys.h"

#include <new>
#include <set>

#include "kv/resp_connection.h"
#include "kv/store.h"

namespace hawser::kv {

TrackedKeys::~TrackedKeys() { shard_.remove_log(*this); }

void TrackedKeys::Invalidation::run() {
  StoreSite& site = store.site(static_cast<unsigned>(client % store.shards()));
  RespConnection* const connection = site.find(client / store.shards());
  if (connection != nullptr) connection->on_invalidated(all_keys ? nullptr : &key);
}

std::unique_ptr<TrackedKeys::Invalidation> TrackedKeys::take(Keys::iterator at) noexcept {
  std::unique_ptr<Invalidation> taken = std::move(at->second);
  bytes_ -= taken->key.size() + overhead_bytes;
  keys_.erase(at);
  size_.store(keys_.size(), std::memory_order_relaxed);
  return taken;
}

void TrackedKeys::send(std::unique_ptr<Invalidation> invalidation) noexcept {
  Loop& home = store_.site(static_cast<unsigned>(invalidation->client % store_.shards())).loop();
  home.post(std::unique_ptr<detail::Posted>(std::move(invalidation)));
}

void TrackedKeys::add(const Key& key, std::uint64_t client) {
  const auto [at, added] = keys_.try_emplace({key.hash, client});
  if (!added) {
    if (at->second->key == key.bytes) return;
    // Two keys with the same hash.
    send(take(at));
    return add(key, client);
  }
  try {
    at->second = std::make_unique<Invalidation>(store_, std::string(key.bytes), client);
    if (!std::exchange(follows_, true)) shard_.add_log(*this);
  } catch (...) {
    keys_.erase(at);
    throw;
  }
  bytes_ += key.bytes.size() + overhead_bytes;
  size_.store(keys_.size(), std::memory_order_relaxed);
  while (bytes_ > bytes_max) {
    // Any other one: hashes are random.
    auto other = std::next(at);
    if (other == keys_.end()) other = keys_.begin();
    send(take(other));
  }
}

void TrackedKeys::drop_all_of(std::uint64_t client) {
  auto all = std::make_unique<Invalidation>(store_, std::string(), client);
  all->all_keys = true;
  send(std::move(all));
}

void TrackedKeys::invalidate(const Key& key) noexcept {
  for (auto at = keys_.lower_bound({key.hash, 0}); at != keys_.end() && at->first.first == key.hash;) {
    const auto following = std::next(at);
    if (at->second->key == key.bytes) send(take(at));
    at = following;
  }
}

// Each client is notified once.
void TrackedKeys::on_clear() {
  std::set<std::uint64_t> clients;
  try {
    for (const auto& [place, invalidation] : keys_) clients.insert(place.second);
  } catch (const std::bad_alloc&) {
    // The change must not fail: each key is sent then.
    while (!keys_.empty()) send(take(keys_.begin()));
    return;
  }
  while (!keys_.empty()) {
    std::unique_ptr<Invalidation> taken = take(keys_.begin());
    if (clients.erase(taken->client) == 0) continue;
    taken->all_keys = true;
    send(std::move(taken));
  }
}

}  // namespace hawser::kv
