#include "kv/service.h"

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/try.h"
#include "hawser/context.h"
#include "hawser/loop.h"
#include "hawser/server.h"
#include "hawser/sync.h"
#include "kv/commands.h"
#include "kv/index_publication.h"
#include "kv/store.h"
#include "os/process_id.h"
#include "protocol/resp/number.h"
#include "rpc/port/port_session.h"
#include "rpc/session/work_charge.h"

namespace hawser::kv {
namespace {

// Work of a handler on another loop, and its result. The handler's loop and the shard's loop own it in turn; the
// handler may end before the result comes.
template <class Result>
struct Trip {
  Event done;
  std::optional<Result> result;
  std::uint64_t durable = 0;  // The change waits for the log with this number. Used on the shard's loop.
};

// Calls `work(StoreSite&)` on the loop of a shard. `work` owns everything that it uses.
template <class Work>
Task<std::invoke_result_t<Work&, StoreSite&>> on_shard(Store& store, unsigned index, Work work) {
  using Result = std::invoke_result_t<Work&, StoreSite&>;
  StoreSite& site = store.site(index);
  Loop& home = *Loop::current();
  if (&site.loop() == &home) co_return work(site);
  const std::shared_ptr<Trip<Result>> trip = std::make_shared<Trip<Result>>();
  // The references travel: none is left at the shard's loop when the result has come.
  site.loop().post([travelling = trip, moved = std::move(work), &site, &home]() mutable {
    travelling->result.emplace(moved(site));
    home.post([arrived = std::move(travelling)] { arrived->done.set(); });
  });
  co_await trip->done.wait();
  co_return std::move(*trip->result);
}

// The same for work that may change the shard, and whose result is a Result: it fails if the log refuses writes, and
// returns when the change is durable, if the options say so, or when the caller does not wait any more.
template <class Work>
Task<std::invoke_result_t<Work&, StoreSite&>> write_on_shard(Store& store, Context& context, unsigned index,
                                                             Work work) {
  using Result = std::invoke_result_t<Work&, StoreSite&>;
  StoreSite& site = store.site(index);
  Loop& home = *Loop::current();
  if (&site.loop() == &home && site.log() == nullptr) co_return work(site);
  const std::shared_ptr<Trip<Result>> trip = std::make_shared<Trip<Result>>();
  const auto log_error = [](const std::string& why) {
    return fail(ErrorCode::unavailable, "the store refuses writes, because its log cannot be written: " + why);
  };
  auto run = [travelling = trip, moved = std::move(work), &site, &home, log_error]() mutable {
    const auto end = [&home](std::shared_ptr<Trip<Result>> done) {
      if (Loop::current() == &home) return done->done.set();
      home.post([arrived = std::move(done)] { arrived->done.set(); });
    };
    if (const std::string* const why = site.write_refusal()) {
      travelling->result.emplace(log_error(*why));
      return end(std::move(travelling));
    }
    travelling->result.emplace(moved(site));
    if (!site.unsynced()) return end(std::move(travelling));
    travelling->durable = site.when_durable([travelling, end, log_error](const std::string* error) {
      travelling->durable = 0;
      if (error != nullptr) travelling->result.emplace(log_error(*error));
      end(travelling);
    });
  };
  if (&site.loop() == &home) {
    run();
  } else {
    site.loop().post(std::move(run));
  }
  if (!site.sync_always()) {
    co_await trip->done.wait();
    co_return std::move(*trip->result);
  }
  const ::hawser::Result<void> done = co_await trip->done.wait(context.token());
  if (done) co_return std::move(*trip->result);
  // The log must not keep what belongs to a caller that has gone.
  auto forget = [travelling = trip, &site] {
    if (travelling->durable != 0) site.forget(std::exchange(travelling->durable, 0));
  };
  if (&site.loop() == &home) {
    forget();
  } else {
    site.loop().post(std::move(forget));
  }
  co_return fail(done.error());
}

std::optional<Error> check(Store& store, std::string_view key, std::string_view value = {}) {
  const auto error = [](ErrorCode code, std::string text) { return Error::of_call(code, std::move(text)); };
  if (!store.ensure_bound()) return error(ErrorCode::unavailable, "the store is starting: call again");
  if (key.size() > Shard::key_bytes_max) {
    return error(ErrorCode::invalid_argument, "the key has " + std::to_string(key.size()) + " bytes, and at most " +
                                                  std::to_string(Shard::key_bytes_max) + " are possible");
  }
  if (value.size() > store.options().value_bytes_max) {
    return error(ErrorCode::invalid_argument, "the value has " + std::to_string(value.size()) + " bytes, and at most " +
                                                  std::to_string(store.options().value_bytes_max) + " are possible");
  }
  return std::nullopt;
}

std::unexpected<Error> memory_error() {
  return fail(ErrorCode::limit_exceeded, "the store has no memory for the value: remove keys, or raise --memory");
}

std::optional<Value> read_entry(StoreSite& site, const std::string& key, std::uint64_t hash) {
  Entry* const entry = site.shard().find({key, hash}, site.now());
  if (entry == nullptr) return std::nullopt;
  return Value{std::string(entry->value()), entry->version};
}

// Values of another shard that are not charged on their way. The calls in flight bound them.
constexpr std::size_t free_value_bytes = Shard::short_value_bytes_max;
// A value of so many bytes needs one trip while much memory is free.
constexpr std::size_t usual_value_bytes = 64 * 1024;

rpc::PortSession& session_of(Context& context) {
  return static_cast<rpc::PortSession&>(detail::ContextAccess::reply_sink(context).origin());
}

// The result of a read on another loop.
struct Found {
  Reading reading;
  std::size_t due = 0;  // The value has so many bytes, and was not copied: they exceed the memory that was charged.
  rpc::WorkCharge::Use charged;
};

// Reads at most `room` bytes of a value. `indexes`: for a client that looks into the index.
Found find_value(StoreSite& site, const Key& key, bool indexes, std::size_t room) {
  Found found;
  if (room != SIZE_MAX && site.shard().has_long_values()) {
    const Entry* const seen = site.shard().find(key, site.now(), false);
    if (seen != nullptr && seen->value_bytes > room) return {.reading = {}, .due = seen->value_bytes, .charged = {}};
  }
  Entry* const entry = site.shard().find(key, site.now());
  if (entry != nullptr) found.reading.value = Value{std::string(entry->value()), entry->version};
  IndexPublication* const publication = indexes ? site.index_publication() : nullptr;
  if (publication != nullptr) {
    if (entry != nullptr) publication->add(key, *entry);
    found.reading.generation = publication->index().generation();
  }
  return found;
}

// Charges values, when there is memory for them.
Task<Result<void>> charge_values(Store& store, Context& context, rpc::WorkCharge& charge, std::size_t bytes) {
  detail::ReceiveAccount& account = *detail::ContextAccess::request(context).account;
  StoreSite* const site = store.site_on(*Loop::current());
  if (site == nullptr) co_return fail(session_of(context).unkept_error(account));
  co_return co_await site->memory_turns().charge(charge, account, bytes, store.options().value_bytes_max,
                                                 context.token());
}

// A value that travels is charged before it is copied. The shard reports the length of one that is longer than what was
// charged, and reads it when there is memory for it.
Task<Result<Reading>> read_value(Store& store, Context& context, std::string_view key, bool indexes) {
  if (std::optional<Error> error = check(store, key)) co_return fail(std::move(*error));
  const std::uint64_t hash = store.key(key).hash;
  const unsigned shard = store.shard_of(hash);
  const bool travels = &store.site(shard).loop() != Loop::current();
  detail::ReceiveAccount* const account = travels ? detail::ContextAccess::request(context).account : nullptr;
  std::size_t room = account == nullptr ? SIZE_MAX : free_value_bytes;
  rpc::WorkCharge charge;
  if (account != nullptr && account->plenty(usual_value_bytes) && charge.add(*account, usual_value_bytes, 0)) {
    room = usual_value_bytes;
  }
  for (;;) {
    Found found = co_await on_shard(
        store, shard, [name = std::string(key), hash, indexes, room, charged = charge.use()](StoreSite& site) mutable {
          charged.begin();
          Found there = find_value(site, {name, hash}, indexes, room);
          return Found{std::move(there.reading), there.due, std::move(charged)};
        });
    if (found.due == 0) co_return std::move(found.reading);
    room = found.due;
    charge.reset();
    CO_TRY(co_await charge_values(store, context, charge, room));
  }
}

// Keys of one shard.
struct WantedKeys {
  std::vector<std::pair<std::string, std::uint64_t>> keys;  // With their hashes.
  std::vector<std::size_t> places;                          // In the order of the caller.
};

// Their values.
struct ManyValues {
  std::vector<std::optional<Value>> values;
  std::size_t bytes = 0;
  bool complete = true;  // False: they exceed the room, and nothing was copied.
};

// A message may name one key many times.
ManyValues read_values(StoreSite& site, const WantedKeys& wanted, std::size_t room) {
  ManyValues read;
  for (const auto& [key, hash] : wanted.keys) {
    const Entry* const seen = site.shard().find({key, hash}, site.now(), false);
    read.bytes += seen == nullptr ? 0 : seen->value_bytes;
    if (read.bytes > room) return {.values = {}, .bytes = 0, .complete = false};
  }
  for (const auto& [key, hash] : wanted.keys) read.values.push_back(read_entry(site, key, hash));
  return read;
}

// The length of the values; a part of it, if it exceeds the longest reply.
std::size_t length_of_values(StoreSite& site, const WantedKeys& wanted) {
  std::size_t bytes = 0;
  for (const auto& [key, hash] : wanted.keys) {
    const Entry* const seen = site.shard().find({key, hash}, site.now(), false);
    bytes += seen == nullptr ? 0 : seen->value_bytes;
    if (bytes > reply_bytes_max) break;
  }
  return bytes;
}

// The protection of the messages beside the stream of the caller's connection, as ConnectionReport names it.
std::string_view protection_of(Context& context) { return session_of(context).protection(); }

// A lifetime that is not positive, or ends beyond the range of times, is none.
std::int64_t expiry_after(StoreSite& site, std::int64_t lifetime_ms) {
  std::int64_t at = 0;
  return lifetime_ms <= 0 || __builtin_add_overflow(site.now(), lifetime_ms, &at) ? 0 : at;
}

}  // namespace

Task<Result<std::optional<Value>>> Service::get(Context& context, std::string_view key) {
  CO_TRY(Reading&& reading, co_await read_value(store_, context, key, false));
  co_return std::move(reading.value);
}

Task<Result<Reading>> Service::read(Context& context, std::string_view key) {
  return read_value(store_, context, key, true);
}

Task<Result<Directory>> Service::directory(Context& context) {
  if (std::optional<Error> error = check(store_, {})) co_return fail(std::move(*error));
  const std::string_view protection = protection_of(context);
  if (protection == "signed" || protection == "sealed") {
    co_return fail(ErrorCode::permission_denied,
                   "the messages of this connection are " + std::string(protection) +
                       ", and values that a client reads without calls would be neither signed nor encrypted: it reads "
                       "by calls. TlsProtection::authenticated of both sides permits reads without calls");
  }
  Directory directory{.secret_first = store_.index_secret().first,
                      .secret_second = store_.index_secret().second,
                      .process = process_id(),
                      .shards = {}};
  for (unsigned shard = 0; shard < store_.shards(); ++shard) {
    directory.shards.push_back(co_await on_shard(store_, shard, [server = server_](StoreSite& site) {
      const IndexPublication* const publication = site.publish_index(*server);
      if (publication == nullptr) return ShardIndex{};
      const RemoteIndex& index = publication->index();
      return ShardIndex{.generation = index.generation(),
                        .buckets = index.geometry().buckets,
                        .ring_bytes = index.geometry().ring_bytes,
                        .region = publication->region(),
                        .identity = publication->identity(),
                        .descriptor = publication->descriptor()};
    }));
  }
  co_return directory;
}

// Values are charged before they are copied, all together: calls that waited while they hold memory could wait for each
// other. Short ones need one trip to each shard while much memory is free.
Task<Result<std::vector<std::optional<Value>>>> Service::get_many(Context& context, std::vector<std::string> keys) {
  std::vector<std::shared_ptr<WantedKeys>> by_shard(store_.shards());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (std::optional<Error> error = check(store_, keys[i])) co_return fail(std::move(*error));
    const std::uint64_t hash = store_.key(keys[i]).hash;
    std::shared_ptr<WantedKeys>& wanted = by_shard[store_.shard_of(hash)];
    if (wanted == nullptr) wanted = std::make_shared<WantedKeys>();
    wanted->keys.emplace_back(std::move(keys[i]), hash);
    wanted->places.push_back(i);
  }
  detail::ReceiveAccount* const account = detail::ContextAccess::request(context).account;
  rpc::WorkCharge charge;
  std::optional<std::size_t> room;
  if (account == nullptr) {
    room = reply_bytes_max;
  } else if (account->plenty(usual_value_bytes) && charge.add(*account, usual_value_bytes, 0)) {
    room = usual_value_bytes;
  }
  for (;;) {
    if (room) {
      // The charge lasts as long as values travel, also when the handler ends.
      const auto charged = std::make_shared<rpc::WorkCharge::Use>(charge.use());
      charged->begin();
      std::vector<std::optional<Value>> values(keys.size());
      bool complete = true;
      for (unsigned shard = 0; shard < by_shard.size() && complete; ++shard) {
        if (by_shard[shard] == nullptr) continue;
        ManyValues found =
            co_await on_shard(store_, shard, [wanted = by_shard[shard], left = *room, charged](StoreSite& site) {
              return read_values(site, *wanted, left);
            });
        complete = found.complete;
        *room -= found.bytes;
        for (std::size_t i = 0; i < found.values.size(); ++i) {
          values[by_shard[shard]->places[i]] = std::move(found.values[i]);
        }
      }
      if (complete) co_return values;
    }
    charge.reset();
    std::size_t bytes = 0;
    for (unsigned shard = 0; shard < by_shard.size() && bytes <= reply_bytes_max; ++shard) {
      if (by_shard[shard] == nullptr) continue;
      bytes += co_await on_shard(
          store_, shard, [wanted = by_shard[shard]](StoreSite& site) { return length_of_values(site, *wanted); });
    }
    if (bytes > reply_bytes_max) {
      co_return fail(ErrorCode::limit_exceeded, "the values of " + std::to_string(keys.size()) +
                                                    " keys exceed 256 MiB: request fewer keys at once");
    }
    if (account != nullptr) CO_TRY(co_await charge_values(store_, context, charge, bytes));
    room = bytes;
  }
}

