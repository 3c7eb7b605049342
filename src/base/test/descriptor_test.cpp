#include "base/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace hawser {
namespace {

bool closed(int fd) { return fcntl(fd, F_GETFD) < 0 && errno == EBADF; }

// Runs `body` in a process without standard descriptors. It returns 0, or the line that was not true.
template <class Body>
int without_standard_descriptors(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int fd : {0, 1, 2}) close(fd);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Descriptor, IsNeverAStandardDescriptor) {
  EXPECT_EQ(without_standard_descriptors([] {
              for (int i = 0; i < 4; ++i) {
                const Descriptor file(open("/dev/null", O_RDWR | O_CLOEXEC));
                if (!file.valid() || file.get() < first_own_descriptor) return __LINE__;
                if ((fcntl(file.get(), F_GETFD) & FD_CLOEXEC) == 0) return __LINE__;
                for (const int fd : {0, 1, 2}) {
                  if (!closed(fd)) return __LINE__;
                }
              }
              return 0;
            }),
            0);
}

TEST(Descriptor, FailsAtTheLimitRatherThanStayingThere) {
  EXPECT_EQ(without_standard_descriptors([] {
              const rlimit few{3, 3};
              setrlimit(RLIMIT_NOFILE, &few);
              const Descriptor file(open("/dev/null", O_RDWR | O_CLOEXEC));
              if (file.valid() || (errno != EMFILE && errno != EINVAL)) return __LINE__;
              return closed(0) ? 0 : __LINE__;
            }),
            0);
}

TEST(Descriptor, ClosedStandardDescriptorsAreOpened) {
  EXPECT_EQ(without_standard_descriptors([] {
              const int output = open("/dev/null", O_WRONLY);
              if (output != 0) return __LINE__;
              open_standard_descriptors();
              if (closed(1) || closed(2)) return __LINE__;
              if ((fcntl(0, F_GETFL) & O_ACCMODE) != O_WRONLY) return __LINE__;  // An open one stays.
              if (fcntl(1, F_GETFD) != 0 || write(1, "x", 1) != 1) return __LINE__;
              open_standard_descriptors();
              return open("/dev/null", O_RDONLY) > 2 ? 0 : __LINE__;
            }),
            0);
}

}  // namespace
}  // namespace hawser
