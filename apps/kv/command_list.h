#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kv/commands.h"

namespace hawser::kv {

// Commands that are executed later, with copies of their arguments, and the lengths of their replies, which lie one
// behind the other.
class CommandList {
 public:
  void add(const Command& command, Arguments arguments);
  std::size_t size() const noexcept { return items_.size(); }
  bool empty() const noexcept { return items_.empty(); }
  // True if one of them writes.
  bool writes() const noexcept { return writes_; }
  // The memory that the list uses.
  std::size_t bytes() const noexcept {
    return bytes_.size() + sizes_.size() * sizeof(std::uint32_t) + items_.size() * sizeof(Item);
  }
  // The replies of the command with this index and of all before it have so many bytes. Must be called for one command
  // after the other.
  void set_replies_end(std::size_t index, std::size_t bytes) noexcept { items_[index].replies_end = bytes; }
  // Calls `visit(command, arguments, reply_bytes)` for each command in order. The views are valid during the call.
  // `visit` may call set_replies_end() for the command.
  template <class Visit>
  void each(Visit visit) const {
    std::size_t byte = 0;
    std::size_t size = 0;
    std::size_t reply = 0;
    std::vector<std::string_view> arguments;
    for (const Item& item : items_) {
      arguments.clear();
      for (std::uint32_t i = 0; i < item.arguments; ++i) {
        arguments.push_back(std::string_view(bytes_).substr(byte, sizes_[size]));
        byte += sizes_[size++];
      }
      visit(*item.command, Arguments(arguments), item.replies_end - reply);
      reply = item.replies_end;
    }
  }

 private:
  struct Item {
    const Command* command;
    std::uint32_t arguments;
    std::size_t replies_end = 0;
  };

  std::vector<Item> items_;
  std::string bytes_;                 // The arguments of all items.
  std::vector<std::uint32_t> sizes_;  // Their lengths.
  bool writes_ = false;
};

}  // namespace hawser::kv