Task<Result<std::uint64_t>> Service::set(Context& context, std::string_view key, std::string_view value,
                                         std::int64_t lifetime_ms) {
  if (std::optional<Error> error = check(store_, key, value)) co_return fail(std::move(*error));
  const std::uint64_t hash = store_.key(key).hash;
  co_return co_await write_on_shard(store_, context, store_.shard_of(hash),
                                    [name = std::string(key), bytes = std::string(value), hash,
                                     lifetime_ms](StoreSite& site) -> Result<std::uint64_t> {
                                      const std::int64_t expires_at = expiry_after(site, lifetime_ms);
                                      const Entry* const entry = site.shard().set({name, hash}, bytes, expires_at);
                                      if (entry == nullptr) return memory_error();
                                      return entry->version;
                                    });
}

Task<Result<std::optional<std::uint64_t>>> Service::compare_and_set(Context& context, std::string_view key,
                                                                    std::uint64_t version, std::string_view value,
                                                                    std::int64_t lifetime_ms) {
  if (std::optional<Error> error = check(store_, key, value)) co_return fail(std::move(*error));
  const std::uint64_t hash = store_.key(key).hash;
  co_return co_await write_on_shard(store_, context, store_.shard_of(hash),
                                    [name = std::string(key), bytes = std::string(value), hash, version,
                                     lifetime_ms](StoreSite& site) -> Result<std::optional<std::uint64_t>> {
                                      const Entry* const present = site.shard().find({name, hash}, site.now(), false);
                                      if ((present == nullptr ? 0 : present->version) != version) return std::nullopt;
                                      const std::int64_t expires_at = expiry_after(site, lifetime_ms);
                                      const Entry* const entry = site.shard().set({name, hash}, bytes, expires_at);
                                      if (entry == nullptr) return memory_error();
                                      return entry->version;
                                    });
}

