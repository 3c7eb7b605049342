#include "kv/log/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "base/try.h"

namespace hawser::kv {
namespace {

std::unexpected<Error> file_error(std::string_view what, const std::filesystem::path& path, int error) {
  return fail(ErrorCode::unavailable,
              "cannot " + std::string(what) + " " + path.string() + ": " + std::strerror(error));
}

}  // namespace

Result<void> write_all(int file, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_error("write to", path, written == 0 ? ENOSPC : errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<Descriptor> create_log_file(const std::filesystem::path& path) {
  // A link that somebody has put there is removed, and not followed.
  unlink(path.c_str());
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600));
  if (!file.valid()) return file_error("create", path, errno);
  return file;
}

Result<void> sync_file(int file, const std::filesystem::path& path) {
  if (fdatasync(file) != 0) return file_error("sync", path, errno);
  return {};
}

Result<void> sync_folder(const std::filesystem::path& path) {
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid() || fsync(folder.get()) != 0) return file_error("sync the folder", path, errno);
  return {};
}

LogFile::LogFile(Descriptor file, std::filesystem::path path, std::uint64_t bytes, const LogHeader& header)
    : file_(std::move(file)), path_(std::move(path)), header_(header), bytes_(bytes) {}

Result<LogFile> LogFile::create(std::filesystem::path path, const LogHeader& header) {
  TRY(Descriptor created, create_log_file(path));
  LogFile file(std::move(created), std::move(path), 0, header);
  if (const Result<void> written = file.append(log_header(header)); !written) {
    file.remove();
    return fail(written.error());
  }
  return file;
}

Result<void> LogFile::append(std::string_view records) {
  unsynced_ = true;
  TRY(write_all(file_.get(), records, path_));
  bytes_ += records.size();
  return {};
}

Result<void> LogFile::append_marker() {
  const std::string marker = synced_record(header_, bytes_);
  TRY(write_all(file_.get(), marker, path_));
  bytes_ += marker.size();
  marker_due_ = false;
  return {};
}

Result<void> LogFile::sync() {
  TRY(sync_file(file_.get(), path_));
  marker_due_ |= std::exchange(unsynced_, false);
  return {};
}

// Its length. Fails if it has not its name.
Result<std::uint64_t> LogFile::named_bytes() const {
  struct stat ours{};
  struct stat named{};
  if (fstat(file_.get(), &ours) != 0) return file_error("read the status of", path_, errno);
  if (stat(path_.c_str(), &named) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return file_error("read the status of", path_, errno);
    return fail(ErrorCode::unavailable, path_.string() + " has been removed or renamed");
  }
  // A pipe has no length.
  if (named.st_dev == ours.st_dev && named.st_ino == ours.st_ino) {
    return S_ISREG(ours.st_mode) ? static_cast<std::uint64_t>(ours.st_size) : bytes_;
  }
  return fail(ErrorCode::unavailable, path_.string() + " has been replaced by another file");
}

Result<void> LogFile::check() const {
  TRY(const std::uint64_t bytes, named_bytes());
  if (bytes == bytes_) return {};
  return fail(ErrorCode::unavailable, path_.string() + " has " + std::to_string(bytes) + " bytes, and " +
                                          std::to_string(bytes_) + " were written: it has been changed");
}

Result<bool> LogFile::rename_to(const std::filesystem::path& path) {
  TRY(check());
  int renamed = renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE);
  if (renamed != 0 && errno == EEXIST) return false;
  if (renamed != 0 && (errno == EINVAL || errno == ENOSYS)) renamed = rename(path_.c_str(), path.c_str());
  if (renamed != 0) return file_error("rename", path_, errno);
  path_ = path;
  // Another file may have come between.
  TRY(check());
  return true;
}

void LogFile::remove() noexcept {
  if (file_.valid() && named_bytes()) unlink(path_.c_str());
  file_ = Descriptor();
}

void LogFile::discard() noexcept {
  if (file_.valid()) {
    [[maybe_unused]] const int cut = ftruncate(file_.get(), log_header_bytes);
  }
  remove();
}

}  // namespace hawser::kv
