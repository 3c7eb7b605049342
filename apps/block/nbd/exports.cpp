#include "block/nbd/exports.h"

#include <cerrno>

#include "block/nbd/protocol.h"
#include "block/store/store_error.h"

namespace hawser::block::nbd {

std::uint32_t state_of(bool zeros, bool preallocated) noexcept {
  if (!zeros) return 0;
  return preallocated ? state_zero : state_zero | state_hole;
}

std::optional<Result<void>> NbdDevice::read_now(std::uint64_t, MutableBytes) { return std::nullopt; }

std::optional<Result<void>> NbdDevice::write_now(std::uint64_t, Bytes, bool) { return std::nullopt; }

Task<Result<std::vector<std::string>>> Exports::names(Identity who) {
  Result<std::vector<std::string>> names = co_await list();
  if (names) {
    std::erase_if(*names, [&](const std::string& name) { return !rules_.allow(who, VolumeAccess::read, name); });
  }
  co_return names;
}

Task<Result<std::shared_ptr<NbdDevice>>> Exports::open(std::string name, Identity who) {
  if (name.empty()) {
    const Result<std::vector<std::string>> all = co_await names(who);
    if (!all) co_return std::unexpected(all.error());
    if (all->size() != 1) {
      co_return store_fail(ENOENT, "an empty name is that of the only volume, and there are " +
                                       std::to_string(all->size()) + ": name one");
    }
    name = all->front();
  }
  if (const Result<void> allowed = rules_.check(who, VolumeAccess::read, name); !allowed) {
    co_return std::unexpected(allowed.error());
  }
  const bool writable = rules_.allow(who, VolumeAccess::write, name);
  co_return co_await find(std::move(name), writable);
}

bool Exports::permits(const Identity& who, const ExportInfo& device) const {
  return rules_.allow(who, device.read_only ? VolumeAccess::read : VolumeAccess::write, device.name);
}

}  // namespace hawser::block::nbd