Task<Result<bool>> Service::remove(Context& context, std::string_view key) {
  if (std::optional<Error> error = check(store_, key)) co_return fail(std::move(*error));
  const std::uint64_t hash = store_.key(key).hash;
  co_return co_await write_on_shard(store_, context, store_.shard_of(hash),
                                    [name = std::string(key), hash](StoreSite& site) -> Result<bool> {
                                      Entry* const entry = site.shard().find({name, hash}, site.now(), false);
                                      if (entry != nullptr) site.shard().remove(*entry);
                                      return entry != nullptr;
                                    });
}

Task<Result<std::int64_t>> Service::increment(Context& context, std::string_view key, std::int64_t by) {
  if (std::optional<Error> error = check(store_, key)) co_return fail(std::move(*error));
  const std::uint64_t hash = store_.key(key).hash;
  co_return co_await write_on_shard(store_, context, store_.shard_of(hash),
                                    [name = std::string(key), hash, by](StoreSite& site) -> Result<std::int64_t> {
                                      Entry* const entry = site.shard().find({name, hash}, site.now(), false);
                                      std::int64_t value = 0;
                                      if (entry != nullptr && !protocol::resp::parse_number(entry->value(), value)) {
                                        return fail(ErrorCode::invalid_argument,
                                                    "the value is not a decimal number of 64 bits");
                                      }
                                      if (__builtin_add_overflow(value, by, &value)) {
                                        return fail(ErrorCode::invalid_argument, "the sum exceeds 64 bits");
                                      }
                                      const std::int64_t expires_at = entry == nullptr ? 0 : entry->expires_at;
                                      if (site.shard().set({name, hash}, std::to_string(value), expires_at) == nullptr)
                                        return memory_error();
                                      return value;
                                    });
}

void register_service(Server& server, Service& service) {
  service.server_ = &server;
  server.register_handler<&Service::get, &Service::read, &Service::directory, &Service::get_many, &Service::set,
                          &Service::compare_and_set, &Service::remove, &Service::increment>(&service);
}

}  // namespace hawser::kv
