// The append-only log and the clock: entries whose expiry changes, restarts at any moment. By seed:
// HAWSER_TEST_SEEDS=10000 runs ten thousand histories.
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/hawser.h"
#include "hawser/testing.h"
#include "kv/commands.h"
#include "kv/resp_connection.h"
#include "kv/store.h"

namespace hawser::kv {
namespace {

namespace files = std::filesystem;

struct ModelEntry {
  std::string value;
  std::int64_t expires_at = 0;
  std::int64_t set_expires_at = 0;  // The expiry that the last command that set the value gave it.
  bool operator==(const ModelEntry& other) const { return value == other.value && expires_at == other.expires_at; }
};
using ModelEntries = std::map<std::string, ModelEntry>;

// Milliseconds since 1970 at which histories begin.
constexpr std::int64_t first_time = 1'000'000'000'000;

// A store with a log on the loop of a simulation, whose clock the test sets.
class LoggedStore {
 public:
  LoggedStore(Loop& loop, const files::path& folder, const std::int64_t& clock, unsigned shards) {
    store_ = std::make_unique<Store>(StoreOptions{.memory_bytes = std::size_t{8} << 20,
                                                  .policy = MemoryPolicy::refuse,
                                                  .shards = shards,
                                                  .clock = [&clock] { return clock; },
                                                  .secret = {1, 2}});
    const Result<LogReport> opened =
        store_->open_log({.folder = folder, .shards = {.sync = LogSync::always, .rewriting = {.bytes_min = 4096}}});
    if (!opened) throw std::runtime_error(opened.error().text);
    Loop* const here = &loop;
    store_->bind(std::span(&here, 1));
    background_.spawn(store_->maintain({.stopping = stop_.get_token(), .token = {}}));
  }
  Store& store() noexcept { return *store_; }

  Task<void> end() {
    stop_.request_stop();
    co_await background_.join();
    EXPECT_TRUE(store_->close_log());
    store_.reset();
  }

  // The reply to a command whose key is its first argument.
  std::string call(const std::vector<std::string>& words) {
    const std::vector<std::string_view> arguments(words.begin(), words.end());
    const Command* const command = find_command(arguments[0]);
    const bool everywhere = command->route == CommandRoute::all_status;
    std::string text;
    for (unsigned shard = 0; shard < store_->shards(); ++shard) {
      const std::uint64_t hash = everywhere ? 0 : store_->key(arguments[1]).hash;
      if (!everywhere && store_->shard_of(hash) != shard) continue;
      StringReplies replies;
      protocol::resp::ReplyWriter out(replies);
      Execution execution{store_->site(shard), out, arguments, hash};
      command->run(execution);
      out.flush();
      text = replies.text();
    }
    return text;
  }

  // All entries, also those that have expired and were not removed.
  ModelEntries entries() {
    ModelEntries found;
    for (unsigned i = 0; i < store_->shards(); ++i) {
      std::uint64_t cursor = 0;
      do {
        cursor = store_->site(i).shard().scan(cursor, never_expired, [&](Entry& entry) {
          found[std::string(entry.key())] = {std::string(entry.value()), entry.expires_at};
        });
      } while (cursor != 0);
    }
    return found;
  }
  std::uint64_t rewrites() {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < store_->shards(); ++i) sum += store_->site(i).log()->rewrites();
    return sum;
  }

  // Returns when everything that was logged is on the disk.
  Task<void> durable(Loop& loop) {
    for (unsigned i = 0; i < store_->shards(); ++i) {
      while (store_->site(i).unsynced()) {
        co_await loop.sleep(std::chrono::microseconds(10));
        std::this_thread::sleep_for(std::chrono::microseconds(20));  // The writer is a thread.
      }
    }
  }

 private:
  std::unique_ptr<Store> store_;
  std::stop_source stop_;
  Scope background_;
};

// Copies a folder in which files are replaced meanwhile.
void copy_folder(const files::path& from, const files::path& to) {
  for (;;) {
    std::error_code error;
    files::remove_all(to);
    files::copy(from, to, files::copy_options::recursive, error);
    if (!error) return;
  }
}

struct ExpiryTotals {
  std::uint64_t restarts = 0;
  std::uint64_t kills = 0;
  std::uint64_t rewrites = 0;
  std::uint64_t back = 0;      // Times that the clock was set back.
  std::uint64_t outlived = 0;  // Entries at a restart whose value was set with an expiry that had passed.
};

// The same commands change the store and a map.
class History {
 public:
  History(testing::Simulation& simulation, ExpiryTotals& totals) : simulation_(simulation), totals_(totals) {}

  Task<void> run() {
    open();
    const int steps = 150;
    for (int i = 0; i < steps; ++i) {
      co_await move_clock();
      command();
      check("after the command " + last_, clock_);
      if (simulation_.chance(0.06)) {
        co_await restart();
      }
    }
    co_await restart();
    totals_.rewrites += store_->rewrites();
    co_await store_->end();
  }

