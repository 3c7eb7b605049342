#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "hawser/error.h"
#include "kv/log/shard_log.h"

namespace hawser::kv {

class Store;

struct LogOptions {
  std::filesystem::path folder;  // Made if it does not exist.
  ShardLogOptions shards = {};
};

// The contents of the folder at the start.
struct LogReport {
  std::uint64_t files = 0;
  std::uint64_t records = 0;
  std::uint64_t cut_files = 0;  // Whose last record was not complete.
  std::uint64_t cut_bytes = 0;
  std::vector<std::filesystem::path> kept = {};  // Files of the folder that have these bytes.
};

// The folder of a store's log. One process has it at a time, also if somebody removes the file `lock`: the folders of
// the runs are locked, too. Each start reads the files of the run before, writes one file for each shard into a folder
// of this run, and then removes the files of the run before. So a start may have another number of shards. Bytes at the
// end of a file that are not used stay in the folder as files "cut-...".
class LogFolder {
 public:
  // The bytes that so many starts did not use are kept. Earlier ones are removed.
  static constexpr std::size_t kept_runs_max = 16;

  LogFolder() = default;

  // Reads the log into the shards of `store`, which are empty. Then their changes are logged to what logs() returns.
  Result<LogReport> open(Store& store, const LogOptions& options);
  std::vector<std::unique_ptr<ShardLog>>& logs() noexcept { return logs_; }

 private:
  Result<void> lock(const std::filesystem::path& folder);
  Result<void> lock_runs(const std::filesystem::path& folder, std::span<const std::filesystem::path> runs);
  Result<void> load(Store& store, const std::filesystem::path& run, LogReport& report);
  // A file that load() has checked.
  struct CheckedFile {
    std::filesystem::path path;
    LogHeader header = {};
    std::size_t begin = 0;  // Offset of the first record that counts.
    std::size_t end = 0;    // The bytes from here on are not used.
  };
  Result<void> check_file(CheckedFile& checked, LogReport& report);
  Result<void> load_file(Store& store, const std::filesystem::path& path, std::size_t begin);
  Result<void> keep_tail(const CheckedFile& file, const std::filesystem::path& run, LogReport& report);
  Result<void> begin_run(Store& store, const LogOptions& options, const std::filesystem::path& made,
                         const std::filesystem::path& run);

  Descriptor lock_;                         // The file `lock`. Another host sees that one, and not the others.
  std::vector<Descriptor> runs_;            // The folders of runs: this one, and at the start those before.
  std::uint64_t version_max_ = 0;           // The largest one of all records.
  std::optional<std::uint64_t> log_first_;  // LogHeader::log_first of the run before.
  std::vector<std::unique_ptr<ShardLog>> logs_;
};

}  // namespace hawser::kv
