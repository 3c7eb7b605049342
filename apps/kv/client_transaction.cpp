#include "kv/client_transaction.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "kv/store.h"

namespace hawser::kv {

std::optional<std::string> ClientTransaction::add(const Command& command, Arguments arguments, std::size_t bytes_max) {
  std::size_t bytes = 0;
  for (const std::string_view argument : arguments) bytes += argument.size() + sizeof(std::uint32_t);
  constexpr std::size_t command_bytes = 64;
  if (multi_->held_bytes() + bytes > bytes_max) {
    fail();
    return "ERR the commands since MULTI exceed " + std::to_string(bytes_max) + " bytes: send several transactions";
  }
  if (!charge_.set(charge_.bytes() + bytes + command_bytes)) {
    fail();
    return "OOM there is no memory for more commands of a transaction: send fewer at once";
  }
  multi_->add(command, arguments);
  return std::nullopt;
}

void ClientTransaction::end(bool executing) noexcept {
  multi_.reset();
  failed_ = false;
  if (!executing) charge_.set_always(watched_bytes_);
}

bool ClientTransaction::watch(const Store& store, Arguments keys) {
  std::size_t bytes = 0;
  for (const std::string_view key : keys) bytes += 2 * key.size() + WatchedKeys::overhead_bytes;
  constexpr std::size_t watched_bytes_max = std::size_t{4} << 20;
  if (watched_bytes_ + bytes > watched_bytes_max || !charge_.set(charge_.bytes() + bytes)) return false;
  watched_bytes_ += bytes;
  if (watched_ == nullptr) watched_ = std::make_shared<WatchedKeys>();
  for (const std::string_view key : keys) {
    const std::uint64_t hash = store.key(key).hash;
    watched_->keys.push_back({store.shard_of(hash), hash, std::string(key)});
  }
  return true;
}

void ClientTransaction::unwatch(StoreSite* home) {
  if (watched_ == nullptr) return;
  std::vector<std::shared_ptr<WatchedKeys>> shards(home->store().shards());
  for (const WatchedKeys::One& one : watched_->keys) shards[one.shard] = watched_;
  for (unsigned i = 0; i < shards.size(); ++i) {
    if (shards[i] == nullptr) continue;
    StoreSite& site = home->store().site(i);
    const auto remove = [client = std::move(shards[i]), &site] {
      for (const WatchedKeys::One& one : client->keys) {
        if (one.shard == site.index()) site.watches().remove(one, *client);
      }
    };
    &site == home ? remove() : site.loop().post(remove);
  }
  watched_.reset();
  charge_.set_always(charge_.bytes() - std::exchange(watched_bytes_, 0));
}

}  // namespace hawser::kv
