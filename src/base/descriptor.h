#pragma once

#include <utility>

namespace hawser {

// The lowest descriptor of the library. The lower ones belong to standard input, output and error, also in a process
// that has closed them: what the process prints must not reach a socket or a file of data.
inline constexpr int first_own_descriptor = 3;

// Returns `fd`, or a copy of it that is not a standard descriptor; then `fd` is closed. Returns -1, with errno, if
// `fd` is negative or the limit of descriptors is reached. Every function that makes a descriptor is called within this
// one or within the constructor of Descriptor. tools/tidy.py checks it.
int above_standard(int fd) noexcept;

// Opens /dev/null at those of the standard descriptors that are closed. Programs call it first. So does the library
// before libraries that open descriptors of their own (verbs, UCX).
void open_standard_descriptors() noexcept;

// A file descriptor that is closed with its owner. It is never a standard descriptor.
class Descriptor {
 public:
  Descriptor() noexcept = default;
  explicit Descriptor(int fd) noexcept : fd_(fd >= first_own_descriptor ? fd : above_standard(fd)) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }
  // The caller closes it.
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace hawser
