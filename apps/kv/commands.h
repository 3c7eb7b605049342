#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kv/store.h"
#include "protocol/resp/reply_writer.h"

namespace hawser::kv {

struct WatchedKeys;

using Arguments = std::span<const std::string_view>;

// A key that is found, and is seldom in a cache, is as much work as comparing so many characters.
constexpr std::uint64_t key_scan_cost = 64;
// The same for a bucket without keys, which follows the one before in memory.
constexpr std::uint64_t bucket_scan_cost = 8;
// A turn of a connection, or of its commands on another shard, ends after so much work: about half a millisecond.
constexpr std::uint64_t turn_work_max = 256 * 1024;

// Gives a command that reads or changes a shard everything that it needs.
struct Execution {
  StoreSite& site;
  protocol::resp::ReplyWriter& out;
  Arguments arguments;  // With the name.
  // Hash of the first key, if the command has one.
  std::uint64_t hash = 0;
  // True: the shards of all keys are held, and all shards for a command about all keys (ShardHolds). Otherwise all keys
  // belong to `site`.
  bool held = false;
  const std::shared_ptr<WatchedKeys>* watched = nullptr;  // WATCH adds keys to it.
  // The work of KEYS and SCAN, in all commands of an EXEC: characters that were compared, and key_scan_cost for each
  // key.
  std::uint64_t scanned = 0;
  // The same of commands that read or move a value: its bytes.
  std::uint64_t value_work = 0;

  Shard& shard() const noexcept { return site.shard(); }
  // The work of this command, in the same unit. 0: it is short.
  std::uint64_t work() const noexcept {
    constexpr std::size_t arguments_min = 64;
    return scanned + value_work + (arguments.size() < arguments_min ? 0 : arguments.size() * key_scan_cost);
  }
  Key key() const noexcept { return {arguments[1], hash}; }
};

// How a command finds its shards.
enum class CommandRoute : std::uint8_t {
  connection,  // It needs none: the connection answers it.
  key,         // The shard of the first argument.
  keys_sum,    // The shard of each argument; the replies are numbers, whose sum is the reply.
  keys_list,   // The shard of each argument; the reply has an element for each.
  together,    // The shards of all keys. If they are several, they are held meanwhile.
  all_sum,     // Every shard; the replies are numbers, whose sum is the reply.
  all_list,    // Every shard; the reply is a list of keys (KeyListing).
  all_status,  // Every shard; the replies are equal.
  cursor,      // The shard that the first argument, a cursor, names.
  random,      // Any shard that has keys.
};

// Commands that the connection answers.
enum class Own : std::uint8_t {
  none,
  ping,
  echo,
  info,
  config,
  command,
  client,
  hello,
  select,
  quit,
  reset,
  auth,
  time,
  wait,
  multi,
  exec,
  discard,
  watch,
  unwatch,
};

// The keys among the arguments, as COMMAND INFO describes them: from `first` to `last`, which counts from the end if it
// is negative, one for `step` arguments. 0: there are none.
struct KeyRange {
  int first = 0;
  int last = 0;
  int step = 0;
};

struct Command {
  std::string_view name;  // In lower case.
  int arity = 0;          // Number of arguments with the name; negative: at least so many.
  CommandRoute route = CommandRoute::connection;
  bool writes = false;
  void (*run)(Execution& execution) = nullptr;
  Own own = Own::none;
  KeyRange keys = keys_of_route(route);
  bool replies_value = is_reader(name);  // The reply has the values of the keys. That of SET may have one, too.

  static constexpr KeyRange keys_of_route(CommandRoute route) noexcept {
    if (route == CommandRoute::key) return {1, 1, 1};
    return route == CommandRoute::keys_sum || route == CommandRoute::keys_list ? KeyRange{1, -1, 1} : KeyRange{};
  }
  static constexpr bool is_reader(std::string_view name) noexcept {
    for (const std::string_view reader : {"get", "mget", "getrange", "substr", "getex", "getdel", "getset"}) {
      if (name == reader) return true;
    }
    return false;
  }
  template <class Visit>
  void each_key(Arguments arguments, Visit visit) const {
    if (keys.first == 0) return;
    const int last = keys.last < 0 ? static_cast<int>(arguments.size()) + keys.last : keys.last;
    for (int i = keys.first; i <= last; i += keys.step) visit(arguments[static_cast<std::size_t>(i)]);
  }
  // True if MULTI does not keep it for EXEC.
  constexpr bool at_once() const noexcept {
    return own == Own::multi || own == Own::exec || own == Own::discard || own == Own::watch || own == Own::quit ||
           own == Own::reset;
  }
  // True if a client may use it before it has sent the password.
  constexpr bool before_authentication() const noexcept {
    return own == Own::auth || own == Own::hello || own == Own::quit || own == Own::reset;
  }
};

// Returns the command of that name, in any case; null if there is none.
const Command* find_command(std::string_view name) noexcept;
// Why the subcommand that the second argument names is wrong, such as an unknown name; empty if it is right, or the
// command has no subcommands.
std::string subcommand_error(const Command& command, Arguments arguments);
// True if the second and last argument is HELP, and the command has subcommands.
bool asks_help(const Command& command, Arguments arguments) noexcept;
// Writes the names of the subcommands.
void write_help(const Command& command, protocol::resp::ReplyWriter& out);
std::span<const Command> all_commands() noexcept;
// The protocol of the replies behind a HELLO. Nothing: they have the one before, or it depends on the connection.
std::optional<int> hello_version(Arguments arguments);

// Bytes of the keys of a shard with which KEYS replies. Adds what it has scanned and compared to `scanned`.
std::size_t bytes_of_keys(StoreSite& site, std::string_view pattern, std::uint64_t& scanned);
// Longest pattern.
constexpr std::size_t pattern_bytes_max = 8192;
// The error for a longer pattern.
std::string pattern_too_long(std::string_view pattern);
constexpr std::string_view pattern_takes_long = "ERR the pattern takes too long for so many keys: use SCAN";

// Bytes of a reply beside each key of a list, such as "$60\r\n" and the end of the line.
constexpr std::size_t listed_key_overhead_bytes = 8;
// Most bytes of one reply.
constexpr std::size_t reply_bytes_max = std::size_t{256} << 20;
constexpr std::string_view values_too_long = "ERR the reply exceeds 256 MiB: request fewer keys at once";
constexpr std::string_view keys_too_long = "ERR the reply exceeds 256 MiB: use SCAN";

// Cursors of SCAN name the shard in their lowest bits, so that they are less than 2^53: some clients keep them as
// floating point numbers.
constexpr unsigned cursor_shard_bits = 8;
constexpr unsigned cursor_shard(std::uint64_t cursor) noexcept {
  return static_cast<unsigned>(cursor & ((1U << cursor_shard_bits) - 1));
}
// False if `text` is not a cursor.
bool parse_cursor(std::string_view text, std::uint64_t& cursor) noexcept;

}  // namespace hawser::kv
