#include "kv/store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/kernel_random.h"
#include "kv/commands.h"
#include "kv/index_publication.h"
#include "kv/resp_connection.h"
#include "rpc/port/port_host.h"

namespace hawser::kv {
namespace {

constexpr Duration maintenance_interval = std::chrono::milliseconds(20);
// Buckets whose expired entries one maintenance removes, and the rounds that it makes while a quarter of the buckets
// had one.
constexpr std::size_t maintenance_buckets = 64;
constexpr int maintenance_rounds = 16;

HashSecret random_secret() { return {kernel_random(), kernel_random()}; }

}  // namespace

StoreSite::StoreSite(Store& store, unsigned index, const ShardOptions& options)
    : store_(store), index_(index), shard_(options) {}

StoreSite::~StoreSite() = default;

IndexPublication* StoreSite::publish_index(const Server& server) {
  const std::size_t bytes = store_.options().index_bytes_max / store_.shards();
  if (publication_ == nullptr && bytes >= IndexPublication::bytes_min) {
    publication_ = IndexPublication::make(
        shard_, *loop_, server,
        {.secret = store_.index_secret(), .bytes_max = bytes, .buckets_first = store_.options().index_buckets_first});
  }
  return publication_.get();
}

std::int64_t StoreSite::now() {
  if (now_tick_ != loop_->now() || now_ == 0) {
    now_tick_ = loop_->now();
    now_ = store_.clock();
  }
  return now_;
}

std::uint64_t StoreSite::add(RespConnection& connection) {
  connections_.emplace(++connections_made_, &connection);
  return connections_made_;
}

void StoreSite::add_stepped(std::function<bool()> step) {
  stepped_.push_back(std::move(step));
  if (stepped_.size() == 1) loop_->post([this] { run_step(); });
}

// A step may add others.
void StoreSite::run_step() {
  if (stepped_.front()()) stepped_.pop_front();
  if (!stepped_.empty()) loop_->post([this] { run_step(); });
}

void StoreSite::maintain() {
  for (const std::uint64_t number : std::exchange(memory_waiters_, {})) {
    RespConnection* const connection = find(number);
    if (connection == nullptr) continue;
    try {
      connection->on_memory();
    } catch (const std::bad_alloc&) {
      connection->fail_connection();
    }
  }
  const std::int64_t present = now();
  for (int i = 0; i < maintenance_rounds; ++i) {
    if (shard_.remove_expired(present, maintenance_buckets) < maintenance_buckets / 4) break;
  }
  if (publication_ != nullptr) publication_->maintain(present);
  if (log_ != nullptr) log_->maintain();
}

Store::Store(StoreOptions options)
    : options_(std::move(options)),
      secret_(options_.secret == HashSecret{} ? random_secret() : options_.secret),
      index_secret_(options_.secret == HashSecret{} ? random_secret() : HashSecret{~secret_.first, secret_.second}) {
  const unsigned shards = std::max(options_.shards, 1U);
  const ShardOptions shard{.memory_bytes = options_.memory_bytes / shards,
                           .policy = options_.policy,
                           // Versions of a later process are larger than those of this one.
                           .first_version = static_cast<std::uint64_t>(clock()) << 20};
  for (unsigned i = 0; i < shards; ++i) sites_.push_back(std::make_unique<StoreSite>(*this, i, shard));
}

Store::~Store() = default;

void Store::track(const Command& command, std::span<const std::string_view> arguments, std::uint64_t client) {
  if (client == 0 || command.writes || command.own != Own::none) return;
  if (arguments.size() > TrackedKeys::command_keys_max + 1) return sites_.front()->tracked_keys().drop_all_of(client);
  command.each_key(arguments, [&](std::string_view name) {
    const Key read = key(name);
    sites_[shard_of(read.hash)]->tracked_keys().add(read, client);
  });
}

std::int64_t Store::clock() const {
  if (options_.clock) return options_.clock();
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::chrono::seconds Store::uptime() const noexcept {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - started_);
}

Result<LogReport> Store::open_log(const LogOptions& options) {
  Result<LogReport> report = log_folder_.open(*this, options);
  if (!report) return report;
  for (std::size_t i = 0; i < sites_.size(); ++i) sites_[i]->log_ = log_folder_.logs()[i].get();
  return report;
}

Result<void> Store::close_log() {
  Result<void> all;
  for (const std::unique_ptr<ShardLog>& log : log_folder_.logs()) {
    const Result<void> closed = log->close();
    if (all && !closed) all = closed;
  }
  return all;
}

void Store::bind(std::span<Loop* const> loops) {
  const std::scoped_lock lock(mutex_);
  place(loops);
}

void Store::bind_on_use(std::function<std::vector<Loop*>()> loops) {
  const std::scoped_lock lock(mutex_);
  loops_ = std::move(loops);
}

bool Store::ensure_bound() {
  if (bound_.load(std::memory_order_acquire)) return true;
  const std::scoped_lock lock(mutex_);
  if (!bound_ && loops_) {
    if (const std::vector<Loop*> loops = loops_(); !loops.empty()) place(loops);
  }
  return bound_;
}

void Store::place(std::span<Loop* const> loops) {
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    sites_[i]->loop_ = loops[i % loops.size()];
    if (sites_[i]->log_ != nullptr) sites_[i]->log_->bind(*sites_[i]->loop_);
  }
  bound_ = true;
}

Task<void> Store::maintain(Background background) {
  Loop& here = *Loop::current();
  for (;;) {
    for (const std::unique_ptr<StoreSite>& site : sites_) {
      if (site->loop_ == &here) site->maintain();
    }
    if (sites_.front()->loop_ == &here) command_rate_.sample(here.now(), activity().commands);
    const Result<void> slept = co_await here.sleep(maintenance_interval, background.stopping);
    if (!slept) co_return;
  }
}

std::uint64_t Store::random() noexcept {
  const std::uint64_t count = random_count_.fetch_add(1, std::memory_order_relaxed);
  return hash_of(secret_, {reinterpret_cast<const char*>(&count), sizeof count});
}

Store::Activity Store::activity() const {
  Activity sum;
  for (const std::unique_ptr<StoreSite>& site : sites_) {
    const rpc::LoopCounters* const counters = site->counters_.load();
    if (counters == nullptr) continue;
    sum.clients += static_cast<std::uint64_t>(counters->connections_open.get());
    sum.connections += static_cast<std::uint64_t>(counters->connections_accepted.get());
    sum.commands += static_cast<std::uint64_t>(counters->calls.get());
    sum.refused += static_cast<std::uint64_t>(counters->connections_refused.get());
  }
  return sum;
}

unsigned Store::random_shard(unsigned otherwise) {
  std::uint64_t keys = 0;
  for (const std::unique_ptr<StoreSite>& site : sites_) keys += site->shard().stats().keys.get();
  if (keys == 0) return otherwise;
  std::uint64_t left = random() % keys;
  for (unsigned i = 0; i < sites_.size(); ++i) {
    const std::uint64_t here = sites_[i]->shard().stats().keys.get();
    if (left < here) return i;
    left -= here;
  }
  return otherwise;
}

StoreSite* Store::site_on(const Loop& loop) {
  if (!ensure_bound()) return nullptr;
  const std::scoped_lock lock(mutex_);
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    const std::size_t index = (next_ + i) % sites_.size();
    if (sites_[index]->loop_ != &loop) continue;
    next_ = static_cast<unsigned>(index) + 1;
    return sites_[index].get();
  }
  return nullptr;
}

}  // namespace hawser::kv
