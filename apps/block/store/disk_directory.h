#pragma once

#include <filesystem>

#include "block/store/volume_directory.h"

namespace hawser::block {

struct DiskDirectoryOptions {
  bool read_only = false;
  bool direct = true;  // O_DIRECT for data, where the file system bears it.
};

// Volumes in a folder: NAME/data and NAME/side. One process has the folder at a time, or several read it only. The
// folder itself is locked, and the data of each volume: a file for the lock could be removed.
class DiskDirectory final : public VolumeDirectory {
 public:
  // Makes the folder if it does not exist. Removes what create() and remove() have left in a crash.
  static Result<std::unique_ptr<VolumeDirectory>> open(const std::filesystem::path& folder,
                                                       const DiskDirectoryOptions& options);
  // Takes the descriptor of the locked folder.
  DiskDirectory(std::filesystem::path folder, const DiskDirectoryOptions& options, int lock);
  ~DiskDirectory() override;

  Result<std::vector<std::string>> names() override;
  Result<VolumeFiles> open(const std::string& name, bool read_only) override;
  Result<VolumeFiles> create(const std::string& name) override;
  Result<void> publish(const std::string& name) override;
  Result<void> remove(const std::string& name) override;
  void abandon(const std::string& name) noexcept override;
  // The kernel, from its start on, and the folder, until a sync of one of its files fails.
  std::string medium() const override { return medium_; }
  // Names what earlier servers have left and what could not be removed.
  std::vector<std::string> warnings() const override { return warnings_; }

 private:
  Result<void> remove_leftovers();
  Result<VolumeFiles> open_files(const std::string& name, const std::filesystem::path& folder, bool create,
                                 bool read_only);

  const std::filesystem::path folder_;
  const DiskDirectoryOptions options_;
  const int lock_;
  const std::string medium_;
  std::vector<std::string> warnings_;
};

}  // namespace hawser::block
