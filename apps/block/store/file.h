#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser::block {

// Offsets and sizes of reads and writes of a data file are multiples of this, and so are their memory addresses unless
// the file accepts others.
inline constexpr std::size_t file_alignment = 4096;

// A file of a volume. Every function blocks, and any thread may call it. Errors are those of store_error.h.
class File {
 public:
  File() noexcept = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  virtual ~File() = default;

  virtual bool accepts_every_address() const noexcept { return false; }
  // Bytes behind the end of the file are zeros.
  virtual Result<void> read(std::uint64_t offset, MutableBytes into) = 0;
  // After an error, each sector of 512 bytes has its old or its new contents.
  virtual Result<void> write(std::uint64_t offset, Bytes bytes) = 0;
  // Returns when everything that was written before the call survives a power cut. After an error, nothing is known
  // about what was written since the sync before: the file must not be written any more.
  virtual Result<void> sync() = 0;
  // Reserves space, so that later writes of the range do not fail with ENOSPC.
  virtual Result<void> allocate(std::uint64_t offset, std::uint64_t bytes) = 0;
  // The range reads as zeros. `deallocate`: its space returns to the file system if the file system can do that.
  virtual Result<void> zero(std::uint64_t offset, std::uint64_t bytes, bool deallocate) = 0;
  // Bytes behind the new end are removed. New bytes are zeros.
  virtual Result<void> resize(std::uint64_t bytes) = 0;
  virtual Result<std::uint64_t> size() = 0;
  // Releases all of its space if the file has been removed and nobody else can open it. It has no bytes afterwards.
  virtual void release_removed() noexcept {}
  // Bytes of space that the file uses.
  virtual Result<std::uint64_t> allocated() = 0;
};

// The two files of a volume: docs/block.md has their formats.
struct VolumeFiles {
  std::unique_ptr<File> data;
  std::unique_ptr<File> side;
};

}  // namespace hawser::block
