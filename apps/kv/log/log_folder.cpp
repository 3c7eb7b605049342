#include "kv/log/log_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/kernel_random.h"
#include "base/try.h"
#include "kv/log/log_file.h"
#include "kv/log/log_file_name.h"
#include "kv/log/log_format.h"
#include "kv/log/mapped_file.h"
#include "kv/log/run_files.h"
#include "kv/store.h"

namespace hawser::kv {
namespace {

namespace fs = std::filesystem;

// Names in the folder of a log.
const std::string run_prefix = "run-";
const std::string kept_prefix = "cut-";

std::unexpected<Error> used_error(const fs::path& folder) {
  return fail(ErrorCode::unavailable,
              "another process uses the log in " + folder.string() + " (--log): end it, or use another folder");
}

// Makes a folder whose name is on the disk afterwards, as those of its parents that did not exist.
Result<void> make_folder(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> missing;
  for (fs::path path = fs::absolute(folder); path.has_relative_path() && !fs::exists(path, error);
       path = path.parent_path()) {
    missing.push_back(path);
  }
  fs::create_directories(folder, error);
  if (error) return log_folder_error("make the folder", folder, error.message());
  for (const fs::path& path : missing) {
    TRY(sync_folder(path.parent_path()));
  }
  return {};
}

// Returns the folder, locked until the descriptor is closed; none if its file system does not lock folders. Fails if
// another process has locked it.
Result<Descriptor> lock_run(const fs::path& folder, const fs::path& run) {
  Descriptor locked(::open(run.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!locked.valid()) return log_folder_error("open the folder", run, std::strerror(errno));
  if (flock(locked.get(), LOCK_EX | LOCK_NB) == 0) return locked;
  if (errno != EWOULDBLOCK) return Descriptor();
  return used_error(folder);
}

// Removes the tails of files (LogFolder::keep_tail) apart from those of the last runs.
void remove_old_tails(const fs::path& folder) {
  std::map<std::uint64_t, std::vector<fs::path>> runs;
  (void)each_entry(folder, [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename();
    const std::size_t shard = name.find("-shard-");
    if (shard == std::string::npos || !LogFileName::of(name.substr(shard + 1))) return;
    if (const auto run = number_in_name(name.substr(0, shard), kept_prefix, "")) runs[*run].push_back(entry.path());
  });
  while (runs.size() > LogFolder::kept_runs_max) {
    for (const fs::path& path : runs.begin()->second) unlink(path.c_str());
    runs.erase(runs.begin());
  }
}

// Removes the files of a run, and its folder if nothing else is in it: others may have folders of that name.
void remove_run(const fs::path& run) {
  (void)each_entry(run, [](const fs::directory_entry& entry) {
    std::string name = entry.path().filename();
    if (name.ends_with(".tmp")) name.resize(name.size() - 4);
    if (LogFileName::of(name)) unlink(entry.path().c_str());
  });
  rmdir(run.c_str());
}

// A crash leaves two runs when it comes before the older one is removed. Fails if the one with the largest number is
// not the newest.
Result<void> check_runs(const std::multimap<std::uint64_t, fs::path>& runs) {
  const fs::path& last = runs.rbegin()->second;
  const std::optional<LogHeader> used = run_header(last);
  constexpr std::string_view remedy = ": move the one that is not to count out of the folder";
  for (const auto& [number, path] : runs) {
    if (path == last) continue;
    if (number == runs.rbegin()->first) {
      return log_folder_error("use the log in", last,
                              "the number of " + path.string() + " is the same" + std::string(remedy));
    }
    if (!used) continue;
    const std::optional<LogHeader> other = run_header(path);
    if (!other || (other->log_first != used->log_first && !follows(other->log_first, used->log_first))) continue;
    return log_folder_error("use the log in", last,
                            "it has the largest number, and " + path.string() +
                                (other->log_first == used->log_first ? " is a copy of it" : " was written later") +
                                std::string(remedy));
  }
  return {};
}

}  // namespace

Result<LogReport> LogFolder::open(Store& store, const LogOptions& options) {
  TRY(make_folder(options.folder));
  TRY(lock(options.folder));
  std::multimap<std::uint64_t, fs::path> runs;  // "run-3" and "run-03" have one number.
  std::vector<fs::path> incomplete;
  const std::error_code error = each_entry(options.folder, [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename();
    std::error_code ignored;
    if (!fs::is_directory(entry.symlink_status(ignored))) return;
    if (const auto number = number_in_name(name, run_prefix, "")) runs.emplace(*number, entry.path());
    if (number_in_name(name, run_prefix, ".tmp")) incomplete.push_back(entry.path());
  });
  if (error) return log_folder_error("read the folder", options.folder, error.message());
  for (const auto& [number, path] : runs) TRY(lock_runs(options.folder, {&path, 1}));
  TRY(lock_runs(options.folder, incomplete));
  LogReport report;
  if (!runs.empty()) {
    TRY(check_runs(runs));
    TRY(load(store, runs.rbegin()->second, report));
  }
  for (const fs::path& path : incomplete) remove_run(path);
  const std::uint64_t number = runs.empty() ? 1 : runs.rbegin()->first + 1;
  const fs::path run = options.folder / (run_prefix + std::to_string(number));
  fs::path made = run;
  made += ".tmp";
  if (const Result<void> begun = begin_run(store, options, made, run); !begun) {
    remove_run(made);  // The disk may be full.
    return fail(begun.error());
  }
  for (const auto& earlier : runs) remove_run(earlier.second);
  runs_.erase(runs_.begin(), runs_.end() - 1);
  if (!report.kept.empty()) remove_old_tails(options.folder);
  return report;
}

// The kernel releases the locks when the process ends.
Result<void> LogFolder::lock(const fs::path& folder) {
  const fs::path path = folder / "lock";
  lock_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_.valid()) return log_folder_error("make", path, std::strerror(errno));
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return {};
  if (errno == EWOULDBLOCK) return used_error(folder);
  return log_folder_error("lock", path, std::strerror(errno));
}

// Another process may have the folder although this one has locked the file `lock`: somebody has removed the file that
// the other one has locked. That one has locked the folder of its run, which lasts as long as what it writes.
Result<void> LogFolder::lock_runs(const fs::path& folder, std::span<const fs::path> runs) {
  for (const fs::path& run : runs) {
    TRY(Descriptor locked, lock_run(folder, run));
    runs_.push_back(std::move(locked));
  }
  return {};
}

// ---- Reading ----

Result<void> LogFolder::load(Store& store, const fs::path& run, LogReport& report) {
  TRY(const auto newest, find_run_files(run));
  if (newest.empty()) {
    return log_folder_error("read the log in", run,
                            "it has no file of a log: use another folder, or give it another name");
  }
  std::vector<CheckedFile> files;
  for (const auto& [shard, path] : newest) {
    files.push_back({.path = path});
    CheckedFile& file = files.back();
    TRY(check_file(file, report));
    if (file.header.shard != shard || shard >= file.header.shards || !file.header.same_log(files.front().header)) {
      return log_folder_error("use the log", file.path,
                              "it is the file of shard " + std::to_string(file.header.shard) + " of " +
                                  std::to_string(file.header.shards) +
                                  (file.header.same_log(files.front().header) ? "" : " of another log") +
                                  ": restore the folder from a copy");
    }
  }
  const std::uint32_t shards = files.front().header.shards;
  log_first_ = files.front().header.log_first;
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    if (newest.contains(shard)) continue;
    return log_folder_error("read the log in", run,
                            "it has the files of " + std::to_string(files.size()) + " of " + std::to_string(shards) +
                                " shards, and the file of shard " + std::to_string(shard) + " (shard-" +
                                std::to_string(shard) + ".*.log) is missing: restore the folder from a copy");
  }
  // Entries have new versions after a start, which no entry has had.
  for (unsigned i = 0; i < store.shards(); ++i) {
    store.site(i).shard().raise_version(version_max_ + 1);
    store.site(i).shard().begin_reading();
  }
  for (const CheckedFile& file : files) {
    TRY(load_file(store, file.path, file.begin));
  }
  for (const CheckedFile& file : files) {
    TRY(keep_tail(file, run, report));
  }
  const std::int64_t now = store.clock();
  for (unsigned i = 0; i < store.shards(); ++i) {
    Shard& shard = store.site(i).shard();
    shard.remove_expired(now, shard.buckets());
    shard.end_reading();
  }
  return {};
}

