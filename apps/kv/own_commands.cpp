// Commands that a connection answers by itself.
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "kv/glob.h"
#include "kv/resp_connection.h"
#include "kv/set_options.h"
#include "protocol/resp/number.h"

namespace hawser::kv {
namespace {

// The version whose commands and error texts this server has. Clients decide by it what they may send.
constexpr std::string_view redis_version = "7.0.0";

std::string unknown_subcommand(std::string_view subcommand, std::string_view command) {
  constexpr std::size_t shown_max = 128;
  return "ERR unknown subcommand '" + std::string(subcommand.substr(0, shown_max)) + "'. Try " + std::string(command) +
         " HELP.";
}

struct Totals {
  std::uint64_t keys = 0;
  std::uint64_t memory = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t writes = 0;
  std::uint64_t expired = 0;
  std::uint64_t evicted = 0;
  std::uint64_t refused = 0;
};

void add_line(std::string& to, std::string_view name, std::uint64_t value) {
  to.append(name).append(":").append(std::to_string(value)).append("\r\n");
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
  std::string shards;
  for (unsigned i = 0; i < store.shards(); ++i) {
    const ShardStats& stats = store.site(i).shard().stats();
    const Totals one{.keys = stats.keys.get(),
                     .memory = stats.memory_bytes.get(),
                     .hits = stats.hits.get(),
                     .misses = stats.misses.get(),
                     .writes = stats.writes.get(),
                     .expired = stats.expired.get(),
                     .evicted = stats.evicted.get(),
                     .refused = stats.refused.get()};
    sum.keys += one.keys;
    sum.memory += one.memory;
    sum.hits += one.hits;
    sum.misses += one.misses;
    sum.writes += one.writes;
    sum.expired += one.expired;
    sum.evicted += one.evicted;
    sum.refused += one.refused;
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
    add_line(text, "process_id", static_cast<std::uint64_t>(getpid()));
    const std::int64_t up = std::max<std::int64_t>(store.clock() - store.started(), 0);
    add_line(text, "uptime_in_seconds", static_cast<std::uint64_t>(up / 1000));
    add_line(text, "shards", store.shards());
  }
  if (wanted("memory")) {
    begin("Memory");
    add_line(text, "used_memory", sum.memory);
    add_line(text, "maxmemory", store.options().memory_bytes);
    text += store.options().policy == MemoryPolicy::evict ? "maxmemory_policy:allkeys-sieve\r\n"
                                                          : "maxmemory_policy:noeviction\r\n";
  }
  if (wanted("persistence")) {
    begin("Persistence");
    add_persistence(text, store);
  }
  if (wanted("stats")) {
    begin("Stats");
    add_stats(text, sum);
    add_line(text, "wrong_passwords", gate == nullptr ? 0 : gate->wrong());
  }
  if (wanted("replication")) {
    begin("Replication");
    text += "role:master\r\nconnected_slaves:0\r\n";
  }
  if (wanted("shards")) {
    begin("Shards");
    text += shards;
  }
  if (wanted("keyspace")) {
    begin("Keyspace");
    if (sum.keys != 0) text += "db0:keys=" + std::to_string(sum.keys) + ",expires=0,avg_ttl=0\r\n";
  }
  return text;
}

}  // namespace

void RespConnection::execute_own(const Command& command, Arguments arguments, resp::ReplyWriter& to) {
  switch (command.own) {
    case Own::ping:
      if (arguments.size() > 2) return to.error("ERR wrong number of arguments for 'ping' command");
      return arguments.size() == 1 ? to.status("PONG") : to.bulk(arguments[1]);
    case Own::echo: return to.bulk(arguments[1]);
    case Own::info: return to.verbatim(info_text(site_->store(), gate_, arguments));
    case Own::config: return run_config(arguments, to);
    case Own::command: return run_command(arguments, to);
    case Own::client: return run_client(arguments, to);
    case Own::hello: return run_hello(arguments, to);
    case Own::select: {
      std::int64_t index = 0;
      if (!resp::parse_number(arguments[1], index)) return to.error("ERR value is not an integer or out of range");
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
      set_authenticated(gate_ == nullptr);
      set_version(2);
      client_name_.clear();
      to.set_version(2);
      return to.status("RESET");
    case Own::none: return;
  }
}

void RespConnection::set_authenticated(bool authenticated) noexcept {
  authenticated_ = authenticated;
  set_limits(authenticated ? limits_ : limits_.before_authentication());
}

bool RespConnection::authenticate(std::string_view user, std::string_view password, resp::ReplyWriter& to) {
  // Without a password, the only user may send anything.
  const bool right = gate_ == nullptr || gate_->matches(password);
  if (user == PasswordGate::user && right) {
    set_authenticated(true);
    return true;
  }
  to.error("WRONGPASS invalid username-password pair or user is disabled.");
  if (gate_ == nullptr) return false;
  gate_->count_wrong();
  // A client that has authenticated keeps that.
  if (++wrong_passwords_ < PasswordGate::wrong_max) return false;
  gate_->log_end(host().loop, peer_name());
  quitting_ = true;
  return false;
}

void RespConnection::run_auth(Arguments arguments, resp::ReplyWriter& to) {
  if (arguments.size() > 3) return to.error("ERR syntax error");
  if (arguments.size() == 2 && gate_ == nullptr) {
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
  out().set_version(version);
}

void RespConnection::run_hello(Arguments arguments, resp::ReplyWriter& to) {
  int version = version_;
  if (arguments.size() > 1) {
    std::int64_t given = 0;
    if (!resp::parse_number(arguments[1], given)) {
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
  if (!authenticated_) {
    return to.error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> "
        "option can be used to authenticate the client and select the RESP protocol version at the same time");
  }
  if (named) client_name_ = name;
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

bool RespConnection::check_name(std::string_view name, resp::ReplyWriter& to) {
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

void RespConnection::run_client(Arguments arguments, resp::ReplyWriter& to) {
  const std::string_view what = arguments[1];
  const auto arity = [&](std::size_t size) {
    if (arguments.size() == size) return true;
    std::string name(what);
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    to.error("ERR wrong number of arguments for 'client|" + name + "' command");
    return false;
  };
  if (is_word(what, "setname")) {
    if (arity(3) && check_name(arguments[2], to)) {
      client_name_ = arguments[2];
      to.ok();
    }
  } else if (is_word(what, "getname")) {
    if (arity(2)) client_name_.empty() ? to.null() : to.bulk(client_name_);
  } else if (is_word(what, "id")) {
    if (arity(2)) to.number(static_cast<std::int64_t>(id()));
  } else if (is_word(what, "info")) {
    if (arity(2)) {
      to.verbatim("id=" + std::to_string(id()) + " addr=" + peer_name() + " name=" + client_name_ +
                  " db=0 resp=" + std::to_string(version_) + "\n");
    }
  } else {
    to.error(unknown_subcommand(what, "CLIENT"));
  }
}

void RespConnection::run_config(Arguments arguments, resp::ReplyWriter& to) {
  if (is_word(arguments[1], "resetstat")) {
    return arguments.size() == 2 ? to.ok() : to.error("ERR wrong number of arguments for 'config|resetstat' command");
  }
  if (!is_word(arguments[1], "get")) return to.error(unknown_subcommand(arguments[1], "CONFIG"));
  if (arguments.size() < 3) return to.error("ERR wrong number of arguments for 'config|get' command");
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
  constexpr std::size_t pattern_bytes_max = 128;
  std::vector<const std::pair<std::string_view, std::string>*> found;
  for (const auto& value : values) {
    for (const std::string_view argument : arguments.subspan(2)) {
      if (argument.size() > pattern_bytes_max) continue;
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

void RespConnection::run_command(Arguments arguments, resp::ReplyWriter& to) {
  if (arguments.size() > 1 && is_word(arguments[1], "count")) {
    return to.number(static_cast<std::int64_t>(all_commands().size()));
  }
  if (arguments.size() > 1 && is_word(arguments[1], "docs")) return to.map(0);
  if (arguments.size() > 1 && !is_word(arguments[1], "info") && !is_word(arguments[1], "list")) {
    return to.error(unknown_subcommand(arguments[1], "COMMAND"));
  }
  if (arguments.size() > 1 && is_word(arguments[1], "list")) {
    to.array(all_commands().size());
    for (const Command& command : all_commands()) to.bulk(command.name);
    return;
  }
  std::vector<const Command*> listed;
  if (arguments.size() > 2) {
    for (const std::string_view name : arguments.subspan(2)) listed.push_back(find_command(name));
  } else {
    for (const Command& command : all_commands()) listed.push_back(&command);
  }
  to.array(listed.size());
  for (const Command* const command : listed) {
    if (command == nullptr) {
      to.raw(to.resp3() ? "_\r\n" : "*-1\r\n");
      continue;
    }
    const bool keys = command->route == Route::key || command->route == Route::keys_sum ||
                      command->route == Route::keys_list || command->route == Route::pairs;
    const bool many = keys && command->route != Route::key;
    to.array(6);
    to.bulk(command->name);
    to.number(command->arity);
    to.array(1);
    to.status(command->writes ? "write" : "readonly");
    to.number(keys ? 1 : 0);
    to.number(many ? -1 : keys ? 1 : 0);
    to.number(command->route == Route::pairs ? 2 : keys ? 1 : 0);
  }
}

}  // namespace hawser::kv
