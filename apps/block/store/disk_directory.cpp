#include "block/store/disk_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "block/random_id.h"
#include "block/store/disk_file.h"
#include "block/store/store_error.h"

namespace hawser::block {
namespace {

namespace fs = std::filesystem;

// They begin with a character that no volume's name begins with.
constexpr std::string_view new_prefix = ".new-";
constexpr std::string_view removed_prefix = ".removed-";

fs::path with_prefix(const fs::path& folder, std::string_view prefix, const std::string& name) {
  return folder / (std::string(prefix) + name);
}

// Removes the files of a volume, and the folder if nothing else is in it.
Result<void> remove_volume(const fs::path& folder) {
  for (const char* const file : {"data", "side"}) {
    if (unlink((folder / file).c_str()) != 0 && errno != ENOENT) {
      return system_fail(errno, "remove " + (folder / file).string());
    }
  }
  if (rmdir(folder.c_str()) != 0 && errno != ENOENT) return system_fail(errno, "remove " + folder.string());
  return {};
}

Result<int> lock_folder(const fs::path& folder, bool read_only) {
  const int lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0) return system_fail(errno, "open the folder " + folder.string());
  if (flock(lock, (read_only ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0) return lock;
  const int number = errno;
  ::close(lock);
  if (number != EWOULDBLOCK) return system_fail(number, "lock the folder " + folder.string());
  return store_fail(
      EBUSY, "another process serves the volumes in " + folder.string() + " (--data): end it, or use another folder");
}

// In the folder: DiskFileOptions::loss_mark of all its volumes.
constexpr std::string_view loss_mark = ".medium";

std::string first_line(const fs::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

// Identifies the last loss: the text of the mark, or the time of a loss that had no room for a text. A mark that cannot
// be read counts as a loss.
std::string last_loss(const fs::path& mark) {
  struct stat status{};
  if (lstat(mark.c_str(), &status) != 0) return errno == ENOENT ? "" : random_id();
  if (S_ISREG(status.st_mode) && status.st_size == 0) {
    return "at " + std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec);
  }
  std::ifstream file(mark);
  std::string line;
  std::getline(file, line);
  return file.fail() ? random_id() : line;
}

// A loss on a full disk changes the mark, and may not be able to make one. An empty line: there was no loss.
void make_loss_mark(const fs::path& mark) {
  const int file = ::open(mark.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return;
  if (::write(file, "\n", 1) != 1) unlink(mark.c_str());
  ::close(file);
}

// The kernel, from its start on, the folder, which may be a copy, and the last loss. A kernel without a name is a
// medium of this process only.
std::string medium_of(const fs::path& folder, int opened) {
  const std::string kernel = first_line("/proc/sys/kernel/random/boot_id");
  struct stat status{};
  (void)fstat(opened, &status);
  return "kernel " + (kernel.empty() ? random_id() : kernel) + " folder " + std::to_string(status.st_dev) + ":" +
         std::to_string(status.st_ino) + " " + last_loss(folder / loss_mark);
}

}  // namespace

DiskDirectory::DiskDirectory(fs::path folder, const DiskDirectoryOptions& options, int lock)
    : folder_(std::move(folder)), options_(options), lock_(lock), medium_(medium_of(folder_, lock)) {}

// The kernel releases the lock.
DiskDirectory::~DiskDirectory() { ::close(lock_); }

Result<std::unique_ptr<VolumeDirectory>> DiskDirectory::open(const fs::path& folder,
                                                             const DiskDirectoryOptions& options) {
  if (!options.read_only) {
    if (Result<void> made = make_folders(folder); !made) return std::unexpected(made.error());
  }
  const Result<int> lock = lock_folder(folder, options.read_only);
  if (!lock) return std::unexpected(lock.error());
  if (!options.read_only) make_loss_mark(folder / loss_mark);
  auto directory = std::make_unique<DiskDirectory>(folder, options, *lock);
  if (!options.read_only) {
    if (Result<void> removed = directory->remove_leftovers(); !removed) return std::unexpected(removed.error());
  }
  return directory;
}

Result<void> DiskDirectory::remove_leftovers() {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    for (const std::string_view prefix : {new_prefix, removed_prefix}) {
      if (name.starts_with(prefix) && valid_volume_name(std::string_view(name).substr(prefix.size()))) {
        leftovers.push_back(entry->path());
      }
    }
  }
  if (error) return system_fail(error.value(), "read the folder " + folder_.string());
  // A file that somebody put there is kept, and prevents no volume.
  for (const fs::path& path : leftovers) {
    const Result<void> removed = remove_volume(path);
    if (!removed) warnings_.push_back("what an earlier server left stays: " + removed.error().text);
  }
  return {};
}

Result<std::vector<std::string>> DiskDirectory::names() {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    std::error_code ignored;
    // A volume that has lost one of its files is opened too, so that its error is reported.
    const bool volume = fs::exists(entry->path() / "side", ignored) || fs::exists(entry->path() / "data", ignored);
    if (valid_volume_name(name) && volume) names.push_back(name);
  }
  if (error) return system_fail(error.value(), "read the folder " + folder_.string());
  return names;
}

// The side file is read and written in small parts, which the cache of the kernel keeps.
Result<VolumeFiles> DiskDirectory::open_files(const std::string& name, const fs::path& folder, bool create,
                                              bool read_only) {
  Result<std::unique_ptr<File>> data = DiskFile::open(folder / "data", {.create = create,
                                                                        .read_only = read_only,
                                                                        .direct = options_.direct,
                                                                        .lock = true,
                                                                        .loss_mark = folder_ / loss_mark,
                                                                        .shown_as = folder_ / name / "data"});
  if (!data) return std::unexpected(data.error());
  Result<std::unique_ptr<File>> side = DiskFile::open(folder / "side", {.create = create,
                                                                        .read_only = read_only,
                                                                        .loss_mark = folder_ / loss_mark,
                                                                        .shown_as = folder_ / name / "side"});
  if (!side) return std::unexpected(side.error());
  return VolumeFiles{std::move(*data), std::move(*side)};
}

Result<VolumeFiles> DiskDirectory::open(const std::string& name, bool read_only) {
  return open_files(name, folder_ / name, false, read_only || options_.read_only);
}

Result<VolumeFiles> DiskDirectory::create(const std::string& name) {
  if (options_.read_only) return store_fail(EROFS, "the server is read-only (--read-only)");
  std::error_code error;
  if (fs::exists(fs::symlink_status(folder_ / name, error))) {
    return store_fail(EEXIST, "there is a file or a volume " + name + " in " + folder_.string());
  }
  const fs::path made = with_prefix(folder_, new_prefix, name);
  if (Result<void> removed = remove_volume(made); !removed) return std::unexpected(removed.error());
  if (!fs::create_directory(made, error)) return system_fail(error.value(), "make the folder " + made.string());
  return open_files(name, made, true, false);
}

Result<void> DiskDirectory::publish(const std::string& name) {
  const fs::path made = with_prefix(folder_, new_prefix, name);
  if (Result<void> synced = sync_folder(made); !synced) return synced;
  std::error_code error;
  fs::rename(made, folder_ / name, error);
  if (error) return system_fail(error.value(), "rename " + made.string());
  Result<void> synced = sync_folder(folder_);
  if (!synced) (void)remove_volume(folder_ / name);
  return synced;
}

void DiskDirectory::abandon(const std::string& name) noexcept {
  (void)remove_volume(with_prefix(folder_, new_prefix, name));
}

Result<void> DiskDirectory::remove(const std::string& name) {
  if (options_.read_only) return store_fail(EROFS, "the server is read-only (--read-only)");
  const fs::path removed = with_prefix(folder_, removed_prefix, name);
  if (Result<void> before = remove_volume(removed); !before) return before;
  std::error_code error;
  fs::rename(folder_ / name, removed, error);
  if (error) return system_fail(error.value(), "rename " + (folder_ / name).string());
  if (Result<void> synced = sync_folder(folder_); !synced) return synced;
  (void)remove_volume(removed);  // The volume has gone. The next start tries again.
  return {};
}

}  // namespace hawser::block
