#include "kv/log/run_files.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "kv/log/log_file_name.h"
#include "kv/log/mapped_file.h"

namespace hawser::kv {
namespace {

namespace fs = std::filesystem;

// A file of a shard.
struct Candidate {
  std::uint64_t number = 0;  // In its name.
  fs::path path;
  LogHeader header = {};
};

Result<LogHeader> header_of(const fs::path& path) {
  MappedFile file;
  TRY(file.open(path));
  Result<LogHeader> header = LogReader(file.text()).header();
  if (!header) return fail(ErrorCode::unavailable, "cannot use the log " + path.string() + ": " + header.error().text);
  return header;
}

constexpr std::string_view remedy = ": move the one that is not to count out of the folder";

// The longest one of copies of one file has everything that was written. Fails if they are not copies.
Result<const Candidate*> longest_copy(const std::vector<const Candidate*>& copies) {
  const Candidate* longest = copies.front();
  for (const Candidate* const copy : copies) {
    if (copy == longest) continue;
    MappedFile first;
    MappedFile second;
    TRY(first.open(longest->path));
    TRY(second.open(copy->path));
    const std::string_view one = first.text();
    const std::string_view other = second.text();
    const std::size_t common = std::min(one.size(), other.size());
    if (one.substr(0, common) != other.substr(0, common)) {
      const auto at = std::ranges::mismatch(one, other).in1 - one.begin();
      return fail(ErrorCode::unavailable, "cannot use the log: " + longest->path.string() + " and " +
                                              copy->path.string() + " are copies of one file and differ at offset " +
                                              std::to_string(at) + std::string(remedy));
    }
    if (other.size() > one.size()) longest = copy;
  }
  return longest;
}

// False: it was being written as the next file of its shard when somebody gave it this name. A file gets its name after
// a record that it is synced.
Result<bool> is_complete(const fs::path& path) {
  MappedFile file;
  TRY(file.open(path));
  LogReader reader(file.text());
  static_cast<void>(reader.header());
  for (;;) {
    const Result<std::optional<EffectRecord>> next = reader.next();
    // A start reports the damage of the file that counts.
    if (!next || (*next && (*next)->kind == LogKind::synced)) return true;
    if (!*next) return false;
  }
}

// Sorted by their numbers.
Result<fs::path> newest_of(std::uint64_t shard, std::vector<Candidate> files) {
  if (files.size() == 1) return std::move(files.front().path);
  for (Candidate& file : files) {
    const Candidate& other = &file == &files.front() ? files.back() : files.front();
    Result<LogHeader> header = header_of(file.path);
    if (!header) {
      return fail(ErrorCode::unavailable, header.error().text + ". The folder has " + other.path.string() +
                                              " of the same shard, too" + std::string(remedy));
    }
    file.header = *header;
    if (file.header.shard == shard && file.header.same_log(files.front().header)) continue;
    return fail(ErrorCode::unavailable, "cannot use the log " + file.path.string() + ": it is the file of shard " +
                                            std::to_string(file.header.shard) + " of " +
                                            std::to_string(file.header.shards) +
                                            (file.header.same_log(files.front().header) ? "" : " of another log") +
                                            ", and the folder has " + other.path.string() + std::string(remedy));
  }
  std::uint64_t newest = files.front().header.file;
  for (const Candidate& file : files) {
    if (!follows(newest, file.header.file)) newest = file.header.file;
  }
  std::vector<const Candidate*> copies;
  for (const Candidate& file : files) {
    if (file.header.file == newest) copies.push_back(&file);
  }
  TRY(const Candidate* const found, longest_copy(copies));
  TRY(const bool complete, is_complete(found->path));
  if (complete) return found->path;
  const Candidate& other = found == &files.front() ? files.back() : files.front();
  return fail(ErrorCode::unavailable, "cannot use the log " + found->path.string() +
                                          ": it is the newest file of the shard and is not complete. The folder has " +
                                          other.path.string() + ", too" + std::string(remedy));
}

}  // namespace

Result<std::map<std::uint64_t, fs::path>> find_run_files(const fs::path& run) {
  std::map<std::uint64_t, std::vector<Candidate>> by_shard;
  const std::error_code error = each_entry(run, [&](const fs::directory_entry& entry) {
    const auto name = LogFileName::of(entry.path().filename().string());
    if (name) by_shard[name->shard].push_back({.number = name->number, .path = entry.path()});
  });
  if (error) return log_folder_error("read the folder", run, error.message());
  std::map<std::uint64_t, fs::path> found;
  for (auto& [shard, files] : by_shard) {
    std::ranges::sort(files, {}, &Candidate::number);
    TRY(found[shard], newest_of(shard, std::move(files)));
  }
  return found;
}

std::optional<LogHeader> run_header(const fs::path& run) {
  std::optional<LogHeader> found;
  (void)each_entry(run, [&](const fs::directory_entry& entry) {
    if (found || !LogFileName::of(entry.path().filename().string())) return;
    if (const Result<LogHeader> header = header_of(entry.path())) found = *header;
  });
  return found;
}

}  // namespace hawser::kv
