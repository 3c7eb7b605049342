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

// What the kernel tells in files. A test puts a tree of its own in place of "/".
class SystemFiles {
 public:
  explicit SystemFiles(std::filesystem::path root = "/") : root_(std::move(root)) {}

  // Paths are absolute: "/proc/sys/kernel/osrelease". Nothing where there is no such file, or it can't be read.
  std::optional<std::string> text(std::string_view path) const;  // Without blanks at its ends.
  std::optional<std::string> raw(std::string_view path, std::size_t bytes_max) const;
  std::optional<std::int64_t> number(std::string_view path) const;  // Decimal, at the start of the file.
  std::vector<std::string> names(std::string_view folder) const;    // Sorted as people count: eth2 before eth10.
  bool exists(std::string_view path) const;
  // The last part of what a symbolic link points to.
  std::optional<std::string> link_name(std::string_view path) const;

 private:
  std::filesystem::path resolve(std::string_view path) const;

  std::filesystem::path root_;
};

}  // namespace hawser::cli::doctor
