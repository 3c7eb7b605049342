#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace hawser::kv {

// Counts the bytes of a log that are durable, and holds the calls that wait for more of them. One thread.
class DurableWaits {
 public:
  // Called with null when everything that was logged before is durable, and with an error if it never will be.
  using Done = std::function<void(const std::string* error)>;

  void logged(std::size_t bytes) noexcept { logged_ += bytes; }
  // The first `bytes` bytes that were logged are durable.
  void set_durable(std::uint64_t bytes) noexcept { durable_ = bytes; }
  void set_all_durable() noexcept { durable_ = logged_; }
  bool all_durable() const noexcept { return logged_ == durable_; }

  // `done` is called by notify() when everything that has been logged so far is durable. Returns the number of this
  // wait, which is never 0.
  std::uint64_t add(Done done) {
    waiting_.emplace_hint(waiting_.end(), ++last_, Waiting{logged_, std::move(done)});
    publish_count();
    return last_;
  }
  // Forgets a wait that has not ended.
  void remove(std::uint64_t number) {
    waiting_.erase(number);
    publish_count();
  }
  // Notifies those whose bytes are durable and, if `error` is not empty, the others of it. They may add and remove.
  void notify(const std::string& error) {
    while (!waiting_.empty() && (waiting_.begin()->second.position <= durable_ || !error.empty())) {
      const Waiting ready = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      publish_count();
      ready.done(ready.position <= durable_ ? nullptr : &error);
    }
  }
  // Number of waits. Any thread.
  std::uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  struct Waiting {
    std::uint64_t position;  // Bytes that must be durable.
    Done done;
  };
  void publish_count() noexcept { count_.store(waiting_.size(), std::memory_order_relaxed); }

  std::uint64_t logged_ = 0;                  // Bytes since the beginning.
  std::uint64_t durable_ = 0;                 // At most logged_.
  std::map<std::uint64_t, Waiting> waiting_;  // By their numbers, and so by their positions.
  std::uint64_t last_ = 0;                    // The last number.
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace hawser::kv
