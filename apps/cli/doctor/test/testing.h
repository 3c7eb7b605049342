#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/temporary_folder.h"
#include "cli/doctor/finding.h"
#include "cli/doctor/system_files.h"

namespace hawser::cli::doctor {

// A directory with files like those of the kernel. It is removed at the end.
class FakeFiles {
 public:
  void write(std::string_view path, std::string_view content) {
    const std::filesystem::path file = prepare(path);
    std::ofstream(file, std::ios::binary) << content;
  }
  void link(std::string_view path, std::string_view target) { std::filesystem::create_symlink(target, prepare(path)); }
  SystemFiles files() const { return SystemFiles(root_.path()); }

 private:
  std::filesystem::path prepare(std::string_view path) {
    std::filesystem::path file = root_.path() / std::filesystem::path(path).relative_path();
    std::filesystem::create_directories(file.parent_path());
    return file;
  }

  TemporaryFolder root_;
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
