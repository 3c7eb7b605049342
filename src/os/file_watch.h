#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hawser/error.h"
#include "hawser/time.h"

namespace hawser {

class FileWatcher;

// Describes the file that a path leads to, such that another file and changed contents have another description. The
// clock of files has steps of some milliseconds: two changes within one step may have the same.
std::string file_stamp(const std::string& path);

// Notifies of changes of files by inotify. All objects of a process share one inotify descriptor and one thread, which
// exist while any object watches. The folders are watched, and not the files: a file that is replaced by another one is
// noticed, and so are symbolic links on the path that lead elsewhere, such as those that Kubernetes replaces.
// Thread-safe. After fork(), the objects of the child do nothing.
//
// Not noticed: changes by other hosts of a network file system, writes before the file is closed, and a folder that is
// replaced more slowly than it is looked for. So whoever uses this also looks at the files from time to time.
class FileWatch {
 public:
  // `changed`: something has happened to a file. Otherwise the time of call_later() has come. Called on the watching
  // thread, which serves all objects: it should end soon, and must not throw.
  using Notified = std::function<void(bool changed)>;
  explicit FileWatch(Notified notified);
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;
  ~FileWatch();

  // Events within this time are one notification.
  static constexpr Duration batch_time = std::chrono::milliseconds(5);
  // Limit of the folders of one object. Each is a watch of the user (fs.inotify.max_user_watches).
  static constexpr std::size_t folders_max = 256;

  // Watches these files from now on, in place of earlier ones. Call it again after each notification, because links may
  // lead elsewhere then. If it fails, fewer files or none are watched; the text says why, and what to do.
  Result<void> watch(const std::vector<std::string>& paths);
  // True if all files of the last watch() are watched.
  bool active() const noexcept { return active_.load(std::memory_order_relaxed); }
  // Notifies after that time. Does nothing before the first successful watch().
  void call_later(Duration delay) noexcept;
  // Ends all notifications. Waits for one that runs, so that it must not be called by one. Later calls of this object
  // do nothing.
  void stop() noexcept;

 private:
  friend class FileWatcher;

  struct Entry;

  std::mutex mutex_;  // Guards the following members.
  const std::unique_ptr<Entry> entry_;
  std::shared_ptr<FileWatcher> watcher_;
  bool stopped_ = false;
  std::atomic<bool> active_{false};
};

}  // namespace hawser