// Reads all of a file. Records before the last one of kind `clear` do not count.
Result<void> LogFolder::check_file(CheckedFile& checked, LogReport& report) {
  const fs::path& path = checked.path;
  MappedFile file;
  TRY(file.open(path));
  LogReader reader(file.text());
  const auto damaged = [&](const Error& error) {
    return fail(ErrorCode::unavailable, "cannot use the log " + path.string() + ": " + error.text);
  };
  const Result<LogHeader> header = reader.header();
  if (!header) return damaged(header.error());
  checked.header = *header;
  checked.begin = reader.offset();
  for (;;) {
    const Result<std::optional<EffectRecord>> next = reader.next();
    if (!next) return damaged(next.error());
    if (!*next) break;
    const EffectRecord& record = **next;
    const std::size_t key_bytes_max = Shard::key_bytes_max;
    if (record.key.size() > key_bytes_max || record.version > INT64_MAX) {
      return damaged(Error::of_call(ErrorCode::protocol_error,
                                    "the record that ends at offset " + std::to_string(reader.offset()) +
                                        " has a key of " + std::to_string(record.key.size()) + " bytes (at most " +
                                        std::to_string(key_bytes_max) + ") and version " +
                                        std::to_string(record.version) + " (at most 2^63 - 1)"));
    }
    ++report.records;
    version_max_ = std::max(version_max_, (*next)->version);
    if ((*next)->kind == LogKind::clear) checked.begin = reader.offset();
  }
  ++report.files;
  checked.end = reader.offset();
  if (reader.cut_bytes() != 0) {
    ++report.cut_files;
    report.cut_bytes += reader.cut_bytes();
  }
  return {};
}

