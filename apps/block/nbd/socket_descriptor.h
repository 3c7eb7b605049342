#pragma once

#include <unistd.h>

#include <utility>

namespace hawser::block::nbd {

// Owns a file descriptor.
class SocketDescriptor {
 public:
  SocketDescriptor() noexcept = default;
  explicit SocketDescriptor(int number) noexcept : number_(number) {}
  SocketDescriptor(SocketDescriptor&& other) noexcept : number_(other.release()) {}
  SocketDescriptor& operator=(SocketDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~SocketDescriptor() {
    if (valid()) ::close(number_);
  }
  int get() const noexcept { return number_; }
  bool valid() const noexcept { return number_ >= 0; }
  // The caller owns it from now on.
  int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

}  // namespace hawser::block::nbd
