#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hawser/client.h"
#include "hawser/client_pool.h"
#include "kv/one_sided_reader.h"
#include "kv/service.h"

namespace hawser::kv {

// The operations of the store over a hawser::Client or a ClientPool, which outlives this object and its calls. Used
// from that client's thread. See Service for the meaning of arguments and results.
template <class Calls>
class KvClient {
 public:
  // `reader`: get() reads without a call if it can. It is that of the client `calls`, and outlives this object. Null:
  // every operation is a call.
  explicit KvClient(Calls& calls, OneSidedReader* reader = nullptr) noexcept : calls_(calls), reader_(reader) {}

  Task<Result<std::optional<Value>>> get(std::string key) {
    if (reader_ != nullptr) {
      if (std::optional<Value> found = reader_->find(key)) co_return found;
      auto reading = reader_->read(key);
      std::optional<Value> read = co_await std::move(reading);
      if (read) co_return read;
      auto asking = calls_.template call<&Service::read>(key);
      Result<Reading> reply = co_await std::move(asking);
      if (!reply) {
        reader_->forget();
        co_return std::unexpected(std::move(reply.error()));
      }
      reader_->on_reply(key, reply->generation);
      co_return std::move(reply->value);
    }
    auto call = calls_.template call<&Service::get>(key);
    co_return co_await std::move(call);
  }
  Task<Result<std::vector<std::optional<Value>>>> get_many(std::vector<std::string> keys) {
    auto call = calls_.template call<&Service::get_many>(keys);
    co_return co_await std::move(call);
  }
  Task<Result<std::uint64_t>> set(std::string key, std::string value, std::int64_t lifetime_ms = 0) {
    auto call = calls_.template call<&Service::set>(key, value, lifetime_ms);
    co_return co_await std::move(call);
  }
  Task<Result<std::optional<std::uint64_t>>> compare_and_set(std::string key, std::uint64_t version, std::string value,
                                                             std::int64_t lifetime_ms = 0) {
    auto call = calls_.template call<&Service::compare_and_set>(key, version, value, lifetime_ms);
    co_return co_await std::move(call);
  }
  Task<Result<bool>> remove(std::string key) {
    auto call = calls_.template call<&Service::remove>(key);
    co_return co_await std::move(call);
  }
  Task<Result<std::int64_t>> increment(std::string key, std::int64_t by) {
    auto call = calls_.template call<&Service::increment>(key, by);
    co_return co_await std::move(call);
  }

 private:
  Calls& calls_;
  OneSidedReader* reader_;
};

}  // namespace hawser::kv
