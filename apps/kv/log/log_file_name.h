#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

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

// Calls `visit` with each entry of a folder. Returns why the folder cannot be read, or not to its end: a range-based
// loop throws then, and a disk that fails must not end the process.
template <class Visit>
std::error_code each_entry(const std::filesystem::path& folder, Visit visit) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (const std::filesystem::directory_iterator end; !error && entry != end; entry.increment(error)) visit(*entry);
  return error;
}

// `path`, or a path beside it with the next number that is larger than those of all files of its shard there. Folders
// do not count. Fails if the folder cannot be read, or if no number is larger.
Result<std::filesystem::path> unused_log_path(const std::filesystem::path& path);

}  // namespace hawser::kv
