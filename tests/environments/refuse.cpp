// hawser-test-refuse CALL ERRNO PROGRAM ARGUMENT...: runs a program for which the kernel refuses one system call, as
// containers, seccomp profiles of service managers and hardened kernels do. CALL and ERRNO are names or numbers. Of
// socket(), only sockets of IPv6 are refused.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr std::pair<std::string_view, long> calls[] = {
    {"process_vm_readv", SYS_process_vm_readv},
    {"madvise", SYS_madvise},
    {"getrandom", SYS_getrandom},
    {"memfd_create", SYS_memfd_create},
    {"io_uring_setup", SYS_io_uring_setup},
    {"eventfd2", SYS_eventfd2},
    {"pidfd_open", SYS_pidfd_open},
    {"membarrier", SYS_membarrier},
    {"mlock", SYS_mlock},
    {"mlock2", SYS_mlock2},
    {"sched_getaffinity", SYS_sched_getaffinity},
    {"sched_setaffinity", SYS_sched_setaffinity},
    {"inotify_init1", SYS_inotify_init1},
    {"setpriority", SYS_setpriority},
    {"prctl", SYS_prctl},
    {"fallocate", SYS_fallocate},
    {"getcpu", SYS_getcpu},
    {"timerfd_create", SYS_timerfd_create},
    {"socket", SYS_socket},
};
constexpr std::pair<std::string_view, int> errors[] = {{"EPERM", EPERM},   {"ENOSYS", ENOSYS},
                                                       {"EACCES", EACCES}, {"ENOMEM", ENOMEM},
                                                       {"EINVAL", EINVAL}, {"EAFNOSUPPORT", EAFNOSUPPORT}};

template <class Value, std::size_t count>
long number_of(const std::pair<std::string_view, Value> (&names)[count], const std::string& text) {
  for (const auto& [name, value] : names) {
    if (name == text) return value;
  }
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 0);
  if (end == text.c_str() || *end != '\0') {
    std::fprintf(stderr, "hawser-test-refuse: %s is not known: add it to refuse.cpp\n", text.c_str());
    std::exit(2);
  }
  return value;
}

#if defined(__x86_64__)
constexpr unsigned architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned architecture = AUDIT_ARCH_AARCH64;
#else
constexpr unsigned architecture = 0;  // The program says that it can't be used.
#endif

}  // namespace

int main(int count, char** words) {
  if (count < 4) {
    std::fprintf(stderr, "usage: %s CALL ERRNO PROGRAM ARGUMENT...\n", words[0]);
    return 2;
  }
  const auto call = static_cast<unsigned>(number_of(calls, words[1]));
  const auto error = static_cast<unsigned>(number_of(errors, words[2]));
  std::vector<sock_filter> steps;
  const auto only_if = [&steps](std::size_t offset, unsigned value) {
    steps.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset)));
    steps.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0));
    steps.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  };
  only_if(offsetof(seccomp_data, arch), architecture);
  only_if(offsetof(seccomp_data, nr), call);
  if (call == SYS_socket) only_if(offsetof(seccomp_data, args), AF_INET6);
  steps.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA)));
  const sock_fprog program{static_cast<unsigned short>(steps.size()), steps.data()};
  if (architecture == 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) {
    std::fprintf(stderr, "hawser-test-refuse: no filter for system calls: %s\n", std::strerror(errno));
    return 77;
  }
  execvp(words[3], words + 3);
  std::fprintf(stderr, "hawser-test-refuse: %s: %s\n", words[3], std::strerror(errno));
  return 127;
}
