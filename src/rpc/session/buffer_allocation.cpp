// Large buffers that threads in the background allocate and register.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/try.h"
#include "hawser/client.h"
#include "hawser/loop.h"
#include "hawser/registered_buffer.h"
#include "hawser/server.h"
#include "heap/page_memory.h"
#include "os/pin_thread.h"
#include "rpc/session/registered_memory.h"

namespace hawser {

struct BufferAllocation::State {
  State(MemoryTransports of, MemoryRegions known, std::size_t size, const AllocationOptions& given)
      : transports(std::move(of)), regions(std::move(known)), bytes(size), options(given) {}

  void run() noexcept;
  Result<RegisteredBuffer> make();
  void populate_pieces() noexcept;

  static constexpr std::size_t piece_bytes = std::size_t{64} << 20;

  const MemoryTransports transports;
  const MemoryRegions regions;
  const std::size_t bytes;
  const AllocationOptions options;
  PageMemory memory;
  std::atomic<std::size_t> next = 0;  // The first byte of which no thread allocates the page.
  std::atomic<std::size_t> ready = 0;
  std::atomic<bool> stopped = false;
  std::atomic<bool> failed = false;
  std::atomic<bool> done = false;
  std::optional<Result<RegisteredBuffer>> made;  // Written before `done`.
  std::thread coordinator;                       // Joined by the BufferAllocation.
};

BufferAllocation RegisteredBuffer::Impl::in_background(MemoryTransports transports, MemoryRegions regions,
                                                       std::size_t bytes, const AllocationOptions& options) {
  auto state = std::make_shared<BufferAllocation::State>(std::move(transports), std::move(regions), bytes, options);
  state->coordinator = std::thread([of = state.get()] { of->run(); });
  return BufferAllocation(std::move(state));
}

void BufferAllocation::State::populate_pieces() noexcept {
  const std::size_t all = memory.bytes().size();
  while (!stopped && !failed) {
    const std::size_t begin = next.fetch_add(piece_bytes);
    if (begin >= all) return;
    const std::size_t size = std::min(piece_bytes, all - begin);
    if (PageMemory::populate(memory.bytes().subspan(begin, size))) {
      ready += size;
    } else {
      failed = true;
    }
  }
}

Result<RegisteredBuffer> BufferAllocation::State::make() {
  using Impl = RegisteredBuffer::Impl;
  if (bytes == 0) return Impl::none();
  memory = Impl::allocate_pages(bytes);
  if (memory.empty()) return Impl::no_memory(bytes);
  if (options.huge_pages) memory.prefer_huge_pages();
  {
    const std::size_t pieces = (memory.bytes().size() + piece_bytes - 1) / piece_bytes;
    const unsigned usable = std::min(unpin_thread(), 16U);
    const std::size_t threads = options.threads != 0 ? options.threads : usable;
    std::vector<std::jthread> others;
    try {
      while (others.size() + 1 < std::min(threads, pieces)) others.emplace_back([this] { populate_pieces(); });
    } catch (const std::exception&) {
      // There are as many threads as the system allows.
    }
    populate_pieces();
  }
  if (failed) return Impl::no_memory(bytes);
  if (stopped) return fail(ErrorCode::cancelled, "the allocation was given up");
  const MutableBytes whole = memory.bytes();
  return Impl::make(transports, regions, whole, std::move(memory));
}

void BufferAllocation::State::run() noexcept {
  try {
    made.emplace(make());
  } catch (const std::bad_alloc&) {
    made.emplace(RegisteredBuffer::Impl::no_memory(bytes));
  }
  done = true;
  done.notify_all();
}

BufferAllocation::BufferAllocation() noexcept = default;
BufferAllocation::BufferAllocation(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
BufferAllocation::BufferAllocation(BufferAllocation&& other) noexcept = default;
BufferAllocation& BufferAllocation::operator=(BufferAllocation&& other) noexcept {
  state_.swap(other.state_);
  return *this;
}
BufferAllocation::~BufferAllocation() {
  if (state_ == nullptr) return;
  state_->stopped = true;
  state_->coordinator.join();
}

bool BufferAllocation::done() const noexcept { return state_ == nullptr || state_->done; }
std::size_t BufferAllocation::ready_bytes() const noexcept { return state_ == nullptr ? 0 : state_->ready.load(); }

Result<RegisteredBuffer> BufferAllocation::wait() {
  if (state_ != nullptr) state_->done.wait(false);
  if (state_ == nullptr || !state_->made) {
    return fail(ErrorCode::invalid_argument, "the buffer of this allocation has been taken, or it is of no buffer");
  }
  Result<RegisteredBuffer> made = std::move(*state_->made);
  state_->made.reset();
  return made;
}

Task<Result<RegisteredBuffer>> BufferAllocation::result() {
  // A simulation waits at once: nothing in it may depend on the speed of threads.
  Loop* const loop = Loop::current();
  if (done() || loop == nullptr || !loop->poller().real_time()) co_return wait();
  // The work may outlive this object: it then waits for as long as the destructor does.
  Result<void> waited = co_await loop->offload([state = state_] { state->done.wait(false); });
  CO_TRY(waited);
  co_return wait();
}

BufferAllocation RegisteredBuffer::allocate_in_background(const Client& client, std::size_t bytes,
                                                          const AllocationOptions& options) {
  return Impl::in_background(client.transports(), client.regions(), bytes, options);
}
BufferAllocation RegisteredBuffer::allocate_in_background(const Server& server, std::size_t bytes,
                                                          const AllocationOptions& options) {
  return Impl::in_background(server.transports(), server.regions(), bytes, options);
}

}  // namespace hawser
