#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "doctor/finding.h"
#include "doctor/system_files.h"

namespace hawser::cli::doctor {

// A folder with files as the kernel would have them, removed at the end.
class FakeFiles {
 public:
  FakeFiles() {
    std::string name = (std::filesystem::temp_directory_path() / "hawser-doctor-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~FakeFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  FakeFiles(const FakeFiles&) = delete;
  FakeFiles& operator=(const FakeFiles&) = delete;

  void write(std::string_view path, std::string_view content) {
    const std::filesystem::path file = prepare(path);
    std::ofstream(file, std::ios::binary) << content;
  }
  void link(std::string_view path, std::string_view target) { std::filesystem::create_symlink(target, prepare(path)); }
  SystemFiles files() const { return SystemFiles(root_); }

 private:
  std::filesystem::path prepare(std::string_view path) {
    std::filesystem::path file = root_ / std::filesystem::path(path).relative_path();
    std::filesystem::create_directories(file.parent_path());
    return file;
  }

  std::filesystem::path root_;
};

inline Finding find(const Section& section, std::string_view id) {
  for (const Finding& finding : section.findings) {
    if (finding.id == id) return finding;
  }
  ADD_FAILURE() << "no finding " << id;
  return {};
}

inline bool has(const Section& section, std::string_view id) {
  for (const Finding& finding : section.findings) {
    if (finding.id == id) return true;
  }
  return false;
}

}  // namespace hawser::cli::doctor
