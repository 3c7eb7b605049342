#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hawser::cli::doctor {

// Reads files in which the kernel reports facts. A test replaces "/" by a directory of its own.
class SystemFiles {
 public:
  explicit SystemFiles(std::filesystem::path root = "/") : root_(std::move(root)) {}

  // Paths are absolute, such as "/proc/sys/kernel/osrelease". The result is empty if the file does not exist or cannot
  // be read.
  std::optional<std::string> text(std::string_view path) const;  // Without blanks at both ends.
  std::optional<std::string> raw(std::string_view path, std::size_t bytes_max) const;
  std::optional<std::int64_t> number(std::string_view path) const;  // Decimal, at the start of the file.
  std::vector<std::string> names(std::string_view folder) const;    // In natural order: eth2 before eth10.
  bool exists(std::string_view path) const;
  // Returns the last component of a symbolic link's target.
  std::optional<std::string> link_name(std::string_view path) const;

 private:
  std::filesystem::path resolve(std::string_view path) const;

  std::filesystem::path root_;
};

}  // namespace hawser::cli::doctor
