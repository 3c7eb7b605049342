#include "block/store/volume_directory.h"

#include <algorithm>
#include <cerrno>

#include "block/random_id.h"
#include "block/store/store_error.h"

namespace hawser::block {

bool valid_volume_name(std::string_view name) noexcept {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !name.empty() && name.size() <= volume_name_bytes_max && alphanumeric(name.front()) &&
         std::ranges::all_of(name, [&](char c) { return alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

MemoryDirectory::MemoryDirectory(std::uint64_t bytes_max)
    : budget_(std::make_shared<MemoryBudget>(bytes_max)), medium_("memory " + random_id()) {}

Result<VolumeFiles> MemoryDirectory::open(const std::string& name, bool) {
  return store_fail(ENOENT, "there is no volume " + name);
}

Result<VolumeFiles> MemoryDirectory::create(const std::string&) {
  return VolumeFiles{std::make_unique<MemoryFile>(budget_), std::make_unique<MemoryFile>(budget_)};
}

}  // namespace hawser::block
