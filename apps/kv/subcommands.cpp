// The subcommands of CLIENT, CONFIG, COMMAND and OBJECT.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "kv/commands.h"
#include "kv/set_options.h"

namespace hawser::kv {
namespace {

struct Subcommand {
  std::string_view command;
  std::string_view name;
  int arity;  // As Command::arity.
};

constexpr Subcommand subcommands[] = {
    {"client", "setname", 3},      {"client", "getname", 2},   {"client", "id", 2},       {"client", "info", 2},
    {"client", "setinfo", 4},      {"client", "no-evict", 3},  {"client", "no-touch", 3}, {"client", "tracking", -3},
    {"client", "trackinginfo", 2}, {"client", "caching", 3},   {"client", "getredir", 2}, {"client", "reply", 3},
    {"client", "list", -2},        {"client", "kill", -3},     {"client", "pause", -3},   {"client", "unpause", 2},
    {"client", "unblock", -3},     {"client", "help", 2},      {"config", "get", -3},     {"config", "resetstat", 2},
    {"config", "help", 2},         {"command", "count", 2},    {"command", "docs", -2},   {"command", "info", -2},
    {"command", "list", -2},       {"command", "getkeys", -4}, {"command", "help", 2},    {"object", "encoding", 3},
    {"object", "freq", 3},         {"object", "idletime", 3},  {"object", "refcount", 3}, {"object", "help", 2},
};

std::string upper(std::string_view name) {
  std::string text(name);
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c & ~0x20);
  }
  return text;
}

}  // namespace

std::string subcommand_error(const Command& command, Arguments arguments) {
  if (arguments.size() < 2) return {};
  bool container = false;
  for (const Subcommand& one : subcommands) {
    if (one.command != command.name) continue;
    container = true;
    if (!is_word(arguments[1], one.name)) continue;
    const int size = static_cast<int>(arguments.size());
    if (size == one.arity || (one.arity < 0 && size >= -one.arity)) return {};
    return "ERR wrong number of arguments for '" + std::string(one.command) + "|" + std::string(one.name) + "' command";
  }
  if (!container) return {};
  constexpr std::size_t shown_max = 128;
  return "ERR unknown subcommand '" + std::string(arguments[1].substr(0, shown_max)) + "'. Try " + upper(command.name) +
         " HELP.";
}

bool asks_help(const Command& command, Arguments arguments) noexcept {
  return arguments.size() == 2 && is_word(arguments[1], "help") &&
         std::ranges::any_of(subcommands, [&](const Subcommand& one) { return one.command == command.name; });
}

void write_help(const Command& command, protocol::resp::ReplyWriter& out) {
  std::vector<std::string> lines;
  for (const Subcommand& one : subcommands) {
    if (one.command == command.name) lines.push_back(upper(one.name));
  }
  out.array(lines.size() + 1);
  out.status(upper(command.name) + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
  for (const std::string& line : lines) out.status(line);
}

}  // namespace hawser::kv
