#include "kv/info_text.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "kv/set_options.h"

namespace hawser::kv {
namespace {

// Counters of a shard, or their sums over all shards.
struct ShardCounts {
  std::uint64_t keys = 0;
  std::uint64_t memory = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t writes = 0;
  std::uint64_t expired = 0;
  std::uint64_t evicted = 0;
  std::uint64_t refused = 0;
  std::uint64_t with_expiry = 0;

  static ShardCounts of(const ShardStats& stats) noexcept {
    return {.keys = stats.keys.get(),
            .memory = stats.memory_bytes.get(),
            .hits = stats.hits.get(),
            .misses = stats.misses.get(),
            .writes = stats.writes.get(),
            .expired = stats.expired.get(),
            .evicted = stats.evicted.get(),
            .refused = stats.refused.get(),
            .with_expiry = stats.with_expiry.get()};
  }
  void add(const ShardCounts& other) noexcept {
    keys += other.keys;
    memory += other.memory;
    hits += other.hits;
    misses += other.misses;
    writes += other.writes;
    expired += other.expired;
    evicted += other.evicted;
    refused += other.refused;
    with_expiry += other.with_expiry;
  }
};

void add_line(std::string& to, std::string_view name, std::uint64_t value) {
  to.append(name).append(":").append(std::to_string(value)).append("\r\n");
}

std::string decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

// Such as 1.50M, as Redis writes it.
void add_bytes(std::string& to, std::string_view name, std::uint64_t bytes) {
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  to.append(name).append(":").append(decimal(value)).append(1, "BKMGT"[unit]).append("\r\n");
}

// Memory of the process.
std::uint64_t resident_bytes() {
  unsigned long long pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%*u %llu", &pages) != 1) pages = 0;
  std::fclose(file);
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t peak_bytes() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<std::uint64_t>(used.ru_maxrss) * 1024;
}

// The facts of one INFO, and its sections.
class InfoReport {
 public:
  InfoReport(Store& store, const PasswordGate* gate) : store_(store), gate_(gate) {
    for (unsigned i = 0; i < store.shards(); ++i) {
      shards_.push_back(ShardCounts::of(store.site(i).shard().stats()));
      sum_.add(shards_.back());
      tracked_keys_ += store.site(i).tracked_keys().size();
    }
  }

  void add_server(std::string& to) const {
    to.append("redis_version:").append(redis_version).append("\r\nredis_mode:standalone\r\nserver_name:hawser-kv\r\n");
    to += "os:Linux\r\narch_bits:64\r\n";
    add_line(to, "process_id", static_cast<std::uint64_t>(getpid()));
    const auto up = static_cast<std::uint64_t>(store_.uptime().count());
    add_line(to, "uptime_in_seconds", up);
    add_line(to, "uptime_in_days", up / 86'400);
    add_line(to, "shards", store_.shards());
  }

  void add_clients(std::string& to) const {
    add_line(to, "connected_clients", activity_.clients);
    add_line(to, "blocked_clients", 0);
    std::uint64_t tracking = 0;
    store_.clients().each([&](const ClientRecord& record) { tracking += record.tracking != 0 ? 1U : 0U; });
    add_line(to, "tracking_clients", tracking);
  }

  void add_memory(std::string& to) const {
    add_line(to, "used_memory", sum_.memory);
    add_bytes(to, "used_memory_human", sum_.memory);
    const std::uint64_t resident = resident_bytes();
    add_line(to, "used_memory_rss", resident);
    add_line(to, "used_memory_peak", std::max(sum_.memory, peak_bytes()));
    to.append("mem_fragmentation_ratio:")
        .append(decimal(static_cast<double>(resident) / static_cast<double>(std::max<std::uint64_t>(sum_.memory, 1))))
        .append("\r\n");
    add_bytes(to, "maxmemory_human", store_.options().memory_bytes);
    add_line(to, "maxmemory", store_.options().memory_bytes);
    to += store_.options().policy == MemoryPolicy::evict ? "maxmemory_policy:allkeys-sieve\r\n"
                                                         : "maxmemory_policy:noeviction\r\n";
  }

  // Fields that tools for Redis read, and the log's own.
  void add_persistence(std::string& to) const {
    LogStats sum;
    std::uint64_t refused_shards = 0;
    const ShardLog* const first = store_.site(0).log();
    for (unsigned i = 0; i < store_.shards() && first != nullptr; ++i) {
      const LogStats one = store_.site(i).log()->stats();
      sum.file_bytes += one.file_bytes;
      sum.base_bytes += one.base_bytes;
      sum.rewrites += one.rewrites;
      sum.rewriting |= one.rewriting;
      sum.rewrite_failed |= one.rewrite_failed;
      refused_shards += one.refused ? 1 : 0;
      sum.waiting += one.waiting;
    }
    add_line(to, "loading", 0);
    add_line(to, "aof_enabled", first == nullptr ? 0 : 1);
    add_line(to, "aof_rewrite_in_progress", sum.rewriting ? 1 : 0);
    add_line(to, "aof_rewrite_scheduled", 0);
    to.append("aof_last_bgrewrite_status:").append(sum.rewrite_failed ? "err\r\n" : "ok\r\n");
    to.append("aof_last_write_status:").append(refused_shards != 0 ? "err\r\n" : "ok\r\n");
    if (first != nullptr) {
      add_line(to, "aof_current_size", sum.file_bytes);
      add_line(to, "aof_base_size", sum.base_bytes);
      to.append("log_fsync:").append(first->sync_name()).append("\r\n");
      add_line(to, "log_rewrites", sum.rewrites);
      add_line(to, "log_shards_that_refuse_writes", refused_shards);
      add_line(to, "log_waiting_for_disk", sum.waiting);
    }
    to += "rdb_changes_since_last_save:0\r\nrdb_bgsave_in_progress:0\r\nrdb_last_bgsave_status:ok\r\n";
  }

  void add_stats(std::string& to) const {
    add_line(to, "total_connections_received", activity_.connections);
    add_line(to, "total_commands_processed", activity_.commands);
    add_line(to, "instantaneous_ops_per_sec", store_.command_rate());
    add_line(to, "rejected_connections", activity_.refused);
    add_line(to, "keyspace_hits", sum_.hits);
    add_line(to, "keyspace_misses", sum_.misses);
    add_line(to, "expired_keys", sum_.expired);
    add_line(to, "evicted_keys", sum_.evicted);
    add_line(to, "writes", sum_.writes);
    add_line(to, "refused_writes", sum_.refused);
    add_line(to, "tracking_total_items", tracked_keys_);
    to += "pubsub_channels:0\r\npubsub_patterns:0\r\nlatest_fork_usec:0\r\n";
    add_line(to, "wrong_passwords", gate_ == nullptr ? 0 : gate_->wrong());
  }

  void add_replication(std::string& to) const { to += "role:master\r\nconnected_slaves:0\r\nmaster_repl_offset:0\r\n"; }

  void add_cpu(std::string& to) const {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& time) {
      return decimal(static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6);
    };
    to.append("used_cpu_sys:").append(seconds(used.ru_stime)).append("\r\n");
    to.append("used_cpu_user:").append(seconds(used.ru_utime)).append("\r\n");
  }

