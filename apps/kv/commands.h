#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kv/store.h"
#include "protocol/resp/reply_writer.h"

namespace hawser::kv {

using Arguments = std::span<const std::string_view>;

// Gives a command that reads or changes a shard everything that it needs.
struct Execution {
  Site& site;
  resp::ReplyWriter& out;
  Arguments arguments;  // With the name.
  // Hash of the first key, if the command has one.
  std::uint64_t hash = 0;

  Shard& shard() const noexcept { return site.shard(); }
  Key key() const noexcept { return {arguments[1], hash}; }
};

// How a command finds its shards.
enum class Route : std::uint8_t {
  connection,  // It needs none: the connection answers it.
  key,         // The shard of the first argument.
  keys_sum,    // The shard of each argument; the replies are numbers, whose sum is the reply.
  keys_list,   // The shard of each argument; the reply has an element for each.
  pairs,       // The shard of each second argument.
  all_sum,     // Every shard; the replies are numbers, whose sum is the reply.
  all_list,    // Every shard; the reply has the elements of all replies.
  all_status,  // Every shard; the replies are equal.
  cursor,      // The shard that the first argument, a cursor, names.
};

// Commands that the connection answers.
enum class Own : std::uint8_t { none, ping, echo, info, config, command, client, hello, select, quit, reset, auth };

struct Command {
  std::string_view name;  // In lower case.
  int arity = 0;          // Number of arguments with the name; negative: at least so many.
  Route route = Route::connection;
  bool writes = false;
  void (*run)(Execution& execution) = nullptr;
  Own own = Own::none;

  // True if a client may use it before it has sent the password.
  constexpr bool before_authentication() const noexcept {
    return own == Own::auth || own == Own::hello || own == Own::quit || own == Own::reset;
  }
};

// Returns the command of that name, in any case; null if there is none.
const Command* find_command(std::string_view name) noexcept;
std::span<const Command> all_commands() noexcept;

// Most bytes of one reply.
constexpr std::size_t reply_bytes_max = std::size_t{256} << 20;
constexpr std::string_view values_too_long = "ERR the reply exceeds 256 MiB: request fewer keys at once";
constexpr std::string_view keys_too_long = "ERR the reply exceeds 256 MiB: use SCAN";

// Cursors of SCAN name the shard in the upper bits.
constexpr unsigned cursor_shard_shift = 48;
// False if `text` is no cursor.
bool parse_cursor(std::string_view text, std::uint64_t& cursor) noexcept;

}  // namespace hawser::kv
