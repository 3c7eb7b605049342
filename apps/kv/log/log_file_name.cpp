#include "kv/log/log_file_name.h"

#include <charconv>

namespace hawser::kv {

std::optional<std::uint64_t> number_in_name(std::string_view name, std::string_view prefix, std::string_view suffix) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size())
    return std::nullopt;
  name.remove_prefix(prefix.size());
  name.remove_suffix(suffix.size());
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

std::optional<LogFileName> LogFileName::of(std::string_view text) {
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto shard = number_in_name(text.substr(0, dot), "shard-", "");
  const auto number = number_in_name(text.substr(dot), ".", ".log");
  if (!shard || !number) return std::nullopt;
  return LogFileName{*shard, *number};
}

Result<std::filesystem::path> unused_log_path(const std::filesystem::path& path) {
  const std::optional<LogFileName> wanted = LogFileName::of(path.filename().string());
  if (!wanted) return path;
  LogFileName name = *wanted;
  std::filesystem::path last;  // Has the largest number that is possible.
  const std::error_code error = each_entry(path.parent_path(), [&](const std::filesystem::directory_entry& entry) {
    const std::optional<LogFileName> other = LogFileName::of(entry.path().filename().string());
    if (!other || other->shard != name.shard || other->number < name.number) return;
    std::error_code ignored;
    if (std::filesystem::is_directory(entry.symlink_status(ignored))) return;
    if (other->number == UINT64_MAX) {
      last = entry.path();
    } else {
      name.number = other->number + 1;
    }
  });
  if (error) {
    return fail(ErrorCode::unavailable,
                "cannot read the folder " + path.parent_path().string() + ": " + error.message());
  }
  if (!last.empty()) {
    return fail(ErrorCode::unavailable,
                last.string() + " has the largest number that a log file can have: move it out of the folder");
  }
  return path.parent_path() / name.text();
}

}  // namespace hawser::kv
