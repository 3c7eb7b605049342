#pragma once

#include <coroutine>
#include <cstddef>
#include <vector>

namespace hawser::exec {

// The coroutines that a loop resumes, in order. Loop's thread only.
class ReadyQueue {
 public:
  // Room is kept for this many coroutines that become ready in one tick. Few loops need more, and the queue grows where
  // an exception would end the process.
  static constexpr std::size_t reserved = 1024;
  // Coroutines that one run() resumes. More of them wait for the next run, so that many that become ready at once, such
  // as the calls of connections that end, do not block the loop.
  static constexpr std::size_t resumed_at_once = 1024;

  ReadyQueue();

  bool empty() const noexcept { return ready_.empty() && batch_.empty(); }
  void add(std::coroutine_handle<> waiting) {
    if (ready_.size() == ready_.capacity()) [[unlikely]]
      return add_growing(waiting);
    ready_.push_back(waiting);
  }
  // The coroutine is not resumed, if it is in the queue.
  void forget(std::coroutine_handle<> waiting) noexcept;
  // Resumes the first coroutines of the queue. Those that become ready meanwhile wait for another run, so that input
  // and timers get their turn. Returns false if the queue is empty.
  bool run() { return !empty() && run_batch(); }
  // The coroutine that run() is resuming, or null.
  const void* resumed_frame() const noexcept { return running_ ? batch_[resumed_ - 1].address() : nullptr; }

  // True if shrinking returns memory, now or in a later period.
  bool shrinkable() const noexcept { return ready_.capacity() > reserved || batch_.capacity() > reserved; }
  // Returns the room that was not used since the previous call to the allocator. Not within run().
  void shrink() noexcept;

 private:
  using Handles = std::vector<std::coroutine_handle<>>;

  bool run_batch();
  void add_growing(std::coroutine_handle<> waiting);

  Handles ready_;                    // They follow the batch.
  Handles batch_;                    // Empty, or not resumed completely.
  std::size_t resumed_ = 0;          // Number of coroutines of the batch that were resumed.
  std::size_t forgotten_ready_ = 0;  // Position behind the last coroutine that was forgotten, in each list.
  std::size_t forgotten_batch_ = 0;
  std::size_t longest_ = 0;  // The longest batch since the last shrink().
  bool running_ = false;     // Within run().
};

}  // namespace hawser::exec
