#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/error.h"

namespace hawser::kv {

// The number in "PREFIX<number>SUFFIX".
std::optional<std::uint64_t> number_in_name(std::string_view name, std::string_view prefix, std::string_view suffix);

// The name of a log file, "shard-S.M.log".
struct LogFileName {
  std::uint64_t shard = 0;
  std::uint64_t number = 0;

  std::string text() const { return "shard-" + std::to_string(shard) + "." + std::to_string(number) + ".log"; }
  static std::optional<LogFileName> of(std::string_view text);
};

// `path`, or a path beside it with the next number that is larger than those of all files of its shard there. Folders
// do not count. Fails if the folder cannot be read, or if no number is larger.
Result<std::filesystem::path> unused_log_path(const std::filesystem::path& path);

}  // namespace hawser::kv
