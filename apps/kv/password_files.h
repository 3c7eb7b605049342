#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hawser/error.h"

namespace hawser::kv {

// The files of the passwords of a server.
class PasswordFiles {
 public:
  explicit PasswordFiles(std::vector<std::string> files) : files_(std::move(files)) {}

  // Reads them all. The error names the file. A file that changes while it is read is reported by changed() afterwards.
  Result<std::vector<std::string>> read();
  // True if a file is another one than at the last read(): its inode, its size or its time of change.
  bool changed() const;
  // True if the files are as at the last call of this function, or of read(). Somebody who writes a file may have
  // written a part of it, and a part of a password is a password. A change within one step of the file system's clock
  // is not seen. So read() is for files that have been the same for a second.
  bool settled();
  const std::vector<std::string>& names() const noexcept { return files_; }

 private:
  using Stamp = std::array<std::int64_t, 5>;
  static Stamp stamp_of(const std::string& file) noexcept;
  std::vector<Stamp> stamps_now() const;

  std::vector<std::string> files_;
  std::vector<Stamp> stamps_;  // At the last read().
  std::vector<Stamp> seen_;    // At the last settled() or read().
};

}  // namespace hawser::kv
