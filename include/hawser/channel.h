#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "hawser/error.h"
#include "hawser/sync.h"
#include "hawser/task.h"

namespace hawser {

// A bounded queue between the coroutines of one loop, with any number of senders and receivers. Items are received in
// the order in which their sends completed. Thread and lifetime: as in hawser/sync.h. If moving a T throws, the sender
// or receiver of the item gets the exception. An item that could not be moved out stays in the channel.
template <class T>
class Channel {
  static_assert(
      std::is_object_v<T> && std::is_move_constructible_v<T>,
      "hawser: the items of a Channel are moved: use std::unique_ptr for what cannot be moved, and a pointer for "
      "a reference");

 public:
  // The channel holds at most `capacity` items; 0 means 1.
  explicit Channel(std::size_t capacity) : room_(capacity == 0 ? 1 : capacity) {}

  std::size_t size() const noexcept { return items_.size(); }
  bool closed() const noexcept { return closed_; }

  // Waits for room and adds `item`. Fails and discards `item` with `unavailable` if the channel is closed, and with
  // `cancelled` if a stop is requested.
  Task<Result<void>> send(T item, std::stop_token token = {}) {
    if (closed_) co_return closed_error();
    if (!room_.try_acquire(1)) {
      const bool granted = co_await detail::wait_in(room_, 1, std::move(token));
      if (closed_) co_return closed_error();
      if (!granted) co_return fail(ErrorCode::cancelled, "a stop was requested while waiting for room in a Channel");
    }
    add(std::move(item));
    co_return Result<void>{};
  }
  // Adds `item` without waiting. Returns false and leaves `item` unchanged if there is no room or the channel is
  // closed.
  bool try_send(T&& item) {
    if (closed_ || !room_.try_acquire(1)) return false;
    add(std::move(item));
    return true;
  }

  // Waits for an item. Items that were sent before close() are still received. Fails with `unavailable` when the
  // channel is closed and empty, and with `cancelled` if a stop is requested.
  Task<Result<T>> receive(std::stop_token token = {}) {
    if (!available_.try_acquire(1)) {
      if (closed_) co_return closed_error();
      const bool granted = co_await detail::wait_in(available_, 1, std::move(token));
      if (!granted) {
        if (closed_) co_return closed_error();
        co_return fail(ErrorCode::cancelled, "a stop was requested while waiting for an item of a Channel");
      }
    }
    co_return pop();
  }
  // Receives without waiting. Empty if no item is available for this receiver.
  std::optional<T> try_receive() {
    if (!available_.try_acquire(1)) return std::nullopt;
    return pop();
  }

  // Closes the channel: later sends and sends that wait for room fail. Receivers get the remaining items.
  void close() noexcept {
    closed_ = true;
    room_.resume_all(false);
    available_.resume_all(false);  // Receivers wait only while no item is left.
  }

 private:
  static std::unexpected<Error> closed_error() { return fail(ErrorCode::unavailable, "the Channel is closed"); }
  void add(T&& item) {
    try {
      items_.push_back(std::move(item));
    } catch (...) {
      room_.release(1);
      throw;
    }
    available_.release(1);
  }
  T pop() {
    struct Popping {
      Channel& channel;
      const int exceptions = std::uncaught_exceptions();
      ~Popping() {
        if (std::uncaught_exceptions() > exceptions) {
          channel.available_.release(1);
        } else {
          channel.items_.pop_front();
          channel.room_.release(1);
        }
      }
    };
    const Popping popping{*this};
    return std::move(items_.front());
  }

  detail::WaitQueue room_;
  detail::WaitQueue available_{0};
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace hawser
