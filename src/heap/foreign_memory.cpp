#include <utility>

#include "heap/external_block.h"

namespace hawser {
namespace {

struct ForeignBlock final : ExternalBlock {
  explicit ForeignBlock(std::unique_ptr<detail::MemoryRelease> given) noexcept
      : ExternalBlock(&ForeignBlock::returned), release(std::move(given)) {}
  static void returned(ExternalBlock& block) noexcept {
    const std::unique_ptr<ForeignBlock> self(static_cast<ForeignBlock*>(&block));
    self->release->run();
  }
  const std::unique_ptr<detail::MemoryRelease> release;
};

}  // namespace

Buffer Buffer::foreign(Bytes memory, std::unique_ptr<detail::MemoryRelease> release) {
  return adopt(new ForeignBlock(std::move(release)), memory.data(), memory.size());
}

}  // namespace hawser
