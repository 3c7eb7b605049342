#include "kv/log/log_replacement.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/try.h"
#include "kv/log/log_file_name.h"

namespace hawser::kv {

LogReplacement::LogReplacement(const LogFile& log)
    : last_file_(log.header().file),
      folder_(::open(log.path().parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {}

// Somebody may have moved the folder away, and another server may have made the one that has its name now.
Result<void> LogReplacement::check_folder(const LogFile& log) const {
  const std::filesystem::path path = log.path().parent_path();
  struct stat ours{};
  struct stat named{};
  if (fstat(folder_.get(), &ours) != 0 || stat(path.c_str(), &named) != 0) return {};
  if (ours.st_dev == named.st_dev && ours.st_ino == named.st_ino) return {};
  return fail(ErrorCode::unavailable, "the folder " + path.string() + " has been replaced by another one");
}

Result<void> LogReplacement::begin(const LogFile& log, const std::filesystem::path& path) {
  file_.discard();
  TRY(check_folder(log));
  std::filesystem::path unfinished = path;
  unfinished += ".tmp";
  LogHeader header = log.header();
  header.file = ++last_file_;
  TRY(file_, LogFile::create(std::move(unfinished), header));
  return {};
}

// A start would read the file with the largest number if it did not know which one is the newest. Somebody may have
// renamed a file, or made a copy.
Result<void> LogReplacement::rename(const LogFile& log, const std::filesystem::path& path) {
  TRY(check_folder(log));
  // Somebody may make files again and again.
  constexpr int tries_max = 16;
  for (int i = 0; i < tries_max; ++i) {
    TRY(const std::filesystem::path unused, unused_log_path(path));
    TRY(const bool renamed, file_.rename_to(unused));
    if (renamed) return {};
  }
  return fail(ErrorCode::unavailable, "files appear in " + path.parent_path().string() + " that are not the server's");
}

Result<void> LogReplacement::write_end(const LogFile& log, const std::filesystem::path& path) {
  TRY(file_.sync());
  // With the marker it would count under any name.
  TRY(file_.check());
  TRY(file_.append_marker());
  TRY(file_.sync());
  return rename(log, path);
}

Result<void> LogReplacement::complete(LogFile& log, const std::filesystem::path& path) {
  if (Result<void> done = write_end(log, path); !done) {
    file_.discard();
    return done;
  }
  // From now on the new file is the one that is read. It has everything that the old one has.
  if (Result<void> named = sync_folder(path.parent_path()); !named) {
    undecided_ = true;
    left_.remove();
    left_ = std::exchange(file_, LogFile());
    return named;
  }
  LogFile old = std::exchange(log, std::exchange(file_, LogFile()));
  if (old.path() != log.path()) old.remove();
  left_.remove();
  return {};
}

}  // namespace hawser::kv
