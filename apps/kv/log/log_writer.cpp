#include "kv/log/log_writer.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "kv/log/log_file_name.h"

namespace hawser::kv {
LogWriter::LogWriter(Descriptor file, std::filesystem::path path, std::uint64_t bytes, const LogHeader& header,
                     LogSync sync, std::function<void()> advanced, std::size_t held_most,
                     std::chrono::milliseconds look_interval)
    : sync_(sync),
      held_most_(held_most),
      look_interval_(look_interval),
      advanced_(std::move(advanced)),
      file_(std::move(file), std::move(path), bytes, header),
      replacement_(file_),
      last_sync_(std::chrono::steady_clock::now()),
      last_check_(last_sync_),
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
  changed_.wait(lock, [this] { return queued_.bytes.size() + queued_.replacement.size() + writing_ < held_most_; });
  if (part.first) {
    queued_.replacement.clear();
    queued_.part = {};
  }
  queued_.bytes.take(bytes);
  queued_.replacement.take(replacement);
  queued_.path = path;
  queued_.part = {queued_.part.first || part.first, part.last};
  replacing_ = part.last;
  changed_.notify_all();
}

bool LogWriter::has_room() {
  const std::lock_guard lock(mutex_);
  return queued_.bytes.size() + queued_.replacement.size() + writing_ < held_most_ / 2;
}

LogWriter::Progress LogWriter::progress() {
  const std::lock_guard lock(mutex_);
  Progress now = progress_;
  progress_.replaced = false;
  progress_.replacement_error.clear();
  return now;
}

void LogWriter::wait_for_replacement() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !replacing_; });
}

void LogWriter::wait_for_disk(bool finally) {
  std::unique_lock lock(mutex_);
  finally_ |= finally;
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
  for (;;) {
    if (!progress_.error.empty()) {
      changed_.wait(lock, [this] { return has_work(); });
    } else if (!changed_.wait_until(lock, next_look(), [this] { return has_work(); }) &&
               !(file_.unsynced() && sync_due())) {
      lock.unlock();
      last_check_ = std::chrono::steady_clock::now();
      const bool same = file_.check().has_value();
      lock.lock();
      // Otherwise write() finds and reports it.
      if (same) continue;
    }
    Work taken = std::exchange(queued_, {});
    const Part part = taken.part;
    const bool replaces = !taken.replacement.empty() || part.last;
    writing_ = taken.bytes.size() + taken.replacement.size();
    const bool ending = ending_;
    const std::uint64_t disk_waits = disk_waits_;
    const bool disk_awaited = (sync_ != LogSync::never || finally_) && disk_waits != disk_waits_done_;
    const bool failed = !progress_.error.empty();
    changed_.notify_all();
    lock.unlock();

    pushed_ += taken.bytes.size();
    const bool due = sync_ == LogSync::always || sync_due();
    Result<void> done;
    if (!failed) done = write(taken.bytes, due || ending || disk_awaited);
    bool complete = done && !failed;  // The file has all bytes of push().
    Result<bool> ended = false;
    if (done && replaces) ended = replace(taken);
    const bool replaced = ended && *ended;
    complete |= replaced;
    if (replacement_.take_undecided()) done = fail(ended.error());
    // The parts of a replacement that will not be completed hold space.
    if (!done || ending) replacement_.discard();
    // The records are on the disk without it.
    if (complete && ending && file_.marker_due()) static_cast<void>(file_.append_marker());
    const auto name = LogFileName::of(file_.path().filename().string());
    taken = {};

    lock.lock();
    writing_ = 0;
    if (complete && !file_.unsynced()) progress_.durable = pushed_;
    progress_.file_bytes = file_.bytes();
    if (replaced && name) progress_.number = name->number;
    if (replaced) progress_.error.clear();
    if (!done) progress_.error = done.error().text;
    if (!done) progress_.changed = !failed && changed_by_others_;
    disk_waits_done_ = disk_waits;
    if (part.last || !ended || !done) {
      progress_.replaced |= replaced;
      if (!ended) progress_.replacement_error = ended.error().text;
      replacing_ = queued_.part.last;
    }
    changed_.notify_all();
    const bool finished = ending && queued_.empty();
    lock.unlock();
    advanced_();
    lock.lock();
    if (finished) return;
  }
}

std::chrono::steady_clock::time_point LogWriter::next_look() const noexcept {
  const auto look = last_check_ + look_interval_;
  return sync_ == LogSync::second && file_.unsynced() ? std::min(look, last_sync_ + sync_interval) : look;
}

bool LogWriter::sync_due() const noexcept {
  return sync_ == LogSync::second && std::chrono::steady_clock::now() >= last_sync_ + sync_interval;
}

// The bytes are in the file afterwards, and on the disk if `synced`.
Result<void> LogWriter::write(LogPieces& bytes, bool synced) {
  changed_by_others_ = false;
  if (file_.marker_due() && !bytes.empty()) TRY(file_.append_marker());
  TRY(write_pieces(file_, bytes));
  if (synced && file_.unsynced()) {
    TRY(file_.sync());
    last_sync_ = std::chrono::steady_clock::now();
  }
  last_check_ = std::chrono::steady_clock::now();
  Result<void> same = file_.check();
  changed_by_others_ = !same;
  return same;
}

// Frees each piece when it is written.
Result<void> LogWriter::write_pieces(LogFile& file, LogPieces& bytes) {
  while (!bytes.empty()) {
    const std::string piece = bytes.take_front();
    TRY(file.append(piece));
    const std::lock_guard lock(mutex_);
    writing_ -= piece.size();
    changed_.notify_all();
  }
  return {};
}

// Returns true if the replacement has become the file. A failure leaves the file as it is. It concerns the replacement
// only.
Result<bool> LogWriter::replace(Work& work) {
  if (work.part.first) TRY(replacement_.begin(file_, work.path));
  if (!replacement_.exists()) return false;  // It lacks a part that could not be written.
  if (const Result<void> written = write_pieces(replacement_.file(), work.replacement); !written) {
    replacement_.discard();
    return fail(written.error());
  }
  if (!work.part.last) return false;
  TRY(replacement_.complete(file_, work.path));
  return true;
}

}  // namespace hawser::kv
