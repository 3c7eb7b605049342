#include "kv/command_list.h"

namespace hawser::kv {

void CommandList::add(const Command& command, Arguments arguments) {
  items_.push_back({.command = &command, .arguments = static_cast<std::uint32_t>(arguments.size())});
  for (const std::string_view argument : arguments) {
    bytes_.append(argument);
    sizes_.push_back(static_cast<std::uint32_t>(argument.size()));
  }
  writes_ |= command.writes;
}

}  // namespace hawser::kv
