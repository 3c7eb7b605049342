#include "os/sealed_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <string>

#include "base/descriptor.h"

namespace hawser {

std::unique_ptr<const SealedMapping> SealedMapping::open(std::int32_t process, std::int32_t descriptor,
                                                         std::size_t bytes) {
  // The file is looked at before it is opened, because opening a device or a pipe may have effects.
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  const Descriptor seen(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat status = {};
  if (!seen.valid() || fstat(seen.get(), &status) != 0 || !S_ISREG(status.st_mode)) return nullptr;
  const Descriptor file(::open(("/proc/self/fd/" + std::to_string(seen.get())).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return nullptr;
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(file.get(), &status) != 0) return nullptr;
  if (status.st_size < 0 || static_cast<std::uint64_t>(status.st_size) < bytes) return nullptr;
  void* const mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  return std::unique_ptr<const SealedMapping>(new SealedMapping(static_cast<const std::byte*>(mapped), bytes));
}

SealedMapping::~SealedMapping() { munmap(const_cast<std::byte*>(data_), bytes_); }

}  // namespace hawser
