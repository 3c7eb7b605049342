#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/descriptor.h"
#include "hawser/error.h"
#include "kv/log/log_format.h"

namespace hawser::kv {

// Makes a file that is open at its end; one that exists is removed before.
Result<Descriptor> create_log_file(const std::filesystem::path& path);
// Writes all of `bytes`. An error names the file.
Result<void> write_all(int file, std::string_view bytes, const std::filesystem::path& path);
// Makes what was written to a file, or the names in a folder, durable.
Result<void> sync_file(int file, const std::filesystem::path& path);
Result<void> sync_folder(const std::filesystem::path& path);

// A log file to which records are appended. After an error, only remove() is useful. One thread.
class LogFile {
 public:
  // No file.
  LogFile() = default;
  // `file` has `bytes` bytes, begins with `header` and is at `path`.
  LogFile(Descriptor file, std::filesystem::path path, std::uint64_t bytes, const LogHeader& header);
  // Makes a file with that header. One that exists at `path` is removed before.
  static Result<LogFile> create(std::filesystem::path path, const LogHeader& header);

  Result<void> append(std::string_view records);
  // Appends a record that says that what is before it is on the disk.
  Result<void> append_marker();
  // The records, and not the name of the file, are on the disk afterwards.
  Result<void> sync();
  // Fails if the file has been removed, renamed or replaced, or has another length than what was written: a start would
  // not find the records.
  Result<void> check() const;
  // The file gets another name, in the same file system. False: another file has it. A file system that cannot ask for
  // that replaces the other one. Fails if the file has lost its own name, also if another file gets the new name in its
  // place.
  Result<bool> rename_to(const std::filesystem::path& path);
  // Removes the file, if there is one. Another file that has got its name stays.
  void remove() noexcept;
  // The same for a file that must never count, also if somebody has given it another name: only its header is left.
  void discard() noexcept;

  bool exists() const noexcept { return file_.valid(); }
  const std::filesystem::path& path() const noexcept { return path_; }
  const LogHeader& header() const noexcept { return header_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  // True if records were appended since the last sync().
  bool unsynced() const noexcept { return unsynced_; }
  // True if records were synced and no marker follows them.
  bool marker_due() const noexcept { return marker_due_; }

 private:
  Result<std::uint64_t> named_bytes() const;

  Descriptor file_;
  std::filesystem::path path_;
  LogHeader header_;
  std::uint64_t bytes_ = 0;
  bool unsynced_ = false;
  bool marker_due_ = false;
};

}  // namespace hawser::kv
