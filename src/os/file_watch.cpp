#include "os/file_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <new>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "base/try.h"

namespace hawser {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Clock::time_point never = Clock::time_point::max();
// A folder itself has been removed, renamed or unmounted.
constexpr std::uint32_t folder_gone = IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED;
constexpr std::uint32_t watched = IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ATTRIB |
                                  IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
constexpr int links_max = 40;  // As the kernel's.

// Names that decide which file a path leads to, by folder.
using Places = std::map<std::string, std::set<std::string>>;

// Adds the file, and each symbolic link on the way to it. If the file does not exist, the first name that is missing is
// added instead.
void add_places(const std::string& path, Places& places) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  if (error) return;
  std::deque<std::filesystem::path> rest;
  for (const std::filesystem::path& part : whole.relative_path()) rest.push_back(part);
  std::filesystem::path folder = "/";
  int links = 0;
  while (!rest.empty()) {
    const std::filesystem::path name = std::move(rest.front());
    rest.pop_front();
    if (name.empty() || name == ".") continue;
    if (name == "..") {
      folder = folder.parent_path();
      continue;
    }
    const std::filesystem::path place = folder / name;
    const std::filesystem::file_status status = std::filesystem::symlink_status(place, error);
    const bool link = std::filesystem::is_symlink(status);
    const bool there = std::filesystem::exists(status);
    if (link || !there || rest.empty()) places[folder.string()].insert(name.string());
    if (!there) return;
    if (!link) {
      folder = place;
      continue;
    }
    if (++links > links_max) return;
    const std::filesystem::path target = std::filesystem::read_symlink(place, error);
    if (error) return;
    if (target.is_absolute()) folder = "/";
    const std::filesystem::path steps = target.relative_path();
    std::vector<std::filesystem::path> parts(steps.begin(), steps.end());
    rest.insert(rest.begin(), parts.begin(), parts.end());
  }
}

std::unexpected<Error> cannot_watch(const std::string& what, const std::string& remedy) {
  return fail(ErrorCode::unavailable, what + ": " + std::strerror(errno) + (remedy.empty() ? "" : " (" + remedy + ")"));
}

}  // namespace

struct FileWatch::Entry {
  explicit Entry(Notified function) : notified(std::move(function)) {}
  void call_at(Clock::time_point time, bool event) noexcept {
    due = std::min(due, time);
    changed |= event;
  }
  const Notified notified;
  // Guarded by the watcher's mutex.
  Clock::time_point due = never;
  bool changed = false;
  std::set<int> folders;
};

// The inotify descriptor and the thread that all FileWatch objects of a process share.
class FileWatcher {
 public:
  using Entry = FileWatch::Entry;

  // The watcher of this process; a new one if there is none.
  static Result<std::shared_ptr<FileWatcher>> of_process() {
    struct Slot {
      std::mutex mutex;
      std::weak_ptr<FileWatcher> watcher;
    };
    // Not destroyed, because a TlsServer may live until the process ends.
    static Slot& slot = *new Slot;
    const std::lock_guard lock(slot.mutex);
    if (std::shared_ptr<FileWatcher> present = slot.watcher.lock(); present != nullptr && present->is_ours()) {
      return present;
    }
    std::shared_ptr<FileWatcher> made(new FileWatcher);
    TRY(made->begin());
    slot.watcher = made;
    return made;
  }
  FileWatcher(const FileWatcher&) = delete;
  FileWatcher& operator=(const FileWatcher&) = delete;
  ~FileWatcher() {
    if (thread_.joinable() && is_ours()) {
      {
        const std::lock_guard lock(mutex_);
        ending_ = true;
      }
      wake();
      thread_.join();
    } else if (thread_.joinable()) {
      // The thread is the parent's, and its id may be that of a thread of this process: it must not be used, also not
      // by a destructor.
      alignas(std::thread) std::array<std::byte, sizeof(std::thread)> forgotten;
      new (forgotten.data()) std::thread(std::move(thread_));
    }
  }

  // False in a child of the process that has made it: the thread and the events are the parent's.
  bool is_ours() const noexcept { return process_ == ::getpid(); }

