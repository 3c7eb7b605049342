#pragma once

#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

namespace hawser::transport::rdma {

// A first-in, first-out queue. It keeps its memory, so that the steady state allocates nothing.
template <class T>
class Queue {
 public:
  bool empty() const noexcept { return count_ == 0; }
  std::size_t size() const noexcept { return count_; }
  T& operator[](std::size_t index) noexcept { return items_[(first_ + index) & (items_.size() - 1)]; }
  T& front() noexcept { return (*this)[0]; }
  T& back() noexcept { return (*this)[count_ - 1]; }

  T& push(T item) {
    if (count_ == items_.size()) grow();
    ++count_;
    return back() = std::move(item);
  }
  T pop() noexcept {
    assert(count_ != 0);
    T item = std::exchange(items_[first_], T{});
    first_ = (first_ + 1) & (items_.size() - 1);
    --count_;
    return item;
  }

 private:
  void grow() {
    std::vector<T> larger(items_.empty() ? 8 : items_.size() * 2);
    for (std::size_t i = 0; i < count_; ++i) larger[i] = std::move((*this)[i]);
    items_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> items_;  // The size is 0 or a power of two.
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace hawser::transport::rdma
