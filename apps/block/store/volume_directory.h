#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "block/store/file.h"
#include "block/store/memory_file.h"

namespace hawser::block {

inline constexpr std::size_t volume_name_bytes_max = 64;
// Letters, digits, '.', '_' and '-'; the first character is a letter or a digit.
bool valid_volume_name(std::string_view name) noexcept;

// The place of the files of volumes. Names are valid. One thread at a time.
class VolumeDirectory {
 public:
  VolumeDirectory() noexcept = default;
  VolumeDirectory(const VolumeDirectory&) = delete;
  VolumeDirectory& operator=(const VolumeDirectory&) = delete;
  virtual ~VolumeDirectory() = default;

  virtual Result<std::vector<std::string>> names() = 0;
  virtual Result<VolumeFiles> open(const std::string& name, bool read_only) = 0;
  // The files of a new volume. They have no name until publish(): a crash before it removes them.
  virtual Result<VolumeFiles> create(const std::string& name) = 0;
  virtual Result<void> publish(const std::string& name) = 0;
  // Removes the files of a volume, or those that create() has made and publish() has not.
  virtual Result<void> remove(const std::string& name) = 0;
  virtual void abandon(const std::string& name) noexcept = 0;
  // Names what holds the writes that were not flushed. While it stays the same, also over a kill of the process and
  // another start of the server, no write is lost. Constant; any thread may call it.
  virtual std::string medium() const = 0;
  // Messages for an operator about the start.
  virtual std::vector<std::string> warnings() const { return {}; }
};

// Volumes in memory. They end with the process.
class MemoryDirectory final : public VolumeDirectory {
 public:
  explicit MemoryDirectory(std::uint64_t bytes_max);

  Result<std::vector<std::string>> names() override { return {}; }
  Result<VolumeFiles> open(const std::string& name, bool read_only) override;
  Result<VolumeFiles> create(const std::string& name) override;
  Result<void> publish(const std::string&) override { return {}; }
  Result<void> remove(const std::string&) override { return {}; }
  void abandon(const std::string&) noexcept override {}
  std::string medium() const override { return medium_; }

 private:
  const std::shared_ptr<MemoryBudget> budget_;
  const std::string medium_;
};

}  // namespace hawser::block