 private:
  void open() {
    store_ = std::make_unique<LoggedStore>(simulation_.loop(), folder_.path() / std::to_string(generation_), clock_,
                                           1 + static_cast<unsigned>(simulation_.below(3)));
  }

  // Time passes, the store works in the background, or somebody sets the clock.
  Task<void> move_clock() {
    if (simulation_.chance(0.05)) {
      // Entries that have expired may have been removed, and then stay so.
      const ModelEntries left = store_->entries();
      std::erase_if(model_, [&](const auto& one) { return !left.contains(one.first); });
      clock_ -= static_cast<std::int64_t>(1 + simulation_.below(300));
      ++totals_.back;
    } else {
      clock_ += static_cast<std::int64_t>(simulation_.below(simulation_.chance(0.2) ? 500 : 20));
    }
    const bool background = simulation_.chance(0.3);
    if (background) {
      // The store knows the length of its files then.
      co_await store_->durable(simulation_.loop());
    }
    co_await simulation_.loop().sleep(background ? std::chrono::milliseconds(21) : std::chrono::microseconds(1));
  }

  Task<void> restart() {
    totals_.rewrites += store_->rewrites();
    const bool killed = simulation_.chance(0.5);
    if (killed) {
      ++totals_.kills;
      co_await store_->durable(simulation_.loop());
      copy_folder(folder_.path() / std::to_string(generation_), folder_.path() / std::to_string(generation_ + 1));
      ++generation_;
    }
    co_await store_->end();
    clock_ += static_cast<std::int64_t>(simulation_.below(300));
    open();
    ++totals_.restarts;
    std::erase_if(model_, [&](const auto& one) { return !alive(one.second, clock_); });
    for (auto& [key, entry] : model_) {
      totals_.outlived += entry.set_expires_at != 0 && entry.set_expires_at <= clock_ ? 1 : 0;
      entry.set_expires_at = entry.expires_at;
    }
    simulation_.expect(store_->entries() == model_,
                       "after a restart, the entries differ from those before it; the last command was " + last_);
  }

  static bool alive(const ModelEntry& entry, std::int64_t now) {
    return entry.expires_at == 0 || entry.expires_at > now;
  }
  ModelEntries live(std::int64_t now) const {
    ModelEntries found;
    for (const auto& [key, entry] : model_) {
      if (alive(entry, now)) found.emplace(key, entry);
    }
    return found;
  }
  void check(const std::string& when, std::int64_t now) {
    ModelEntries found = store_->entries();
    std::erase_if(found, [&](const auto& one) { return !alive(one.second, now); });
    simulation_.expect(found == live(now), "the entries are wrong " + when);
  }

  ModelEntry* find(const std::string& key) {
    const auto found = model_.find(key);
    return found == model_.end() || !alive(found->second, clock_) ? nullptr : &found->second;
  }
  void set(const std::string& key, std::string value, std::int64_t expires_at) {
    model_[key] = {std::move(value), expires_at, expires_at};
  }
  void set_expiry(const std::string& key, ModelEntry& entry, std::int64_t expires_at) {
    if (expires_at != 0 && expires_at <= clock_) {
      model_.erase(key);
    } else {
      entry.expires_at = expires_at;
    }
  }

