#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <memory>

#include "base/descriptor.h"
#include "hawser/error.h"
#include "transport/shm/layout.h"

namespace hawser::transport::shm {

using Nonce = std::array<std::byte, 16>;

// An Error of `what` and the system's message for `system_error`.
Error system_error(ErrorCode code, std::string_view what, int system_error);

// Opens descriptor `fd` of process `pid`, if it is of the file type `type` (S_IFREG, S_IFIFO): looked at before it is
// opened, since opening some files does something. `flags` as of open().
Result<Descriptor> open_of_process(pid_t pid, int fd, mode_t type, int flags);

// The memory that two processes share: an object without a name, so that nothing is left when both have died, and sealed,
// so that neither can cut it while the other uses it. Any thread.
class SharedMemory {
 public:
  static Result<std::shared_ptr<SharedMemory>> create(const Sizes& sizes, const Nonce& nonce);
  // Descriptor `fd` of process `pid`, if it is what create() makes with these sizes and this nonce there.
  static Result<std::shared_ptr<SharedMemory>> open(pid_t pid, int fd, const Sizes& sizes, const Nonce& nonce);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  // Whether descriptor `fd` of process `pid` is this object: then that process has it.
  bool is_held_by(pid_t pid, int fd) const noexcept;
  int fd() const noexcept { return file_.get(); }
  // The mapping stays.
  void close_file() noexcept { file_ = Descriptor(); }

  const Sizes& sizes() const noexcept { return sizes_; }
  Control& control() const noexcept { return *reinterpret_cast<Control*>(base_); }
  // Mapped twice in a row, so that whatever lies in it is in one piece.
  std::byte* ring(std::size_t side) const noexcept { return rings_[side]; }
  std::byte* slab(std::size_t side) const noexcept { return base_ + sizes_.slab_at(side); }

 private:
  SharedMemory(Descriptor file, const Sizes& sizes) noexcept : file_(std::move(file)), sizes_(sizes) {}
  Result<void> map();

  Descriptor file_;
  const Sizes sizes_;
  std::byte* base_ = nullptr;
  std::array<std::byte*, 2> rings_{};
};

}  // namespace hawser::transport::shm
