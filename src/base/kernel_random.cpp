#include "base/kernel_random.h"

#include <sys/random.h>

#include <cerrno>
#include <span>
#include <system_error>

namespace hawser {

void fill_random(MutableBytes to) {
  while (!to.empty()) {
    const ssize_t filled = ::getrandom(to.data(), to.size(), 0);
    if (filled > 0) {
      to = to.subspan(static_cast<std::size_t>(filled));
    } else if (errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "getrandom");
    }
  }
}

std::uint64_t kernel_random() {
  std::uint64_t number = 0;
  fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

}  // namespace hawser
