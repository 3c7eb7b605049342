#include "os/contents_of_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "base/descriptor.h"

namespace hawser {

Result<std::optional<std::string>> contents_of_file(const std::string& path) {
  const auto failed = [&path](int error) {
    return fail(Error::of_transport(ErrorCode::unavailable, "cannot read " + path + ": " +
                                                                std::generic_category().message(error) +
                                                                (error == EMFILE ? " (raise ulimit -n?)" : "")));
  };
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return std::optional<std::string>();
    return failed(error);
  }
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    const ssize_t bytes = ::read(file.get(), part.data(), part.size());
    if (bytes == 0) return std::optional(std::move(text));
    if (bytes < 0 && errno != EINTR) return failed(errno);
    if (bytes > 0) text.append(part.data(), static_cast<std::size_t>(bytes));
  }
}

}  // namespace hawser
