#include "kv/password_files.h"

#include <sys/stat.h>

#include <utility>

#include "base/secret_memory.h"
#include "hawser/kv.h"
#include "kv/password.h"

namespace hawser::kv {

PasswordFiles::Stamp PasswordFiles::stamp_of(const std::string& file) noexcept {
  struct stat status{};
  if (stat(file.c_str(), &status) != 0) return {};
  return {static_cast<std::int64_t>(status.st_dev), static_cast<std::int64_t>(status.st_ino), status.st_size,
          status.st_ctim.tv_sec, status.st_ctim.tv_nsec};
}

Result<std::vector<std::string>> PasswordFiles::read() {
  std::vector<std::string> passwords;
  stamps_.clear();
  for (const std::string& file : files_) stamps_.push_back(stamp_of(file));
  for (const std::string& file : files_) {
    Result<std::string> password = read_password(file);
    if (!password) {
      for (std::string& read_before : passwords) wipe(read_before);
      return std::unexpected(std::move(password.error()));
    }
    passwords.push_back(std::move(*password));
  }
  return passwords;
}

bool PasswordFiles::changed() const {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (i >= stamps_.size() || stamp_of(files_[i]) != stamps_[i]) return true;
  }
  return false;
}

}  // namespace hawser::kv
