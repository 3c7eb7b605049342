#include "kv/reply_lengths.h"

#include <algorithm>

#include "kv/transaction.h"
#include "protocol/resp/number.h"

namespace hawser::kv {

std::size_t ReplyLengths::of_reply(const Command& command, Arguments arguments) {
  std::size_t bytes = 0;
  if (command.route == CommandRoute::all_list) {
    for (unsigned i = 0; i < store_.shards(); ++i) bytes += bytes_of_keys(store_.site(i), arguments[1], scanned_);
  } else if (Transaction::replies_with_value(command, arguments)) {
    command.each_key(arguments, [&](std::string_view key) { bytes += of_value(key); });
  }
  return bytes;
}

std::size_t ReplyLengths::of_value(std::string_view name) {
  const Key key = store_.key(name);
  if (const auto found = written_.find(key.hash); found != written_.end()) return found->second;
  StoreSite& site = store_.site(store_.shard_of(key.hash));
  const Entry* const entry = site.shard().find(key, site.now(), false);
  return entry == nullptr ? 0 : entry->value_bytes;
}

void ReplyLengths::raise(std::string_view key, std::size_t bytes) {
  written_[store_.key(key).hash] = std::max(of_value(key), bytes);
}

// Numbers are short.
void ReplyLengths::add_write(const Command& command, Arguments arguments) {
  const std::string_view name = command.name;
  const std::size_t value_max = store_.options().value_bytes_max;
  const auto offset = [&](std::uint64_t most) -> std::size_t {
    std::int64_t number = 0;
    const bool valid = protocol::resp::parse_number(arguments[2], number) && number >= 0;
    return valid && static_cast<std::uint64_t>(number) <= most ? static_cast<std::size_t>(number) : 0;
  };
  if (name == "set" || name == "setnx" || name == "getset") {
    raise(arguments[1], arguments[2].size());
  } else if (name == "setex" || name == "psetex") {
    raise(arguments[1], arguments[3].size());
  } else if (name == "mset" || name == "msetnx") {
    for (std::size_t i = 1; i + 1 < arguments.size(); i += 2) raise(arguments[i], arguments[i + 1].size());
  } else if (name == "append") {
    raise(arguments[1], std::min(of_value(arguments[1]) + arguments[2].size(), value_max));
  } else if (name == "setrange") {
    raise(arguments[1], std::min(offset(value_max) + arguments[3].size(), value_max));
  } else if (name == "setbit") {
    raise(arguments[1], std::min(offset(value_max * 8) / 8 + 1, value_max));
  } else if (name == "rename" || name == "renamenx" || name == "copy") {
    raise(arguments[2], of_value(arguments[1]));
  } else if (name == "bitop") {
    std::size_t longest = 0;
    for (const std::string_view source : arguments.subspan(3)) longest = std::max(longest, of_value(source));
    raise(arguments[2], longest);
  }
}

}  // namespace hawser::kv
