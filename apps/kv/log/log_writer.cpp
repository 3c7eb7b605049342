#include "kv/log/log_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/kernel_random.h"
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

LogWriter::LogWriter(Descriptor file, std::filesystem::path path, std::uint64_t bytes, const LogHeader& header,
                     LogSync sync, std::function<void()> advanced, std::size_t held_most)
    : sync_(sync),
      held_most_(held_most),
      advanced_(std::move(advanced)),
      file_(std::move(file)),
      path_(std::move(path)),
      bytes_(bytes),
      header_(header),
      last_sync_(std::chrono::steady_clock::now()),
      progress_{.file_bytes = bytes} {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void LogWriter::push(LogPieces& bytes, LogPieces& replacement, const std::filesystem::path& path, Part part) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return queued_.size() + queued_replacement_.size() + writing_ < held_most_ || !progress_.error.empty();
  });
  if (progress_.error.empty()) {
    if (part.first) {
      queued_replacement_.clear();
      part_ = {};
      replacing_ = false;
    }
    queued_.take(bytes);
    queued_replacement_.take(replacement);
    queued_path_ = path;
    part_ = {part_.first || part.first, part.last};
    replacing_ |= part.last;
  }
  bytes.clear();
  replacement.clear();
  changed_.notify_all();
}

LogWriter::Progress LogWriter::progress() {
  const std::lock_guard lock(mutex_);
  Progress now = progress_;
  progress_.replaced = progress_.replacement_failed = false;
  return now;
}

void LogWriter::wait_for_replacement() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !replacing_; });
}

void LogWriter::wait_for_disk() {
  std::unique_lock lock(mutex_);
  const std::uint64_t wait = ++disk_waits_;
  changed_.notify_all();
  changed_.wait(lock, [this, wait] { return disk_waits_done_ >= wait || !progress_.error.empty(); });
}

void LogWriter::finish() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void LogWriter::run() {
  std::unique_lock lock(mutex_);
  const auto work = [this] {
    return !queued_.empty() || !queued_replacement_.empty() || part_.last || ending_ || disk_waits_ != disk_waits_done_;
  };
  for (;;) {
    if (sync_ == LogSync::second && unsynced_) {
      changed_.wait_until(lock, last_sync_ + sync_interval, work);
    } else {
      changed_.wait(lock, work);
    }
    LogPieces bytes = std::exchange(queued_, {});
    LogPieces replacement = std::exchange(queued_replacement_, {});
    const bool replaces = !replacement.empty();
    writing_ = bytes.size() + replacement.size();
    const std::filesystem::path path = queued_path_;
    const Part part = std::exchange(part_, {});
    const bool ending = ending_;
    const std::uint64_t disk_waits = disk_waits_;
    const bool disk_awaited = sync_ != LogSync::never && disk_waits != disk_waits_done_;
    changed_.notify_all();
    if (!progress_.error.empty()) {
      writing_ = 0;
      disk_waits_done_ = disk_waits;
      if (ending) return;
      continue;
    }
    lock.unlock();

    Result<void> done = write(bytes, false);
    const bool due = sync_ == LogSync::always ||
                     (sync_ == LogSync::second && std::chrono::steady_clock::now() >= last_sync_ + sync_interval);
    if (done && unsynced_ && (due || ending || disk_awaited)) done = sync();
    Result<bool> replaced = false;
    if (done && (replaces || part.last)) replaced = replace(replacement, path, part);
    if (broken_) done = fail(replaced.error());
    LogPieces nothing;
    if (done && ending) done = write(nothing, true);

    replacement.clear();
    lock.lock();
    writing_ = 0;
    progress_.durable = unsynced_ ? progress_.durable : pushed_;
    progress_.file_bytes = bytes_;
    if (!done) progress_.error = done.error().text;
    disk_waits_done_ = disk_waits;
    if (part.last || !replaced || !done) {
      progress_.replaced |= done && replaced && *replaced;
      progress_.replacement_failed |= !replaced;
      replacing_ = false;
    }
    changed_.notify_all();
    const bool finished = ending && queued_.empty() && queued_replacement_.empty();
    lock.unlock();
    advanced_();
    lock.lock();
    if (finished) return;
  }
}

