#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "hawser/error.h"

namespace hawser::kv {

std::unexpected<Error> log_folder_error(std::string_view what, const std::filesystem::path& path, std::string_view why);

// A regular file in memory, to be read.
class MappedFile {
 public:
  MappedFile() noexcept = default;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();
  // Called once.
  Result<void> open(const std::filesystem::path& path);
  std::string_view text() const noexcept { return {data_, bytes_}; }

 private:
  char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace hawser::kv
