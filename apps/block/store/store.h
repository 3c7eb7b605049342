#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "block/store/stored_volume.h"
#include "block/store/volume_directory.h"

namespace hawser::block {

// The volumes of a server, by name. Every function blocks; any thread may call any of them. Errors are those of
// store_error.h.
class VolumeStore {
 public:
  // Opens all volumes. A volume that cannot be opened does not prevent the others: find() returns its error.
  static Result<std::unique_ptr<VolumeStore>> open(std::unique_ptr<VolumeDirectory> directory,
                                                   const StoredVolumeOptions& options);

  std::vector<std::string> names() const;  // Sorted.
  // VolumeDirectory::medium().
  std::string medium() const { return directory_->medium(); }
  // Messages for an operator: volumes that cannot be used or are read-only, and what could not be removed.
  std::vector<std::string> warnings() const;
  Result<std::shared_ptr<StoredVolume>> find(std::string_view name) const;
  Result<std::shared_ptr<StoredVolume>> create(const std::string& name, std::uint64_t size, bool preallocate);
  // Waits for the requests in progress. Later ones fail with ENODEV. The space of the volume is free when this returns.
  Result<void> remove(const std::string& name);
  // Closes all volumes. Returns the first error.
  Result<void> close();

 private:
  VolumeStore(std::unique_ptr<VolumeDirectory> directory, const StoredVolumeOptions& options)
      : directory_(std::move(directory)), options_(options) {}

  using Opened = Result<std::shared_ptr<StoredVolume>>;
  void note_remains(const std::string& name, const Error& error);
  Opened make(const std::string& name, std::uint64_t size, bool preallocate);

  std::mutex changing_;  // Held during changes of the directory.
  const std::unique_ptr<VolumeDirectory> directory_;
  const StoredVolumeOptions options_;
  mutable std::mutex mutex_;  // Held for a moment.
  std::map<std::string, Opened, std::less<>> volumes_;
};

}  // namespace hawser::block
