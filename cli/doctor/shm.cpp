#include "doctor/shm.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace hawser::cli::doctor {
namespace {

// As the transport makes it.
std::string try_shared_memory() {
  constexpr std::size_t bytes = 1 << 20;
  const int file = ::memfd_create("hawser-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return fmt::format("memfd_create: {}", std::strerror(errno));
  std::string error;
  if (::ftruncate(file, bytes) != 0) {
    error = fmt::format("ftruncate: {}", std::strerror(errno));
  } else if (void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0); memory == MAP_FAILED) {
    error = fmt::format("mmap: {}", std::strerror(errno));
  } else {
    ::munmap(memory, bytes);
  }
  ::close(file);
  return error;
}

// A child reads from us: of the two directions the one that kernel.yama.ptrace_scope=1 forbids, as it does between
// processes that are no kin.
std::string try_peer_read() {
  static constexpr std::array<char, 8> word = {'h', 'a', 'w', 's', 'e', 'r', '!', '\n'};
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return fmt::format("fork: {}", std::strerror(errno));
  if (child == 0) {
    std::array<char, word.size()> copy{};
    const iovec to{copy.data(), copy.size()};
    const iovec from{const_cast<char*>(word.data()), word.size()};
    const ssize_t count = ::process_vm_readv(parent, &to, 1, &from, 1, 0);
    ::_exit(count == static_cast<ssize_t>(word.size()) && copy == word ? 0 : count < 0 ? errno : EIO);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return "process_vm_readv: the process was ended for it";
  if (WEXITSTATUS(status) == 0) return {};
  return fmt::format("process_vm_readv: {}", std::strerror(WEXITSTATUS(status)));
}

}  // namespace

ShmFacts read_shm(const SystemFiles& files) {
  return {.memory_error = try_shared_memory(),
          .peer_read_error = try_peer_read(),
          .ptrace_scope = files.number("/proc/sys/kernel/yama/ptrace_scope").value_or(0)};
}

Section examine_shm(const ShmFacts& facts) {
  Section section{"shm", "Shared memory", facts.memory_error.empty(), {}};
  if (!facts.memory_error.empty()) {
    section.findings.push_back(
        {"shm.memory",
         Severity::problem,
         facts.memory_error,
         "raise the memory limit of the container or the service, or let its seccomp filter pass "
         "memfd_create",
         {}});
    return section;
  }
  section.findings.push_back(
      {"shm.memory", Severity::good, "memory can be shared with processes of this host", {}, {}});
  if (facts.peer_read_error.empty()) {
    section.findings.push_back(
        {"shm.direct_read", Severity::good, "large payloads are read straight from the peer's memory", {}, {}});
    return section;
  }
  std::string remedy = "containers: --cap-add SYS_PTRACE, or a seccomp filter that passes process_vm_readv";
  if (facts.ptrace_scope == 1) remedy = "sysctl kernel.yama.ptrace_scope=0";
  if (facts.ptrace_scope > 1) remedy = "sysctl kernel.yama.ptrace_scope=0, or CAP_SYS_PTRACE";
  section.findings.push_back({"shm.direct_read",
                              Severity::note,
                              facts.peer_read_error + ": large payloads are copied once more, through the slab",
                              remedy,
                              {}});
  return section;
}

}  // namespace hawser::cli::doctor
