#include "kv/forwarded_commands.h"

#include <string_view>

namespace hawser::kv {

void ForwardedCommands::add(ForwardedBatch& batch, const ForwardedBatch::Item& item, Arguments arguments) {
  const std::size_t before = batch.held_bytes();
  std::size_t added = 0;
  for (const std::string_view argument : arguments) added += argument.size();
  // A long argument has memory of its length, and not of the next power of two.
  constexpr std::size_t long_bytes = 64 * 1024;
  if (added >= long_bytes) batch.bytes.reserve(batch.bytes.size() + added);
  batch.items.push_back(item);
  for (const std::string_view argument : arguments) {
    batch.bytes.append(argument);
    batch.sizes.push_back(static_cast<std::uint32_t>(argument.size()));
  }
  bytes_ += batch.held_bytes() - before;
}

}  // namespace hawser::kv
