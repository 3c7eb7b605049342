#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "kv/commands.h"

namespace hawser::kv {

// Counts the bytes of the values and lists of keys with which commands reply at most, before they are executed one
// behind the other. Keys that they write count with the longest value that they may have meanwhile. The shards of all
// keys are held.
class ReplyLengths {
 public:
  explicit ReplyLengths(Store& store) noexcept : store_(store) {}

  std::size_t of_reply(const Command& command, Arguments arguments);
  // The command is executed before those that follow.
  void add_write(const Command& command, Arguments arguments);
  // See Execution::scanned.
  std::uint64_t scanned() const noexcept { return scanned_; }

 private:
  std::size_t of_value(std::string_view key);
  void raise(std::string_view key, std::size_t bytes);

  Store& store_;
  std::unordered_map<std::uint64_t, std::size_t> written_;  // By the hash of the key.
  std::uint64_t scanned_ = 0;
};

}  // namespace hawser::kv
