#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/descriptor.h"
#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser {

// A regular file that is open for reading, as it was when it was opened.
struct OpenFile {
  Descriptor file;
  std::uint64_t bytes = 0;
  std::int64_t changed_s = 0;  // The time of the last change of the content, from 1970.
  std::uint32_t changed_ns = 0;
  std::uint64_t inode = 0;

  // Reads from that position until `to` is full, or the file ends. Returns the number of bytes. May block.
  Result<std::size_t> read(std::uint64_t from, MutableBytes to) const;
};

// A folder whose files are opened by names that strangers give. No name leads out of the folder: not by "..", not by a
// link that leads out of it, and not if the folder is changed meanwhile. Thread-safe by being const. Its functions may
// block.
class Folder {
 public:
  // Throws std::system_error if the folder cannot be opened.
  explicit Folder(const std::string& path);
  // `name` is relative. Fails with unknown_method if there is no such file, if it is not a regular file, or if the name
  // leads out of the folder; with permission_denied; or with unavailable if the system lacks memory or descriptors.
  Result<OpenFile> open(const std::string& name) const;

 private:
  Descriptor folder_;
};

}  // namespace hawser
