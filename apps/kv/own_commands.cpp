// Commands that a connection answers by itself.
#include <chrono>
#include <optional>
#include <string>

#include "kv/glob.h"
#include "kv/info_text.h"
#include "kv/resp_connection.h"
#include "kv/set_options.h"
#include "protocol/resp/number.h"

namespace hawser::kv {

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
