#include "base/kernel_random.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <system_error>

#include "base/descriptor.h"

namespace hawser {
namespace {

// For kernels and filters of system calls that refuse getrandom() with `refusal`.
void fill_from_device(MutableBytes to, int refusal) {
  const Descriptor device(::open("/dev/urandom", O_RDONLY | O_CLOEXEC));
  while (!to.empty()) {
    const ssize_t filled = device.valid() ? ::read(device.get(), to.data(), to.size()) : -1;
    if (filled > 0) {
      to = to.subspan(static_cast<std::size_t>(filled));
    } else if (filled == 0 || errno != EINTR) {
      throw std::system_error(refusal, std::generic_category(), "getrandom, and /dev/urandom cannot be read");
    }
  }
}

}  // namespace

void fill_random(MutableBytes to) {
  while (!to.empty()) {
    const ssize_t filled = ::getrandom(to.data(), to.size(), 0);
    if (filled > 0) {
      to = to.subspan(static_cast<std::size_t>(filled));
    } else if (errno != EINTR) {
      return fill_from_device(to, errno);
    }
  }
}

std::uint64_t kernel_random() {
  std::uint64_t number = 0;
  fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

}  // namespace hawser
