#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>

namespace hawser::block {

// Locks ranges of blocks: shared for reads, exclusive for writes. Conflicting ranges are served in the order of their
// requests, so no request waits for ever.
class RangeLock {
  struct Range {
    std::uint64_t first;
    std::uint64_t end;
    bool exclusive;
  };

 public:
  enum class Mode : std::uint8_t { shared, exclusive };

  // A locked range, or none. It is unlocked when this object is destroyed.
  class Held {
   public:
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() {
      if (lock_ != nullptr) lock_->unlock(range_);
    }
    explicit operator bool() const noexcept { return lock_ != nullptr; }

   private:
    friend class RangeLock;
    Held() noexcept = default;
    Held(RangeLock& lock, std::list<Range>::iterator range) noexcept : lock_(&lock), range_(range) {}
    RangeLock* lock_ = nullptr;
    std::list<Range>::iterator range_;
  };

  // Waits until no earlier request has a block of [first, end) in a mode that conflicts.
  Held lock(std::uint64_t first, std::uint64_t end, Mode mode);
  // Locks nothing if lock() would wait.
  Held try_lock(std::uint64_t first, std::uint64_t end, Mode mode);

 private:
  // Ranges of requests that have ended, whose memory is used again.
  static constexpr std::size_t spare_max = 16;

  std::list<Range>::iterator add(const Range& range);
  void remove(std::list<Range>::iterator range) noexcept;
  void unlock(std::list<Range>::iterator range) noexcept;
  bool blocked(std::list<Range>::iterator range);

  std::mutex mutex_;
  std::condition_variable released_;
  std::list<Range> ranges_;  // Held and waiting, in the order of their requests.
  std::list<Range> spare_;
  unsigned waiting_ = 0;
};

}  // namespace hawser::block
