#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

#include "base/descriptor.h"
#include "hawser/error.h"
#include "kv/log/log_file.h"

namespace hawser::kv {

// The file that is written to replace a log file. It has another name until it is complete. A start reads the complete
// file with the largest number in its name. One thread.
class LogReplacement {
 public:
  // No replacement is written. `log` is the file that will be replaced.
  explicit LogReplacement(const LogFile& log);
  LogReplacement(const LogReplacement&) = delete;
  LogReplacement& operator=(const LogReplacement&) = delete;

  // Discards an earlier replacement and begins one that will be at `path`, in the folder of `log`, or at a path with a
  // larger number.
  Result<void> begin(const LogFile& log, const std::filesystem::path& path);
  // True between begin() and complete() or discard().
  bool exists() const noexcept { return file_.exists(); }
  // Its records are appended here.
  LogFile& file() noexcept { return file_; }
  void discard() noexcept { file_.discard(); }
  // Makes the replacement durable and gives it its name. Then it is `log`, and the file that was `log` is removed. An
  // error discards the replacement and leaves `log` as it is: see take_undecided() for the exception.
  Result<void> complete(LogFile& log, const std::filesystem::path& path);
  // Returns true once after complete() has failed when the replacement had its name, perhaps not on the disk: it is not
  // known which file counts.
  bool take_undecided() noexcept { return std::exchange(undecided_, false); }

 private:
  Result<void> check_folder(const LogFile& log) const;
  Result<void> rename(const LogFile& log, const std::filesystem::path& path);
  Result<void> write_end(const LogFile& log, const std::filesystem::path& path);

  LogFile file_;
  LogFile left_;             // The last replacement whose name is perhaps not on the disk. The next one has more.
  std::uint64_t last_file_;  // LogHeader::file of the last replacement, or of the log; also if it is not used.
  Descriptor folder_;        // The folder of the log. None: it could not be opened.
  bool undecided_ = false;   // See take_undecided().
};

}  // namespace hawser::kv