// Executes the records as the server did before: an entry that has expired by now may have a later record that extends
// or removes its expiry. So nothing expires while a file is read.
Result<void> LogFolder::load_file(Store& store, const fs::path& path, std::size_t begin) {
  MappedFile file;
  TRY(file.open(path));
  LogReader reader(file.text());
  static_cast<void>(reader.header());
  reader.skip_to(begin);
  for (;;) {
    const Result<std::optional<EffectRecord>> next = reader.next();
    if (!next || !*next) break;
    const EffectRecord& record = **next;
    if (record.kind == LogKind::synced || record.kind == LogKind::clear) continue;
    const Key key = store.key(record.key);
    Shard& shard = store.site(store.shard_of(key.hash)).shard();
    Entry* const present = shard.find(key, never_expired, false);
    if (record.kind == LogKind::remove) {
      if (present != nullptr) shard.remove(*present);
    } else if (record.kind == LogKind::expiry) {
      if (present != nullptr) shard.set_expiry(*present, record.expires_at);
    } else if (shard.set(key, record.value, record.expires_at) == nullptr) {
      return fail(ErrorCode::limit_exceeded, "the log " + path.string() + " has more entries than --memory (" +
                                                 std::to_string(store.options().memory_bytes) +
                                                 " bytes, and a quarter more at a start) has room for: raise it");
    }
  }
  return {};
}

// The file "cut-R-shard-S.M.log" has the bytes at the end of a file of the run R that are not used: the file itself is
// removed.
Result<void> LogFolder::keep_tail(const CheckedFile& checked, const fs::path& run, LogReport& report) {
  MappedFile file;
  TRY(file.open(checked.path));
  const std::string_view tail = file.text().substr(checked.end);
  if (tail.empty()) return {};
  const fs::path kept = run.parent_path() / (kept_prefix + run.filename().string().substr(run_prefix.size()) + "-" +
                                             checked.path.filename().string());
  TRY(Descriptor created, create_log_file(kept));
  Result<void> done = write_all(created.get(), tail, kept);
  if (done) done = sync_file(created.get(), kept);
  if (!done) unlink(kept.c_str());
  if (done) report.kept.push_back(kept);
  return done;
}

// ---- A new run ----

// Writes the files into the folder `made`, which then gets the name `run`.
Result<void> LogFolder::begin_run(Store& store, const LogOptions& options, const fs::path& made, const fs::path& run) {
  if (mkdir(made.c_str(), 0777) != 0) return log_folder_error("make the folder", made, std::strerror(errno));
  TRY(lock_runs(options.folder, {&made, 1}));
  struct MadeFile {
    Descriptor file;
    std::uint64_t bytes;
    LogHeader header;
  };
  std::vector<MadeFile> files;
  LogHeader header{.log_first = log_first_ ? *log_first_ + 1 : kernel_random(),
                   .log_second = kernel_random(),
                   .shards = store.shards()};
  for (unsigned i = 0; i < store.shards(); ++i) {
    header.shard = i;
    header.file = kernel_random();
    const fs::path path = made / LogFileName{.shard = i}.text();
    TRY(Descriptor created, create_log_file(path));
    Descriptor file = std::move(created);
    std::uint64_t bytes = 0;
    std::string text = log_header(header);
    const auto write = [&]() -> Result<void> {
      bytes += text.size();
      Result<void> written = write_all(file.get(), text, path);
      text.clear();
      return written;
    };
    std::uint64_t cursor = 0;
    Result<void> done;
    do {
      cursor = store.site(i).shard().scan(cursor, never_expired, [&](Entry& entry) {
        append_record(text, {.kind = LogKind::set,
                             .key = entry.key(),
                             .value = entry.value(),
                             .expires_at = entry.expires_at,
                             .version = entry.version});
      });
      if (text.size() >= std::size_t{1} << 20) done = write();
    } while (done && cursor != 0);
    if (done) done = write();
    if (done) done = sync_file(file.get(), path);
    if (done) {
      text = synced_record(header, bytes);
      done = write();
    }
    if (done) done = sync_file(file.get(), path);
    if (!done) return done;
    files.push_back({std::move(file), bytes, header});
  }
  TRY(sync_folder(made));
  if (rename(made.c_str(), run.c_str()) != 0) return log_folder_error("rename", made, std::strerror(errno));
  TRY(sync_folder(options.folder));
  // In proportion to the memory of the store.
  constexpr std::size_t held_bytes_min = std::size_t{4} << 20;
  ShardLogOptions of_shard = options.shards;
  of_shard.held_bytes_max = std::clamp(store.options().memory_bytes / store.shards() / 8, held_bytes_min,
                                       std::max(held_bytes_min, options.shards.held_bytes_max));
  for (unsigned i = 0; i < store.shards(); ++i) {
    MadeFile& made_file = files[i];
    logs_.push_back(std::make_unique<ShardLog>(store.site(i).shard(), made_file.header, std::move(made_file.file),
                                               run / LogFileName{.shard = i}.text(), made_file.bytes, of_shard));
  }
  return {};
}

}  // namespace hawser::kv
