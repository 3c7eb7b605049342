// Commands that a connection answers by itself.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "kv/glob.h"
#include "kv/resp_connection.h"
#include "kv/set_options.h"
#include "protocol/resp/number.h"

namespace hawser::kv {
namespace {

// The version that clients see. They decide by it what they may send; redis-py uses its cache from 7.4 on.
constexpr std::string_view redis_version = "7.4.0";

struct Totals {
  std::uint64_t keys = 0;
  std::uint64_t memory = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t writes = 0;
  std::uint64_t expired = 0;
  std::uint64_t evicted = 0;
  std::uint64_t refused = 0;
  std::uint64_t with_expiry = 0;
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

void add_stats(std::string& to, const Totals& totals) {
  add_line(to, "keyspace_hits", totals.hits);
  add_line(to, "keyspace_misses", totals.misses);
  add_line(to, "expired_keys", totals.expired);
  add_line(to, "evicted_keys", totals.evicted);
  add_line(to, "writes", totals.writes);
  add_line(to, "refused_writes", totals.refused);
}

// Fields that tools for Redis read, and the log's own.
void add_persistence(std::string& to, Store& store) {
  LogStats sum;
  std::uint64_t refused_shards = 0;
  const ShardLog* const first = store.site(0).log();
  for (unsigned i = 0; i < store.shards() && first != nullptr; ++i) {
    const LogStats one = store.site(i).log()->stats();
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
  if (first == nullptr) return;
  add_line(to, "aof_current_size", sum.file_bytes);
  add_line(to, "aof_base_size", sum.base_bytes);
  to.append("log_fsync:").append(first->sync_name()).append("\r\n");
  add_line(to, "log_rewrites", sum.rewrites);
  add_line(to, "log_shards_that_refuse_writes", refused_shards);
  add_line(to, "log_waiting_for_disk", sum.waiting);
}

// The sections of INFO that are requested: all without arguments.
std::string info_text(Store& store, const PasswordGate* gate, Arguments arguments) {
  const auto wanted = [&](std::string_view section) {
    bool any = arguments.size() == 1;
    for (const std::string_view argument : arguments.subspan(1)) {
      any |= is_word(argument, section) || is_word(argument, "all") || is_word(argument, "default") ||
             is_word(argument, "everything");
    }
    return any;
  };
  Totals sum;
  std::uint64_t tracked = 0;
  const Store::Activity activity = store.activity();
  std::string shards;
  for (unsigned i = 0; i < store.shards(); ++i) {
    const ShardStats& stats = store.site(i).shard().stats();
    tracked += store.site(i).tracked_keys().size();
    const Totals one{.keys = stats.keys.get(),
                     .memory = stats.memory_bytes.get(),
                     .hits = stats.hits.get(),
                     .misses = stats.misses.get(),
                     .writes = stats.writes.get(),
                     .expired = stats.expired.get(),
                     .evicted = stats.evicted.get(),
                     .refused = stats.refused.get(),
                     .with_expiry = stats.with_expiry.get()};
    sum.keys += one.keys;
    sum.memory += one.memory;
    sum.hits += one.hits;
    sum.misses += one.misses;
    sum.writes += one.writes;
    sum.expired += one.expired;
    sum.evicted += one.evicted;
    sum.refused += one.refused;
    sum.with_expiry += one.with_expiry;
    shards += "shard" + std::to_string(i) + ":keys=" + std::to_string(one.keys) +
              ",memory=" + std::to_string(one.memory) + ",hits=" + std::to_string(one.hits) +
              ",misses=" + std::to_string(one.misses) + ",evicted=" + std::to_string(one.evicted) + "\r\n";
  }
  std::string text;
  const auto begin = [&](std::string_view title) {
    if (!text.empty()) text += "\r\n";
    text.append("# ").append(title).append("\r\n");
  };
  if (wanted("server")) {
    begin("Server");
    text.append("redis_version:")
        .append(redis_version)
        .append("\r\nredis_mode:standalone\r\nserver_name:hawser-kv\r\n");
    text += "os:Linux\r\narch_bits:64\r\n";
    add_line(text, "process_id", static_cast<std::uint64_t>(getpid()));
    const std::int64_t up = std::max<std::int64_t>(store.clock() - store.started(), 0);
    add_line(text, "uptime_in_seconds", static_cast<std::uint64_t>(up / 1000));
    add_line(text, "uptime_in_days", static_cast<std::uint64_t>(up / 86'400'000));
    add_line(text, "shards", store.shards());
  }
  if (wanted("clients")) {
    begin("Clients");
    add_line(text, "connected_clients", activity.clients);
    add_line(text, "blocked_clients", 0);
    std::uint64_t tracking = 0;
    store.clients().each([&](const ClientRecord& record) { tracking += record.tracking != 0 ? 1U : 0U; });
    add_line(text, "tracking_clients", tracking);
  }
  if (wanted("memory")) {
    begin("Memory");
    add_line(text, "used_memory", sum.memory);
    add_bytes(text, "used_memory_human", sum.memory);
    const std::uint64_t resident = resident_bytes();
    add_line(text, "used_memory_rss", resident);
    add_line(text, "used_memory_peak", std::max(sum.memory, peak_bytes()));
    text.append("mem_fragmentation_ratio:")
        .append(decimal(static_cast<double>(resident) / static_cast<double>(std::max<std::uint64_t>(sum.memory, 1))))
        .append("\r\n");
    add_bytes(text, "maxmemory_human", store.options().memory_bytes);
    add_line(text, "maxmemory", store.options().memory_bytes);
    text += store.options().policy == MemoryPolicy::evict ? "maxmemory_policy:allkeys-sieve\r\n"
                                                          : "maxmemory_policy:noeviction\r\n";
  }
  if (wanted("persistence")) {
    begin("Persistence");
    add_persistence(text, store);
    text += "rdb_changes_since_last_save:0\r\nrdb_bgsave_in_progress:0\r\nrdb_last_bgsave_status:ok\r\n";
  }
  if (wanted("stats")) {
    begin("Stats");
    add_line(text, "total_connections_received", activity.connections);
    add_line(text, "total_commands_processed", activity.commands);
    add_line(text, "instantaneous_ops_per_sec", store.command_rate());
    add_line(text, "rejected_connections", activity.refused);
    add_stats(text, sum);
    add_line(text, "tracking_total_items", tracked);
    text += "pubsub_channels:0\r\npubsub_patterns:0\r\nlatest_fork_usec:0\r\n";
    add_line(text, "wrong_passwords", gate == nullptr ? 0 : gate->wrong());
  }
  if (wanted("replication")) {
    begin("Replication");
    text += "role:master\r\nconnected_slaves:0\r\nmaster_repl_offset:0\r\n";
  }
  if (wanted("cpu")) {
    begin("CPU");
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& time) {
      return decimal(static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6);
    };
    text.append("used_cpu_sys:").append(seconds(used.ru_stime)).append("\r\n");
    text.append("used_cpu_user:").append(seconds(used.ru_utime)).append("\r\n");
  }
  if (wanted("cluster")) {
    begin("Cluster");
    text += "cluster_enabled:0\r\n";
  }
  if (wanted("shards")) {
    begin("Shards");
    text += shards;
  }
  if (wanted("keyspace")) {
    begin("Keyspace");
    if (sum.keys != 0) {
      text += "db0:keys=" + std::to_string(sum.keys) + ",expires=" + std::to_string(sum.with_expiry) + ",avg_ttl=0\r\n";
    }
  }
  return text;
}

}  // namespace

void RespConnection::execute_own(const Command& command, Arguments arguments, protocol::resp::ReplyWriter& to) {
  if (const std::string error = subcommand_error(command, arguments); !error.empty()) return to.error(error);
  if (asks_help(command, arguments)) return write_help(command, to);
  switch (command.own) {
    case Own::ping:
      if (arguments.size() > 2) return to.error("ERR wrong number of arguments for 'ping' command");
      return arguments.size() == 1 ? to.status("PONG") : to.bulk(arguments[1]);
    case Own::echo: return to.bulk(arguments[1]);
    case Own::info: return to.verbatim(info_text(site_->store(), login_.gate(), arguments));
    case Own::config: return run_config(arguments, to);
    case Own::command: return run_command(arguments, to);
    case Own::client: return run_client(arguments, to);
    case Own::hello: return run_hello(arguments, to);
    case Own::select: {
      std::int64_t index = 0;
      if (!protocol::resp::parse_number(arguments[1], index))
        return to.error("ERR value is not an integer or out of range");
      if (index > INT32_MAX || index < INT32_MIN) {
        return to.error("ERR value is out of range, value must between -2147483648 and 2147483647");
      }
      return index == 0 ? to.ok() : to.error("ERR DB index is out of range");
    }
    case Own::quit:
      to.ok();
      quitting_ = true;
      return;
    case Own::auth: return run_auth(arguments, to);
    case Own::reset:
      discard();
      login_.end();
      update_login();
      set_version(2);
      tracking_.end();
      if (site_ != nullptr) {
        site_->store().clients().set(record_.name, {});
        site_->store().clients().set(record_.tracking, 0);
      }
      to.set_version(2);
      return to.status("RESET");
    case Own::time: {
      const auto now = std::chrono::system_clock::now().time_since_epoch();
      const std::int64_t us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
      to.array(2);
      to.bulk(std::to_string(us / 1'000'000));
      return to.bulk(std::to_string(us % 1'000'000));
    }
    case Own::wait: {
      // There are no replicas.
      std::int64_t number = 0;
      if (!protocol::resp::parse_number(arguments[1], number))
        return to.error("ERR value is not an integer or out of range");
      if (!protocol::resp::parse_number(arguments[2], number))
        return to.error("ERR timeout is not an integer or out of range");
      return number < 0 ? to.error("ERR timeout is negative") : to.number(0);
    }
    case Own::multi: return run_multi(to);
    case Own::discard: return run_discard(to);
    case Own::unwatch: transaction_.unwatch(site_); return to.ok();
    case Own::exec:
    case Own::watch:
    case Own::none: return;
  }
}

bool RespConnection::authenticate(std::string_view user, std::string_view password, protocol::resp::ReplyWriter& to) {
  const ClientLogin::Answer answer = login_.authenticate(user, password);
  if (answer == ClientLogin::Answer::accepted) {
    update_login();
    return true;
  }
  to.error("WRONGPASS invalid username-password pair or user is disabled.");
  if (answer == ClientLogin::Answer::one_too_many) {
    login_.gate()->log_end(host().loop, peer_name());
    quitting_ = true;
  }
  return false;
}

void RespConnection::run_auth(Arguments arguments, protocol::resp::ReplyWriter& to) {
  if (arguments.size() > 3) return to.error("ERR syntax error");
  if (arguments.size() == 2 && login_.gate() == nullptr) {
    return to.error(
        "ERR AUTH <password> called without any password configured for the default user. Are you sure your "
        "configuration is correct?");
  }
  const std::string_view user = arguments.size() == 3 ? arguments[1] : PasswordGate::user;
  if (authenticate(user, arguments.back(), to)) to.ok();
}

void RespConnection::set_version(int version) {
  if (version == version_) return;
  version_ = version;
  if (site_ != nullptr) site_->store().clients().set(record_.protocol, version);
  out().set_version(version);
}

// With options, HELLO may fail.
std::optional<int> hello_version(Arguments arguments) {
  std::int64_t version = 0;
  if (arguments.size() != 2 || !protocol::resp::parse_number(arguments[1], version)) return std::nullopt;
  return version == 2 || version == 3 ? std::optional(static_cast<int>(version)) : std::nullopt;
}

void RespConnection::run_hello(Arguments arguments, protocol::resp::ReplyWriter& to) {
  int version = version_;
  if (arguments.size() > 1) {
    std::int64_t given = 0;
    if (!protocol::resp::parse_number(arguments[1], given)) {
      return to.error("ERR Protocol version is not an integer or out of range");
    }
    if (given < 2 || given > 3) return to.error("NOPROTO unsupported protocol version");
    version = static_cast<int>(given);
  }
  std::string_view name;
  std::optional<std::string_view> user;
  std::string_view password;
  bool named = false;
  for (std::size_t i = 2; i < arguments.size(); ++i) {
    const std::size_t more = arguments.size() - 1 - i;
    if (is_word(arguments[i], "auth") && more >= 2) {
      user = arguments[++i];
      password = arguments[++i];
      continue;
    }
    if (is_word(arguments[i], "setname") && more >= 1) {
      name = arguments[++i];
      if (!check_name(name, to)) return;
      named = true;
      continue;
    }
    return to.error("ERR Syntax error in HELLO option '" + std::string(arguments[i]) + "'");
  }
  if (user && !authenticate(*user, password, to)) return;
  if (!login_.authenticated()) {
    return to.error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> "
        "option can be used to authenticate the client and select the RESP protocol version at the same time");
  }
  if (named && site_ != nullptr) site_->store().clients().set(record_.name, name);
  set_version(version);
  to.set_version(version);
  to.map(7);
  to.bulk("server");
  to.bulk("redis");
  to.bulk("version");
  to.bulk(redis_version);
  to.bulk("proto");
  to.number(version);
  to.bulk("id");
  to.number(static_cast<std::int64_t>(id()));
  to.bulk("mode");
  to.bulk("standalone");
  to.bulk("role");
  to.bulk("master");
  to.bulk("modules");
  to.array(0);
}

bool RespConnection::check_name(std::string_view name, protocol::resp::ReplyWriter& to) {
  constexpr std::size_t client_name_bytes_max = 1024;
  for (const char c : name) {
    if (c < '!' || c > '~') {
      to.error("ERR Client names cannot contain spaces, newlines or special characters.");
      return false;
    }
  }
  if (name.size() > client_name_bytes_max) {
    to.error("ERR the client's name has " + std::to_string(name.size()) + " bytes, and at most 1024 are possible");
    return false;
  }
  return true;
}

void RespConnection::run_config(Arguments arguments, protocol::resp::ReplyWriter& to) {
  if (is_word(arguments[1], "resetstat")) return to.ok();
  const StoreOptions& options = site_->store().options();
  const std::pair<std::string_view, std::string> values[] = {
      {"appendfsync", site_->log() == nullptr ? "no" : site_->log()->sync_name()},
      {"appendonly", site_->log() == nullptr ? "no" : "yes"},
      {"databases", "1"},
      {"maxmemory", std::to_string(options.memory_bytes)},
      {"maxmemory-policy", options.policy == MemoryPolicy::evict ? "allkeys-sieve" : "noeviction"},
      {"proto-max-bulk-len", std::to_string(options.value_bytes_max)},
      {"save", ""},
  };
  constexpr std::size_t setting_bytes_max = 128;
  std::vector<const std::pair<std::string_view, std::string>*> found;
  for (const auto& value : values) {
    for (const std::string_view argument : arguments.subspan(2)) {
      if (argument.size() > setting_bytes_max) continue;
      std::string pattern(argument);
      for (char& c : pattern) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
      std::uint64_t steps = 0;
      if (!matches_glob(pattern, value.first, steps)) continue;
      found.push_back(&value);
      break;
    }
  }
  to.map(found.size());
  for (const auto* value : found) {
    to.bulk(value->first);
    to.bulk(value->second);
  }
}

}  // namespace hawser::kv