// Afterwards the bytes are in the file, but perhaps not on the disk.
Result<void> LogWriter::write(LogPieces& bytes, bool marker_alone) {
  if (marker_due_ && (!bytes.empty() || marker_alone)) {
    const std::string marker = synced_record(header_, bytes_);
    TRY(write_all(file_.get(), marker, path_));
    bytes_ += marker.size();
    marker_due_ = false;
  }
  if (bytes.empty()) return {};
  const std::size_t size = bytes.size();
  unsynced_ = true;
  TRY(write_pieces(file_.get(), bytes, path_));
  bytes_ += size;
  pushed_ += size;
  return {};
}

// Frees each piece when it is written.
Result<void> LogWriter::write_pieces(int file, LogPieces& bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const std::string piece = bytes.take_front();
    TRY(write_all(file, piece, path));
    const std::lock_guard lock(mutex_);
    writing_ -= piece.size();
    changed_.notify_all();
  }
  return {};
}

Result<void> LogWriter::sync() {
  TRY(sync_file(file_.get(), path_));
  last_sync_ = std::chrono::steady_clock::now();
  unsynced_ = false;
  marker_due_ = true;
  return {};
}

// Returns true if the replacement has become the file. A failure leaves the file as it is. It concerns the replacement
// only.
Result<bool> LogWriter::replace(LogPieces& bytes, const std::filesystem::path& path, Part part) {
  const auto failed = [this](std::unexpected<Error> error) {
    discard_replacement();
    return error;
  };
  if (part.first) {
    discard_replacement();
    replacement_path_ = path;
    replacement_path_ += ".tmp";
    replacement_bytes_ = 0;
    Result<Descriptor> created = create_log_file(replacement_path_);
    if (!created) return failed(fail(created.error()));
    replacement_ = std::move(*created);
    replacement_header_ = header_;
    replacement_header_.file = kernel_random();
    const std::string header = log_header(replacement_header_);
    if (const Result<void> written = write_all(replacement_.get(), header, replacement_path_); !written)
      return failed(fail(written.error()));
    replacement_bytes_ = header.size();
  }
  if (!replacement_.valid()) return false;  // It lacks a part that could not be written.
  replacement_bytes_ += bytes.size();
  if (const Result<void> written = write_pieces(replacement_.get(), bytes, replacement_path_); !written)
    return failed(fail(written.error()));
  if (!part.last) return false;
  Result<void> synced = sync_file(replacement_.get(), replacement_path_);
  if (synced) {
    const std::string marker = synced_record(replacement_header_, replacement_bytes_);
    synced = write_all(replacement_.get(), marker, replacement_path_);
    replacement_bytes_ += marker.size();
  }
  if (synced) synced = sync_file(replacement_.get(), replacement_path_);
  if (!synced) return failed(fail(synced.error()));
  if (rename(replacement_path_.c_str(), path.c_str()) != 0)
    return failed(file_error("rename", replacement_path_, errno));
  // From now on the new file is the one that is read. It has everything that the old one has.
  if (Result<void> named = sync_folder(path.parent_path()); !named) {
    broken_ = true;
    return fail(named.error());
  }
  const std::filesystem::path old = std::exchange(path_, path);
  file_ = std::exchange(replacement_, Descriptor());
  bytes_ = replacement_bytes_;
  header_ = replacement_header_;
  unsynced_ = false;
  marker_due_ = false;
  if (old != path) unlink(old.c_str());
  return true;
}

void LogWriter::discard_replacement() noexcept {
  if (replacement_.valid()) unlink(replacement_path_.c_str());
  replacement_ = Descriptor();
}

}  // namespace hawser::kv
