#pragma once

#include <coroutine>
#include <cstddef>
#include <vector>

namespace hawser::exec {

// The coroutines that a loop resumes in its next tick, in order. Loop's thread only.
class ReadyQueue {
 public:
  // Room is kept for this many coroutines that become ready in one tick. Few loops need more, and the queue grows where
  // an exception would end the process.
  static constexpr std::size_t reserved = 1024;

  ReadyQueue();

  bool empty() const noexcept { return ready_.empty(); }
  void add(std::coroutine_handle<> waiting) { ready_.push_back(waiting); }
  // The coroutine is not resumed, if it is in the queue.
  void forget(std::coroutine_handle<> waiting) noexcept;
  // Resumes the coroutines of the queue. Those that become ready meanwhile wait for the next run, so that input and
  // timers get their turn. Returns false if the queue is empty.
  bool run();
  // The coroutine that run() is resuming, or null.
  const void* resumed_frame() const noexcept { return resumed_ == 0 ? nullptr : resuming_[resumed_ - 1].address(); }

  // True if shrinking returns memory, now or in a later period.
  bool shrinkable() const noexcept { return ready_.capacity() > reserved || resuming_.capacity() > reserved; }
  // Returns the room that was not used since the previous call to the allocator. Not within run().
  void shrink() noexcept;

 private:
  std::vector<std::coroutine_handle<>> ready_;
  std::vector<std::coroutine_handle<>> resuming_;  // The batch that run() resumes.
  std::size_t resumed_ = 0;                        // Position in that batch.
  std::size_t forgotten_ = 0;                      // Position behind the last coroutine that was forgotten.
  std::size_t longest_ = 0;                        // The longest batch since the last shrink().
};

}  // namespace hawser::exec
