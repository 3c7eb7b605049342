#include "transport/shm/memory/direct_read.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/try.h"
#include "hawser/loop.h"

namespace hawser::transport::shm {

DirectRead::DirectRead(Loop& loop, std::shared_ptr<const PeerProcess> peer, const Source& source, Buffer own,
                       std::byte* given)
    : peer_(std::move(peer)), source_(source), own_(std::move(own)), given_(given), loop_(&loop) {}

bool DirectRead::start(Helpers& helpers, std::function<void()> done) {
  done_ = std::move(done);
  return helpers.start(peer_->pid(), [self = shared_from_this()] { self->run(); });
}

void DirectRead::withdraw() noexcept {
  const std::lock_guard lock(mutex_);
  given_ = nullptr;
}

void DirectRead::abandon() noexcept {
  abandoned_.store(true, std::memory_order_relaxed);
  done_ = nullptr;
  const std::lock_guard lock(mutex_);
  given_ = nullptr;
  loop_ = nullptr;
}

void DirectRead::run() noexcept {
  try {
    result_ = read_all();
  } catch (const std::bad_alloc&) {
    result_ = fail(Error::of_transport(ErrorCode::unavailable, "no memory to read the peer's into"));
  }
  const std::lock_guard lock(mutex_);
  ended_.store(true, std::memory_order_release);
  if (loop_ == nullptr) return;
  try {
    loop_->post([self = shared_from_this()] {
      if (const std::function<void()> done = std::exchange(self->done_, nullptr)) done();
    });
  } catch (const std::bad_alloc&) {
    // The waiting side polls ended().
  }
}

Result<void> DirectRead::read_all() {
  Buffer step;
  if (own_.empty()) step = Buffer::allocate(step_bytes);
  std::size_t done = 0;
  for (std::size_t i = 0; i < source_.count; ++i) {
    for (PeerBuffer rest = source_.pieces[i]; rest.bytes != 0;) {
      if (abandoned_.load(std::memory_order_relaxed)) return {};
      const PeerBuffer piece{rest.address, std::min<std::uint64_t>(rest.bytes, step_bytes)};
      std::byte* const to = own_.empty() ? step.mutable_data() : const_cast<std::byte*>(own_.data()) + done;
      TRY(peer_->read(piece, to));
      if (own_.empty()) {
        const std::lock_guard lock(mutex_);
        if (given_ != nullptr) std::memcpy(given_ + done, to, piece.bytes);
      }
      done += piece.bytes;
      progress_.store(done, std::memory_order_relaxed);
      rest.address += piece.bytes;
      rest.bytes -= piece.bytes;
    }
  }
  return {};
}

}  // namespace hawser::transport::shm
