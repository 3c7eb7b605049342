#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>

#include "block/store/file.h"

namespace hawser::block {

// How a DiskFile is opened.
struct DiskFileOptions {
  bool create = false;  // The file must not exist.
  bool read_only = false;
  bool direct = false;  // O_DIRECT if the file system bears it: accesses are aligned to file_alignment then.
  // Fails with EBUSY if another DiskFile has the lock: shared between files that are read only, otherwise exclusive.
  bool lock = false;
  // Gets another content, without a sync, when a sync of the file fails: its writes may be lost. Empty: none.
  std::filesystem::path loss_mark = {};
  std::filesystem::path shown_as = {};  // The name in errors, if the file will be renamed. Empty: its path.
};

// A file of a file system.
class DiskFile final : public File {
 public:
  static Result<std::unique_ptr<File>> open(const std::filesystem::path& path, const DiskFileOptions& options);
  // Takes the descriptor.
  DiskFile(int descriptor, std::string path, const DiskFileOptions& options);
  ~DiskFile() override;

  Result<void> read(std::uint64_t offset, MutableBytes into) override;
  Result<void> write(std::uint64_t offset, Bytes bytes) override;
  Result<void> sync() override;
  Result<void> allocate(std::uint64_t offset, std::uint64_t bytes) override;
  Result<void> zero(std::uint64_t offset, std::uint64_t bytes, bool deallocate) override;
  Result<void> resize(std::uint64_t bytes) override;
  void release_removed() noexcept override;
  Result<std::uint64_t> size() override;
  Result<std::uint64_t> allocated() override;

 private:
  std::unexpected<Error> failed(const char* action, int number) const;
  bool leave_direct(int number, bool was_direct) noexcept;
  Result<void> write_zeros(std::uint64_t offset, std::uint64_t bytes);

  const int descriptor_;
  const std::string path_;
  const std::filesystem::path loss_mark_;
  std::atomic<bool> direct_;
  std::mutex sync_mutex_;
  std::condition_variable synced_;
  std::uint64_t syncs_begun_ = 0;
  std::uint64_t syncs_ended_ = 0;
  int sync_error_ = 0;
};

// Makes a folder, and the folders around it, if they do not exist. Their names are durable afterwards.
Result<void> make_folders(const std::filesystem::path& folder);

// Makes the names in a folder durable.
Result<void> sync_folder(const std::filesystem::path& folder);

}  // namespace hawser::block
