#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "heap/external_block.h"
#include "transport/shm/memory/shared_memory.h"

namespace hawser::transport::shm {

// A region of a slab that the application writes. It is the block of the application's Buffers, which may outlive the
// connection and be released on any thread. The writer of the slab uses the object again when it loans the same region
// again.
class SlabLoan final : public ExternalBlock {
 public:
  enum class State : std::uint8_t {
    idle,    // The application has released the region.
    unsent,  // The peer has not been notified of the region.
    sent,    // The peer has been notified, and may have returned it.
  };

  // The caller owns the reference of the application and that of the writer.
  explicit SlabLoan(std::shared_ptr<const SharedMemory> memory) noexcept
      : ExternalBlock(&SlabLoan::returned), memory_(std::move(memory)) {}

  // The writer's thread: the application gets the region again.
  void loan_again() noexcept {
    users_.fetch_add(1, std::memory_order_relaxed);
    held_.store(true, std::memory_order_relaxed);
    loan();
    state = State::unsent;
  }
  // True while the application has a Buffer. The acquire orders its accesses before those of the next user.
  bool held() const noexcept { return held_.load(std::memory_order_acquire); }
  // The writer does not need it any more.
  void drop() noexcept {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  State state = State::unsent;  // The writer's thread only.

 private:
  ~SlabLoan() = default;
  static void returned(ExternalBlock& block) noexcept {
    SlabLoan& self = static_cast<SlabLoan&>(block);
    self.held_.store(false, std::memory_order_release);
    self.drop();
  }

  const std::shared_ptr<const SharedMemory> memory_;
  std::atomic<bool> held_{true};
  std::atomic<std::uint32_t> users_{2};  // The application, and the writer.
};

}  // namespace hawser::transport::shm
