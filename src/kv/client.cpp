#include "hawser/client.h"

#include <chrono>
#include <utility>

#include "hawser/client_pool.h"
#include "hawser/kv.h"
#include "kv/client_access.h"
#include "kv/one_sided_reader.h"
#include "kv/service.h"

namespace hawser::kv {

struct KvClient::State {
  Client* client = nullptr;
  ClientPool* pool = nullptr;        // Instead of `client`.
  OneSidedReader* reader = nullptr;  // Null: every operation is a call.
  std::unique_ptr<OneSidedReader> owned_reader = {};
};

namespace {

// Calls a method with arguments that the coroutine owns.
template <auto method, class R, class Link, class... Owned>
Task<Result<R>> call_with(Link& link, Owned... arguments) {
  co_return co_await link.template call<method>(arguments...);
}

template <auto method, class R, class... Owned>
Task<Result<R>> call_by(Client* client, ClientPool* pool, Owned... arguments) {
  if (pool != nullptr) return call_with<method, R>(*pool, std::move(arguments)...);
  return call_with<method, R>(*client, std::move(arguments)...);
}

Task<Result<std::optional<Value>>> get_directly(Client& link, OneSidedReader& reader, std::string key) {
  if (std::optional<Value> found = reader.find(key)) co_return found;
  std::optional<Value> read = co_await reader.read(key);
  if (read) co_return read;
  Result<Reading> reply = co_await link.call<&Service::read>(key);
  if (!reply) {
    reader.forget();
    co_return fail(std::move(reply.error()));
  }
  reader.on_reply(key, reply->generation);
  co_return std::move(reply->value);
}

// Milliseconds for the server, for whom 0 means no expiry. Nothing if the lifetime is not positive.
std::optional<std::int64_t> milliseconds_of(const std::optional<Duration>& lifetime) {
  if (!lifetime) return 0;
  if (*lifetime <= Duration::zero()) return std::nullopt;
  return std::chrono::ceil<std::chrono::milliseconds>(*lifetime).count();
}

template <class R>
Task<Result<R>> wrong_lifetime(Duration lifetime) {
  co_return fail(ErrorCode::invalid_argument, "the lifetime is " + std::to_string(lifetime.count()) +
                                                  " ns, but it must be positive: leave it out for an entry that does "
                                                  "not expire");
}

}  // namespace

KvClient::KvClient(Client& calls, ReadPolicy reads) : state_(std::make_unique<State>()) {
  state_->client = &calls;
  if (reads == ReadPolicy::calls) return;
  state_->owned_reader = std::make_unique<OneSidedReader>(calls);
  state_->reader = state_->owned_reader.get();
}

KvClient::KvClient(ClientPool& calls) : state_(std::make_unique<State>()) { state_->pool = &calls; }

KvClient::KvClient(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}

KvClient::KvClient(KvClient&&) noexcept = default;
KvClient& KvClient::operator=(KvClient&&) noexcept = default;
KvClient::~KvClient() = default;

KvClient KvClientAccess::with(Client& calls, OneSidedReader& reader) {
  auto state = std::make_unique<KvClient::State>();
  state->client = &calls;
  state->reader = &reader;
  return KvClient(std::move(state));
}

Task<Result<std::optional<Value>>> KvClient::get(std::string key) {
  if (state_->reader != nullptr) return get_directly(*state_->client, *state_->reader, std::move(key));
  return call_by<&Service::get, std::optional<Value>>(state_->client, state_->pool, std::move(key));
}

Task<Result<std::vector<std::optional<Value>>>> KvClient::get_many(std::vector<std::string> keys) {
  return call_by<&Service::get_many, std::vector<std::optional<Value>>>(state_->client, state_->pool, std::move(keys));
}

Task<Result<std::uint64_t>> KvClient::set(std::string key, std::string value, std::optional<Duration> lifetime) {
  const std::optional<std::int64_t> milliseconds = milliseconds_of(lifetime);
  if (!milliseconds) return wrong_lifetime<std::uint64_t>(*lifetime);
  return call_by<&Service::set, std::uint64_t>(state_->client, state_->pool, std::move(key), std::move(value),
                                               *milliseconds);
}

Task<Result<std::optional<std::uint64_t>>> KvClient::compare_and_set(std::string key, std::uint64_t version,
                                                                     std::string value,
                                                                     std::optional<Duration> lifetime) {
  const std::optional<std::int64_t> milliseconds = milliseconds_of(lifetime);
  if (!milliseconds) return wrong_lifetime<std::optional<std::uint64_t>>(*lifetime);
  return call_by<&Service::compare_and_set, std::optional<std::uint64_t>>(state_->client, state_->pool, std::move(key),
                                                                          version, std::move(value), *milliseconds);
}

Task<Result<bool>> KvClient::remove(std::string key) {
  return call_by<&Service::remove, bool>(state_->client, state_->pool, std::move(key));
}

Task<Result<std::int64_t>> KvClient::increment(std::string key, std::int64_t by) {
  return call_by<&Service::increment, std::int64_t>(state_->client, state_->pool, std::move(key), by);
}

std::uint64_t KvClient::direct_reads() const noexcept {
  return state_->reader == nullptr ? 0 : state_->reader->counters().found;
}

std::string_view KvClient::calls_reason() const noexcept {
  return state_->reader == nullptr ? std::string_view() : state_->reader->refusal();
}

}  // namespace hawser::kv
