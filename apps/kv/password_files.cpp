#include "kv/password_files.h"

#include <sys/stat.h>

#include <utility>

#include "hawser/kv.h"
#include "heap/secret_memory.h"
#include "kv/password.h"

namespace hawser::kv {

PasswordFiles::Stamp PasswordFiles::stamp_of(const std::string& file) noexcept {
  struct stat status{};
  if (stat(file.c_str(), &status) != 0) return {};
  return {static_cast<std::int64_t>(status.st_dev), static_cast<std::int64_t>(status.st_ino), status.st_size,
          status.st_ctim.tv_sec, status.st_ctim.tv_nsec};
}

std::vector<PasswordFiles::Stamp> PasswordFiles::stamps_now() const {
  std::vector<Stamp> stamps;
  for (const std::string& file : files_) stamps.push_back(stamp_of(file));
  return stamps;
}

Result<std::vector<std::string>> PasswordFiles::read() {
  std::vector<std::string> passwords;
  stamps_ = stamps_now();
  seen_ = stamps_;
  for (const std::string& file : files_) {
    Result<std::string> password = read_password(file);
    if (!password) {
      for (std::string& read_before : passwords) wipe(read_before);
      return fail(std::move(password.error()));
    }
    passwords.push_back(std::move(*password));
  }
  return passwords;
}

bool PasswordFiles::changed() const { return stamps_now() != stamps_; }

bool PasswordFiles::settled() {
  std::vector<Stamp> now = stamps_now();
  std::swap(now, seen_);
  return now == seen_;
}

}  // namespace hawser::kv