  Result<void> watch(Entry& entry, const Places& places) {
    const std::lock_guard lock(mutex_);
    entries_.insert(&entry);
    std::map<int, std::set<std::string>> now;
    Result<void> all;
    for (const auto& [folder, names] : places) {
      const int watch = ::inotify_add_watch(inotify_.get(), folder.c_str(), watched);
      if (watch >= 0) {
        now[watch].insert(names.begin(), names.end());
      } else if (all) {
        all = cannot_watch("the folder " + folder + " cannot be watched for changes",
                           errno == ENOSPC ? "raise fs.inotify.max_user_watches" : "");
      }
    }
    for (const int folder : entry.folders) {
      if (!now.contains(folder)) forget(entry, folder);
    }
    entry.folders.clear();
    for (auto& [folder, names] : now) {
      entry.folders.insert(folder);
      folders_[folder][&entry] = std::move(names);
    }
    return all;
  }
  void call_at(Entry& entry, Clock::time_point time) {
    {
      const std::lock_guard lock(mutex_);
      entry.call_at(time, false);
    }
    wake();
  }
  // Waits for a notification that runs.
  void remove(Entry& entry) {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return running_ != &entry; });
    entries_.erase(&entry);
    for (const int folder : entry.folders) forget(entry, folder);
    entry.folders.clear();
  }

 private:
  FileWatcher() = default;

  Result<void> begin() {
    inotify_ = Descriptor(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (!inotify_.valid()) {
      return cannot_watch("files cannot be watched for changes",
                          errno == EMFILE ? "raise fs.inotify.max_user_instances, or ulimit -n" : "");
    }
    bell_ = Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!bell_.valid()) return cannot_watch("files cannot be watched for changes", "");
    try {
      thread_ = std::thread([this] { serve(); });
    } catch (const std::system_error& error) {
      return fail(ErrorCode::unavailable,
                  "files cannot be watched for changes: no thread could be started: " + std::string(error.what()));
    }
    return {};
  }
  void wake() noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(::write(bell_.get(), &one, sizeof one));  // It fails only if it is set already.
  }
  void forget(Entry& entry, int folder) noexcept {
    const auto found = folders_.find(folder);
    if (found == folders_.end()) return;
    found->second.erase(&entry);
    if (!found->second.empty()) return;
    folders_.erase(found);
    ::inotify_rm_watch(inotify_.get(), folder);  // It may have ended by itself.
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      const auto next = std::ranges::min_element(entries_, {}, [](const Entry* const entry) { return entry->due; });
      const Clock::time_point due = next == entries_.end() ? never : (*next)->due;
      if (due <= Clock::now()) {
        Entry& entry = **next;
        entry.due = never;
        const bool changed = std::exchange(entry.changed, false);
        running_ = &entry;
        lock.unlock();
        entry.notified(changed);
        lock.lock();
        running_ = nullptr;
        idle_.notify_all();
        continue;
      }
      lock.unlock();
      wait(due);
      lock.lock();
      read_events();
    }
  }
  void wait(Clock::time_point until) noexcept {
    int timeout_ms = -1;
    if (until != never) {
      constexpr std::chrono::milliseconds once_max(60'000);
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      timeout_ms = static_cast<int>(std::clamp(rest, std::chrono::milliseconds(0), once_max).count());
    }
    std::array<pollfd, 2> waited = {pollfd{inotify_.get(), POLLIN, 0}, pollfd{bell_.get(), POLLIN, 0}};
    ::poll(waited.data(), waited.size(), timeout_ms);
    std::uint64_t rings = 0;
    static_cast<void>(::read(bell_.get(), &rings, sizeof rings));
  }
  void read_events() {
    alignas(inotify_event) std::array<char, 4096> bytes;
    const Clock::time_point due = Clock::now() + FileWatch::batch_time;
    const ssize_t size = ::read(inotify_.get(), bytes.data(), bytes.size());
    for (ssize_t at = 0; at < size;) {
      const auto* const event = reinterpret_cast<const inotify_event*>(bytes.data() + at);
      at += static_cast<ssize_t>(sizeof *event) + event->len;
      if ((event->mask & IN_Q_OVERFLOW) != 0) {
        for (Entry* const entry : entries_) entry->call_at(due, true);
        continue;
      }
      const auto found = folders_.find(event->wd);
      if (found == folders_.end()) continue;
      const std::string name = event->len == 0 ? std::string() : std::string(event->name);
      for (const auto& [entry, names] : found->second) {
        if ((event->mask & folder_gone) != 0 || names.contains(name)) entry->call_at(due, true);
      }
      // The number may be that of another folder later.
      if ((event->mask & IN_IGNORED) != 0) {
        for (const auto& [entry, names] : found->second) entry->folders.erase(event->wd);
        folders_.erase(found);
      }
    }
  }

  const pid_t process_ = ::getpid();
  Descriptor inotify_;
  Descriptor bell_;
  std::mutex mutex_;  // Guards the following members, and the entries.
  std::condition_variable idle_;
  std::set<Entry*> entries_;
  std::map<int, std::map<Entry*, std::set<std::string>>> folders_;  // The names that matter, by watch and entry.
  Entry* running_ = nullptr;
  bool ending_ = false;
  std::thread thread_;
};

std::string file_stamp(const std::string& path) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0) return "absent";
  const auto text = [](const timespec& time) {
    return " " + std::to_string(time.tv_sec) + "." + std::to_string(time.tv_nsec);
  };
  return std::to_string(facts.st_dev) + " " + std::to_string(facts.st_ino) + " " + std::to_string(facts.st_size) +
         text(facts.st_mtim) + text(facts.st_ctim);
}

FileWatch::FileWatch(Notified notified) : entry_(std::make_unique<Entry>(std::move(notified))) {}
FileWatch::~FileWatch() { stop(); }

Result<void> FileWatch::watch(const std::vector<std::string>& paths) {
  Places places;
  for (const std::string& path : paths) add_places(path, places);
  const std::lock_guard lock(mutex_);
  if (stopped_) return {};
  active_.store(false, std::memory_order_relaxed);
  if (places.size() > folders_max) {
    return fail(ErrorCode::limit_exceeded, "files in " + std::to_string(places.size()) +
                                               " folders are not watched for changes; put them into at most " +
                                               std::to_string(folders_max));
  }
  if (watcher_ == nullptr) {
    TRY(std::shared_ptr<FileWatcher> watcher, FileWatcher::of_process());
    watcher_ = std::move(watcher);
  }
  if (!watcher_->is_ours()) return {};
  TRY(watcher_->watch(*entry_, places));
  active_.store(true, std::memory_order_relaxed);
  return {};
}

void FileWatch::call_later(Duration delay) noexcept {
  const std::lock_guard lock(mutex_);
  if (watcher_ == nullptr || !watcher_->is_ours()) return;
  watcher_->call_at(*entry_, Clock::now() + delay);
}

void FileWatch::stop() noexcept {
  std::shared_ptr<FileWatcher> watcher;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    active_.store(false, std::memory_order_relaxed);
    watcher.swap(watcher_);
  }
  if (watcher != nullptr && watcher->is_ours()) watcher->remove(*entry_);
}

}  // namespace hawser
