#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "base/descriptor.h"
#include "hawser/error.h"
#include "transport/shm/memory/layout.h"
#include "transport/shm/process_mark.h"

namespace hawser::transport::shm {

// The memory that two processes share. It is an object without a name, so that nothing remains when both have died. It
// is sealed, so that neither process can shrink it while the other uses it. Any thread.
class SharedMemory {
 public:
  // True if the system accounts memory strictly (vm.overcommit_memory is 2). Then touching a page that the system
  // cannot supply ends the process with SIGBUS, so pages are requested before they are touched.
  static bool counted_strictly();

  // Creates memory. With `strict`, the system supplies everything except the slabs at once, or it is an error.
  static Result<std::shared_ptr<SharedMemory>> create(const Sizes& sizes, bool strict);
  // Maps the object that the peer has passed, if it is as create() makes it. Otherwise it remains in `file`, for the
  // caller to close: closing may block, and releasing the pages of a large object takes long.
  static Result<std::shared_ptr<SharedMemory>> adopt(Descriptor& file, const Sizes& sizes, bool strict);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  // Ensures that [at, at + bytes) of a side's slab can be touched. False if the system has no memory for it.
  bool supply_slab(std::size_t side, std::size_t at, std::size_t bytes) const noexcept {
    return !strict_ || supply(sizes_.slab_at(side) + at, bytes);
  }
  // In children of the process that made this, nothing may be written to the memory.
  const ProcessMark& mark() const noexcept { return mark_; }
  int fd() const noexcept { return file_.get(); }
  // The mapping remains.
  void close_file() noexcept { file_ = Descriptor(); }

  const Sizes& sizes() const noexcept { return sizes_; }
  Control& control() const noexcept { return *reinterpret_cast<Control*>(base_); }
  // The ring is mapped twice in a row, so that every range in it is contiguous.
  std::byte* ring(std::size_t side) const noexcept { return rings_[side]; }
  std::byte* part(std::size_t side) const noexcept { return base_ + sizes_.part_at(side); }
  std::byte* slab(std::size_t side) const noexcept { return base_ + sizes_.slab_at(side); }

 private:
  SharedMemory(Descriptor file, const Sizes& sizes, bool strict)
      : file_(std::move(file)), sizes_(sizes), strict_(strict) {}
  Result<void> map();
  bool supply(std::size_t at, std::size_t bytes) const noexcept;

  Descriptor file_;
  const Sizes sizes_;
  const bool strict_;
  const ProcessMark mark_;
  std::byte* base_ = nullptr;
  std::array<std::byte*, 2> rings_{};
};

}  // namespace hawser::transport::shm
