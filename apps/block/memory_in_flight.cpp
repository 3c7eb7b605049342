#include "block/memory_in_flight.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "block/store/aligned_buffer.h"
#include "hawser/sync.h"

namespace hawser::block {

// A call that waits. `event` is used on the thread of `loop`.
struct MemoryInFlight::Waiter {
  Loop& loop;
  const std::size_t bytes;
  bool granted = false;  // Guarded by State::mutex.
  Event event = Event();
};

struct MemoryInFlight::State {
  const std::uint64_t bytes_max;
  std::mutex mutex = {};
  std::uint64_t used = 0;
  std::deque<std::shared_ptr<Waiter>> waiters = {};             // In the order of their calls.
  std::map<const std::byte*, std::weak_ptr<Held>> listed = {};  // By the first byte of the memory.

  void release(std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex);
    used -= bytes;
    grant();
  }
  // Called with the lock held.
  void grant() noexcept {
    while (!waiters.empty() && used + waiters.front()->bytes <= bytes_max) {
      const std::shared_ptr<Waiter>& first = waiters.front();
      try {
        first->loop.post([first] { first->event.set(); });
      } catch (const std::exception&) {
        return;  // Without memory, the next release tries it again.
      }
      used += first->bytes;
      first->granted = true;
      waiters.pop_front();
    }
  }
};

// Bytes that are used until this is destroyed.
struct MemoryInFlight::Reservation {
  Reservation(std::shared_ptr<State> of, std::size_t wanted) noexcept : state(std::move(of)), bytes(wanted) {}
  Reservation(Reservation&& other) noexcept = default;
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation() {
    if (state != nullptr) state->release(bytes);
  }
  std::shared_ptr<State> state;
  const std::size_t bytes;
};

struct MemoryInFlight::Held {
  explicit Held(Reservation&& from) : reservation(std::move(from)), memory(reservation.bytes) {}
  ~Held() {
    if (!listed) return;
    const std::lock_guard lock(reservation.state->mutex);
    reservation.state->listed.erase(memory.bytes().data());
  }
  const Reservation reservation;
  AlignedBuffer memory;
  bool listed = false;
};

// A place among the waiters, which is left if the call ends first.
class MemoryInFlight::Place {
 public:
  Place(const std::shared_ptr<State>& state, std::shared_ptr<Waiter> waiter)
      : state_(state), waiter_(std::move(waiter)) {
    const std::lock_guard lock(state_->mutex);
    state_->waiters.push_back(waiter_);
    state_->grant();  // Memory may have become available since.
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    if (taken_) return;
    const std::lock_guard lock(state_->mutex);
    if (waiter_->granted) {
      state_->used -= waiter_->bytes;
    } else {
      std::erase(state_->waiters, waiter_);
    }
    state_->grant();
  }

  Event& event() noexcept { return waiter_->event; }
  // Called after the event.
  Reservation take() noexcept {
    taken_ = true;
    return {state_, waiter_->bytes};
  }

 private:
  const std::shared_ptr<State>& state_;
  const std::shared_ptr<Waiter> waiter_;
  bool taken_ = false;
};

MemoryInFlight::MemoryInFlight(std::uint64_t bytes_max) : state_(std::make_shared<State>(bytes_max)) {}

Buffer MemoryInFlight::buffer_of(Reservation reservation, bool listed) {
  auto held = std::make_shared<Held>(std::move(reservation));
  const Bytes view = held->memory.bytes();
  if (listed) {
    const std::lock_guard lock(held->reservation.state->mutex);
    held->reservation.state->listed[view.data()] = held;
    held->listed = true;
  }
  return Buffer::of_foreign(view, [memory = std::move(held)] {});
}

bool MemoryInFlight::reserve(std::size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->waiters.empty() || state_->used + bytes > state_->bytes_max) return false;
  state_->used += bytes;
  return true;
}

std::optional<Buffer> MemoryInFlight::try_acquire(std::size_t bytes) {
  if (!reserve(bytes)) return std::nullopt;
  return buffer_of({state_, bytes});
}

std::optional<Buffer> MemoryInFlight::try_acquire_pooled(std::size_t bytes) {
  if (!reserve(bytes)) return std::nullopt;
  Reservation reservation(state_, bytes);
  Buffer pooled = Buffer::allocate(bytes);
  const Bytes view = pooled.bytes();
  return Buffer::of_foreign(view, [memory = std::move(pooled), held = std::move(reservation)] {});
}

std::optional<Buffer> MemoryInFlight::try_acquire_listed(std::size_t bytes) {
  if (!reserve(bytes)) return std::nullopt;
  return buffer_of({state_, bytes}, true);
}

std::shared_ptr<const void> MemoryInFlight::owner_of(const std::byte* address) const {
  std::shared_ptr<Held> held;
  {
    const std::lock_guard lock(state_->mutex);
    const auto behind = state_->listed.upper_bound(address);
    if (behind != state_->listed.begin()) held = std::prev(behind)->second.lock();
  }
  if (held == nullptr || std::less_equal<>()(held->memory.bytes().data() + held->memory.size(), address))
    return nullptr;
  return held;
}

Task<Result<Buffer>> MemoryInFlight::acquire(Loop& loop, std::size_t bytes, std::stop_token token) {
  if (std::optional<Buffer> buffer = try_acquire(bytes)) co_return std::move(*buffer);
  Place place(state_, std::make_shared<Waiter>(loop, bytes));
  const Result<void> waited = co_await place.event().wait(std::move(token));
  if (!waited) co_return std::unexpected(waited.error());
  co_return buffer_of(place.take());
}

std::uint64_t MemoryInFlight::used() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->used;
}

}  // namespace hawser::block