  void add_cluster(std::string& to) const { to += "cluster_enabled:0\r\n"; }

  void add_shards(std::string& to) const {
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      const ShardCounts& one = shards_[i];
      to += "shard" + std::to_string(i) + ":keys=" + std::to_string(one.keys) +
            ",memory=" + std::to_string(one.memory) + ",hits=" + std::to_string(one.hits) +
            ",misses=" + std::to_string(one.misses) + ",evicted=" + std::to_string(one.evicted) + "\r\n";
    }
  }

  void add_keyspace(std::string& to) const {
    if (sum_.keys == 0) return;
    to += "db0:keys=" + std::to_string(sum_.keys) + ",expires=" + std::to_string(sum_.with_expiry) + ",avg_ttl=0\r\n";
  }

 private:
  Store& store_;
  const PasswordGate* const gate_;
  const Store::Activity activity_ = store_.activity();
  std::vector<ShardCounts> shards_;
  ShardCounts sum_;
  std::uint64_t tracked_keys_ = 0;
};

struct InfoSection {
  std::string_view name;  // As an argument of INFO.
  std::string_view title;
  void (InfoReport::*add)(std::string& to) const;
};
constexpr InfoSection info_sections[] = {
    {"server", "Server", &InfoReport::add_server}, {"clients", "Clients", &InfoReport::add_clients},
    {"memory", "Memory", &InfoReport::add_memory}, {"persistence", "Persistence", &InfoReport::add_persistence},
    {"stats", "Stats", &InfoReport::add_stats},    {"replication", "Replication", &InfoReport::add_replication},
    {"cpu", "CPU", &InfoReport::add_cpu},          {"cluster", "Cluster", &InfoReport::add_cluster},
    {"shards", "Shards", &InfoReport::add_shards}, {"keyspace", "Keyspace", &InfoReport::add_keyspace},
};

bool requests_section(Arguments arguments, std::string_view section) {
  if (arguments.size() == 1) return true;
  return std::ranges::any_of(arguments.subspan(1), [&](std::string_view argument) {
    return is_word(argument, section) || is_word(argument, "all") || is_word(argument, "default") ||
           is_word(argument, "everything");
  });
}

}  // namespace

std::string info_text(Store& store, const PasswordGate* gate, Arguments arguments) {
  const InfoReport report(store, gate);
  std::string text;
  for (const InfoSection& section : info_sections) {
    if (!requests_section(arguments, section.name)) continue;
    if (!text.empty()) text += "\r\n";
    text.append("# ").append(section.title).append("\r\n");
    (report.*section.add)(text);
  }
  return text;
}

}  // namespace hawser::kv
