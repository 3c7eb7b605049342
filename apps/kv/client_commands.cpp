// CLIENT and COMMAND.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "kv/glob.h"
#include "kv/resp_connection.h"
#include "kv/set_options.h"
#include "protocol/resp/number.h"

namespace hawser::kv {
namespace {

constexpr std::string_view wrong_syntax = "ERR syntax error";

std::string line_of(const ClientRecord& record, std::int64_t now) {
  return "id=" + std::to_string(record.id) + " addr=" + record.address + " name=" + record.name +
         " age=" + std::to_string(std::max<std::int64_t>(now - record.since, 0) / 1000) +
         " flags=" + (record.tracking != 0 ? "t" : "N") + " db=0 user=default resp=" + std::to_string(record.protocol) +
         " lib-name=" + record.library + " lib-ver=" + record.library_version + "\n";
}

// Which clients CLIENT KILL ends.
struct Filter {
  std::optional<std::uint64_t> id = {};
  std::optional<std::string_view> address = {};
  bool nobody = false;  // A filter that no client fits.
  bool skip_me = true;
  bool fits(const ClientRecord& record) const {
    return !nobody && (!id || *id == record.id) && (!address || *address == record.address);
  }
};

// False: a syntax error; the reply has been written then.
bool parse_filter(Arguments arguments, Filter& filter, protocol::resp::ReplyWriter& to) {
  for (std::size_t i = 2; i < arguments.size(); i += 2) {
    if (i + 1 == arguments.size()) return to.error(wrong_syntax), false;
    const std::string_view word = arguments[i];
    const std::string_view value = arguments[i + 1];
    std::int64_t number = 0;
    if (is_word(word, "id")) {
      if (!protocol::resp::parse_number(value, number) || number < 1) {
        return to.error("ERR client-id should be greater than 0"), false;
      }
      filter.id = static_cast<std::uint64_t>(number);
    } else if (is_word(word, "addr")) {
      filter.address = value;
    } else if (is_word(word, "type")) {
      filter.nobody |= !is_word(value, "normal");
    } else if (is_word(word, "user")) {
      filter.nobody |= value != PasswordGate::user;
    } else if (is_word(word, "skipme") && (is_word(value, "yes") || is_word(value, "no"))) {
      filter.skip_me = is_word(value, "yes");
    } else {
      return to.error(wrong_syntax), false;
    }
  }
  return true;
}

}  // namespace

// Ends the other clients that fit, and this one after its reply. Returns their number.
std::size_t RespConnection::kill_clients(const std::function<bool(const ClientRecord&)>& fits, bool skip_me) {
  Store& store = site_->store();
  std::vector<std::uint64_t> found;
  store.clients().each([&](const ClientRecord& record) {
    if (fits(record) && !(skip_me && record.id == id())) found.push_back(record.id);
  });
  for (const std::uint64_t one : found) {
    if (one == id()) {
      quitting_ = true;
      continue;
    }
    StoreSite& site = store.site(static_cast<unsigned>(one % store.shards()));
    site.loop().post([&site, number = one / store.shards()] {
      RespConnection* const connection = site.find(number);
      if (connection == nullptr) return;
      connection->abort(
          Error::of_connection(ErrorCode::cancelled, "another client ended the connection by CLIENT KILL"));
    });
  }
  return found.size();
}

void RespConnection::run_client(Arguments arguments, protocol::resp::ReplyWriter& to) {
  const std::string_view what = arguments[1];
  Clients& clients = site_->store().clients();
  const auto is = [&](std::string_view word) { return is_word(what, word); };
  const auto on_or_off = [&] { return is_word(arguments[2], "on") || is_word(arguments[2], "off"); };
  if (is("setname")) {
    if (check_name(arguments[2], to)) {
      clients.set(record_.name, arguments[2]);
      to.ok();
    }
  } else if (is("getname")) {
    record_.name.empty() ? to.null() : to.bulk(record_.name);
  } else if (is("id")) {
    to.number(static_cast<std::int64_t>(id()));
  } else if (is("info")) {
    to.verbatim(line_of(record_, site_->store().clock()));
  } else if (is("setinfo")) {
    const bool name = is_word(arguments[2], "lib-name");
    if (!name && !is_word(arguments[2], "lib-ver")) {
      return to.error("ERR Unrecognized option '" + std::string(arguments[2].substr(0, 128)) + "'");
    }
    if (!check_name(arguments[3], to)) return;
    clients.set(name ? record_.library : record_.library_version, arguments[3]);
    to.ok();
  } else if (is("no-evict") || is("no-touch")) {
    on_or_off() ? to.ok() : to.error(wrong_syntax);
  } else if (is("tracking")) {
    tracking_.set(arguments, to);
    clients.set(record_.tracking, tracking_.on() ? 1 : 0);
  } else if (is("caching")) {
    tracking_.set_caching(arguments, to);
  } else if (is("trackinginfo")) {
    tracking_.describe(to);
  } else if (is("pause")) {
    to.error("ERR clients cannot be paused");
  } else if (is("unpause")) {
    to.ok();  // None is paused.
  } else if (is("unblock")) {
    std::int64_t id = 0;
    if (!protocol::resp::parse_number(arguments[2], id)) return to.error("ERR value is not an integer or out of range");
    if (arguments.size() > 4) return to.error(wrong_syntax);
    if (arguments.size() == 4 && !is_word(arguments[3], "timeout") && !is_word(arguments[3], "error")) {
      return to.error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    }
    to.number(0);  // No command blocks its client.
  } else if (is("getredir")) {
    to.number(tracking_.on() ? 0 : -1);
  } else if (is("reply")) {
    if (is_word(arguments[2], "on")) return to.ok();
    const bool known = is_word(arguments[2], "off") || is_word(arguments[2], "skip");
    to.error(known ? std::string_view("ERR replies cannot be turned off") : wrong_syntax);
  } else if (is("list")) {
    list_clients(arguments, to);
  } else if (is("kill")) {
    Filter filter;
    if (arguments.size() == 3) {
      filter.address = arguments[2];
      filter.skip_me = false;
    } else if (!parse_filter(arguments, filter, to)) {
      return;
    }
    const std::size_t ended =
        kill_clients([&](const ClientRecord& record) { return filter.fits(record); }, filter.skip_me);
    if (arguments.size() > 3) return to.number(static_cast<std::int64_t>(ended));
    ended != 0 ? to.ok() : to.error("ERR No such client");
  }
}

void RespConnection::list_clients(Arguments arguments, protocol::resp::ReplyWriter& to) {
  std::vector<std::uint64_t> ids;
  bool others = false;
  if (arguments.size() == 4 && is_word(arguments[2], "type")) {
    others = !is_word(arguments[3], "normal");
  } else if (arguments.size() > 3 && is_word(arguments[2], "id")) {
    for (const std::string_view text : arguments.subspan(3)) {
      std::int64_t number = 0;
      if (!protocol::resp::parse_number(text, number)) return to.error("ERR Invalid client ID");
      ids.push_back(static_cast<std::uint64_t>(number));
    }
    std::sort(ids.begin(), ids.end());
  } else if (arguments.size() > 2) {
    return to.error(wrong_syntax);
  }
  std::string text;
  const std::int64_t now = site_->store().clock();
  site_->store().clients().each([&](const ClientRecord& record) {
    if (others || (!ids.empty() && !std::binary_search(ids.begin(), ids.end(), record.id))) return;
    text += line_of(record, now);
  });
  to.verbatim(text);
}

void RespConnection::run_command(Arguments arguments, protocol::resp::ReplyWriter& to) {
  const auto is = [&](std::string_view word) { return arguments.size() > 1 && is_word(arguments[1], word); };
  if (is("count")) return to.number(static_cast<std::int64_t>(all_commands().size()));
  if (is("docs")) return to.map(0);
  if (is("getkeys")) {
    const Arguments given = arguments.subspan(2);
    const Command* const command = find_command(given[0]);
    if (command == nullptr) return to.error("ERR Invalid command specified");
    const int size = static_cast<int>(given.size());
    if (size < std::abs(command->arity) || (command->arity > 0 && size > command->arity)) {
      return to.error("ERR Invalid number of arguments specified for command");
    }
    std::vector<std::string_view> keys;
    command->each_key(given, [&](std::string_view key) { keys.push_back(key); });
    if (keys.empty()) return to.error("ERR The command has no key arguments");
    to.array(keys.size());
    for (const std::string_view key : keys) to.bulk(key);
    return;
  }
  if (is("list")) {
    std::vector<std::string_view> names;
    const bool filtered = arguments.size() == 5 && is_word(arguments[2], "filterby");
    if (arguments.size() > 2 && !filtered) return to.error(wrong_syntax);
    const bool pattern = filtered && is_word(arguments[3], "pattern") && arguments[4].size() <= 128;
    for (const Command& command : all_commands()) {
      std::uint64_t steps = 0;
      if (!filtered || (pattern && matches_glob(arguments[4], command.name, steps))) names.push_back(command.name);
    }
    to.array(names.size());
    for (const std::string_view name : names) to.bulk(name);
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
    constexpr std::size_t empty_lists = 4;  // Categories of access, tips, descriptions of keys, and subcommands.
    to.array(6 + empty_lists);
    to.bulk(command->name);
    to.number(command->arity);
    to.array(1);
    to.status(command->writes ? "write" : "readonly");
    to.number(command->keys.first);
    to.number(command->keys.last);
    to.number(command->keys.step);
    for (std::size_t i = 0; i < empty_lists; ++i) to.array(0);
  }
}

}  // namespace hawser::kv
