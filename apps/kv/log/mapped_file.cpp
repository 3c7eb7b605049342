#include "kv/log/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/descriptor.h"

namespace hawser::kv {

std::unexpected<Error> log_folder_error(std::string_view what, const std::filesystem::path& path,
                                        std::string_view why) {
  return fail(ErrorCode::unavailable,
              "cannot " + std::string(what) + " " + path.string() + " (--log): " + std::string(why));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Result<void> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status{};
  if (!file.valid() || fstat(file.get(), &status) != 0) return log_folder_error("read", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return log_folder_error("read", path, "it is not a regular file");
  bytes_ = static_cast<std::size_t>(status.st_size);
  if (bytes_ == 0) return {};
  void* const mapped = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) {
    bytes_ = 0;
    return log_folder_error("read", path, std::strerror(errno));
  }
  madvise(mapped, bytes_, MADV_SEQUENTIAL);
  data_ = static_cast<char*>(mapped);
  return {};
}

}  // namespace hawser::kv