  void command() {
    if (large_ && simulation_.chance(0.3)) {
      const std::string name = "large" + std::to_string(simulation_.below(12));
      const std::int64_t expires_at = simulation_.chance(0.5) ? 0 : clock_ + 200;
      const std::string bytes(150'000, static_cast<char>('a' + simulation_.below(26)));
      last_ = "SET " + name;
      store_->call(expires_at == 0 ? std::vector<std::string>{"SET", name, bytes}
                                   : std::vector<std::string>{"SET", name, bytes, "PXAT", std::to_string(expires_at)});
      return set(name, bytes, expires_at);
    }
    const std::string key = "key" + std::to_string(simulation_.below(8));
    const bool number = simulation_.chance(0.4);
    const std::string value =
        number ? std::to_string(simulation_.below(1000)) : std::string(simulation_.below(2000), 'v') + last_;
    const std::int64_t lifetime = 1 + static_cast<std::int64_t>(simulation_.below(400));
    const std::string in = std::to_string(lifetime);
    const std::string at = std::to_string(clock_ + lifetime);
    ModelEntry* const entry = find(key);
    const auto send = [&](std::vector<std::string> words) {
      last_ = words[0];
      for (std::size_t i = 1; i < words.size(); ++i) last_ += " " + words[i].substr(0, 20);
      store_->call(words);
    };
    switch (simulation_.below(24)) {
      case 0: return send({"SET", key, value}), set(key, value, 0);
      case 1: return send({"SET", key, value, "PX", in}), set(key, value, clock_ + lifetime);
      case 2: return send({"SET", key, value, "PXAT", at}), set(key, value, clock_ + lifetime);
      case 3: {
        send({"SET", key, value, "KEEPTTL"});
        return set(key, value, entry != nullptr ? entry->expires_at : 0);
      }
      case 4: {
        send({"SET", key, value, "XX", "GET", "PX", in});
        if (entry != nullptr) set(key, value, clock_ + lifetime);
        return;
      }
      case 5: {
        send({"SET", key, value, "NX", "PX", in});
        if (entry == nullptr) set(key, value, clock_ + lifetime);
        return;
      }
      case 6: {
        send({"SETNX", key, value});
        if (entry == nullptr) set(key, value, 0);
        return;
      }
      case 7: return send({"PSETEX", key, in, value}), set(key, value, clock_ + lifetime);
      case 8: return send({"SETEX", key, "1", value}), set(key, value, clock_ + 1000);
      case 9: return send({"GETSET", key, value}), set(key, value, 0);
      case 10: return send({"GETDEL", key}), entry != nullptr ? void(model_.erase(key)) : void();
      case 11: return send({"DEL", key}), entry != nullptr ? void(model_.erase(key)) : void();
      case 12: {
        send({"GETEX", key, "PX", in});
        if (entry != nullptr) set_expiry(key, *entry, clock_ + lifetime);
        return;
      }
      case 13: {
        send({"GETEX", key, "PERSIST"});
        if (entry != nullptr) set_expiry(key, *entry, 0);
        return;
      }
      case 14:
      case 15: {
        send({"PEXPIRE", key, in});
        if (entry != nullptr) set_expiry(key, *entry, clock_ + lifetime);
        return;
      }
      case 16: {
        send({"EXPIRE", key, "1", "GT"});
        const bool longer = entry != nullptr && entry->expires_at != 0 && entry->expires_at < clock_ + 1000;
        if (longer) set_expiry(key, *entry, clock_ + 1000);
        return;
      }
      case 17: {
        const std::int64_t past = clock_ - lifetime + 200;
        send({"PEXPIREAT", key, std::to_string(past)});
        if (entry != nullptr) set_expiry(key, *entry, past);
        return;
      }
      case 18:
      case 19: {
        send({"PERSIST", key});
        if (entry != nullptr) set_expiry(key, *entry, 0);
        return;
      }
      case 20: {
        send({"APPEND", key, value});
        return set(key, (entry != nullptr ? entry->value : "") + value, entry != nullptr ? entry->expires_at : 0);
      }
      case 21: {
        send({"SETRANGE", key, "3", "xyz"});
        std::string changed = entry != nullptr ? entry->value : "";
        changed.resize(std::max<std::size_t>(changed.size(), 6));
        return set(key, changed.replace(3, 3, "xyz"), entry != nullptr ? entry->expires_at : 0);
      }
      case 22: {
        send({"INCRBY", key, "7"});
        std::int64_t sum = 0;
        if (entry != nullptr) {
          const std::string& text = entry->value;
          const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sum);
          if (error != std::errc() || end != text.data() + text.size()) return;
        }
        return set(key, std::to_string(sum + 7), entry != nullptr ? entry->expires_at : 0);
      }
      default:
        if (simulation_.chance(0.9)) return send({"GET", key});
        send({"FLUSHALL"});
        model_.clear();
    }
  }

  testing::Simulation& simulation_;
  ExpiryTotals& totals_;
  const TemporaryFolder folder_;
  std::int64_t clock_ = first_time;
  int generation_ = 0;
  std::unique_ptr<LoggedStore> store_;
  ModelEntries model_;
  // A rewriting takes several steps in such a history.
  const bool large_ = simulation_.chance(0.15);
  std::string last_;
};

Task<void> run_expiry_history(testing::Simulation& simulation, ExpiryTotals& totals) {
  History history(simulation, totals);
  co_await history.run();
}

TEST(LogExpiry, HistoriesOfCommandsClocksAndRestarts) {
  ExpiryTotals totals;
  const testing::SeedOutcome outcome = testing::for_each_seed(
      {.name = "kv_log_expiry", .count = 15},
      [&totals](testing::Simulation& simulation) { return run_expiry_history(simulation, totals); });
  EXPECT_TRUE(outcome);
  if (outcome.seeds >= 15) {
    EXPECT_GT(totals.restarts, 40U);
    EXPECT_GT(totals.kills, 15U);
    EXPECT_GT(totals.rewrites, 7U);
    EXPECT_GT(totals.back, 40U);
    EXPECT_GT(totals.outlived, 7U);
  }
}

}  // namespace
}  // namespace hawser::kv
