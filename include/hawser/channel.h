#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <stop_token>
#include <utility>

#include "hawser/error.h"
#include "hawser/sync.h"
#include "hawser/task.h"

namespace hawser {

// A bounded queue between the coroutines of one loop: any number of senders and receivers, items in the order in which their sends
// completed. Thread and lifetime: as in hawser/sync.h.
template <class T>
class Channel {
 public:
  // At most `capacity` items wait in the channel, 1 at least.
  explicit Channel(std::size_t capacity) : room_(capacity == 0 ? 1 : capacity) {}

  std::size_t size() const noexcept { return items_.size(); }
  bool closed() const noexcept { return closed_; }

  // Waits for room. Fails, and drops `item`, with `unavailable` when the channel is closed and with `cancelled` when a stop is requested.
  Task<Result<void>> send(T item, std::stop_token token = {}) {
    if (closed_) co_return closed_error();
    if (!room_.try_acquire(1)) {
      auto waiting = detail::wait_in(room_, 1, std::move(token));
      const bool granted = co_await std::move(waiting);
      if (closed_) co_return closed_error();
      if (!granted) co_return fail(ErrorCode::cancelled, "a stop was requested while waiting for room in a Channel");
    }
    items_.push_back(std::move(item));
    available_.release(1);
    co_return Result<void>{};
  }
  // False, with `item` unchanged, if there is no room or the channel is closed.
  bool try_send(T&& item) {
    if (closed_ || !room_.try_acquire(1)) return false;
    items_.push_back(std::move(item));
    available_.release(1);
    return true;
  }

  // Waits for an item. What was sent before close() is still received; then it fails with `unavailable`.
  Task<Result<T>> receive(std::stop_token token = {}) {
    if (!available_.try_acquire(1)) {
      if (closed_) co_return closed_error();
      auto waiting = detail::wait_in(available_, 1, std::move(token));
      const bool granted = co_await std::move(waiting);
      if (!granted) {
        if (closed_) co_return closed_error();
        co_return fail(ErrorCode::cancelled, "a stop was requested while waiting for an item of a Channel");
      }
    }
    co_return pop();
  }
  // Empty if no item waits for this receiver.
  std::optional<T> try_receive() {
    if (!available_.try_acquire(1)) return std::nullopt;
    return pop();
  }

  // Refuses later sends and those that wait for room; receivers get what is left.
  void close() noexcept {
    closed_ = true;
    room_.resume_all(false);
    available_.resume_all(false);  // They wait only while no item is left.
  }

 private:
  static std::unexpected<Error> closed_error() { return fail(ErrorCode::unavailable, "the Channel is closed"); }
  T pop() {
    T item = std::move(items_.front());
    items_.pop_front();
    room_.release(1);
    return item;
  }

  detail::WaitQueue room_;
  detail::WaitQueue available_{0};
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace hawser
