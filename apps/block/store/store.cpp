#include "block/store/store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "block/store/store_error.h"

namespace hawser::block {
namespace {

Uuid random_uuid() {
  std::random_device device;
  Uuid uuid;
  for (std::size_t i = 0; i < uuid.size(); i += sizeof(unsigned)) {
    const unsigned part = device();
    std::memcpy(uuid.data() + i, &part, sizeof(part));
  }
  return uuid;
}

Result<std::shared_ptr<StoredVolume>> open_volume(const std::string& name, Result<VolumeFiles> files,
                                                  const StoredVolumeOptions& options) {
  if (!files) return std::unexpected(files.error());
  Result<std::unique_ptr<StoredVolume>> opened = StoredVolume::open(name, std::move(*files), options);
  if (!opened) return std::unexpected(opened.error());
  return std::shared_ptr<StoredVolume>(std::move(*opened));
}

}  // namespace

Result<std::unique_ptr<VolumeStore>> VolumeStore::open(std::unique_ptr<VolumeDirectory> directory,
                                                       const StoredVolumeOptions& options) {
  std::unique_ptr<VolumeStore> store(new VolumeStore(std::move(directory), options));
  const Result<std::vector<std::string>> names = store->directory_->names();
  if (!names) return std::unexpected(names.error());
  for (const std::string& name : *names) {
    store->volumes_.emplace(name, open_volume(name, store->directory_->open(name, options.read_only), options));
  }
  return store;
}

std::vector<std::string> VolumeStore::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& entry : volumes_) names.push_back(entry.first);
  return names;
}

std::vector<std::string> VolumeStore::warnings() const {
  std::vector<std::string> warnings = directory_->warnings();
  for (const std::string& name : names()) {
    const Opened volume = find(name);
    if (!volume) {
      warnings.push_back(volume.error().text);
    } else if (const Result<VolumeInfo> info = (*volume)->info(); info && !info->warning.empty()) {
      warnings.push_back(info->warning);
    }
  }
  return warnings;
}

Result<std::shared_ptr<StoredVolume>> VolumeStore::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto entry = volumes_.find(name);
  if (entry == volumes_.end()) return store_fail(ENOENT, "there is no volume \"" + std::string(name) + "\"");
  return entry->second;
}

// A volume gets its name when it can be used.
VolumeStore::Opened VolumeStore::make(const std::string& name, std::uint64_t size, bool preallocate) {
  Result<VolumeFiles> files = directory_->create(name);
  if (!files) return std::unexpected(files.error());
  if (Result<void> formatted = StoredVolume::format(*files, size, random_uuid(), preallocate); !formatted) {
    return std::unexpected(formatted.error());
  }
  Opened opened = open_volume(name, std::move(files), options_);
  if (!opened) return opened;
  if (Result<void> published = directory_->publish(name); !published) return std::unexpected(published.error());
  return opened;
}

// A volume that could not be made is listed with its error if its files have its name and could not be removed, so that
// it can be removed later.
void VolumeStore::note_remains(const std::string& name, const Error& error) {
  directory_->abandon(name);
  const Result<std::vector<std::string>> names = directory_->names();
  if (!names || std::ranges::find(*names, name) == names->end()) return;
  const std::lock_guard lock(mutex_);
  volumes_.emplace(name, std::unexpected(error));
}

Result<std::shared_ptr<StoredVolume>> VolumeStore::create(const std::string& name, std::uint64_t size,
                                                          bool preallocate) {
  if (!valid_volume_name(name)) {
    return store_fail(EINVAL,
                      "a name of a volume has 1 to 64 letters, digits, '.', '_' and '-', and begins with a letter or "
                      "a digit, not \"" +
                          name.substr(0, 65) + "\"");
  }
  if (options_.read_only) return store_fail(EROFS, "the server is read-only (--read-only)");
  const std::lock_guard changing(changing_);
  if (const Opened there = find(name); there || there.error().application_code != ENOENT) {
    return store_fail(EEXIST, "there is a volume " + name + " already");
  }
  Opened made = make(name, size, preallocate);
  if (!made) {
    note_remains(name, made.error());
    return made;
  }
  const std::lock_guard lock(mutex_);
  volumes_.emplace(name, made);
  return made;
}

Result<void> VolumeStore::remove(const std::string& name) {
  if (options_.read_only) return store_fail(EROFS, "the server is read-only (--read-only)");
  const std::lock_guard changing(changing_);
  {
    const std::lock_guard lock(mutex_);
    if (!volumes_.contains(name)) return store_fail(ENOENT, "there is no volume \"" + name + "\"");
  }
  // Writes that could not be flushed do not matter any more.
  const Opened volume = find(name);
  if (volume) (void)(*volume)->close();
  Result<void> removed = directory_->remove(name);
  {
    const std::lock_guard lock(mutex_);
    if (removed) {
      volumes_.erase(name);
    } else {
      volumes_.insert_or_assign(name, std::unexpected(removed.error()));
    }
  }
  // A connection that does nothing may have the volume for ever.
  if (removed && volume) (*volume)->release_removed();
  return removed;
}

Result<void> VolumeStore::close() {
  const std::lock_guard changing(changing_);
  Result<void> result;
  for (const std::string& name : names()) {
    const Opened volume = find(name);
    if (!volume) continue;
    const Result<void> closed = (*volume)->close();
    if (result && !closed) result = closed;
  }
  return result;
}

}  // namespace hawser::block
