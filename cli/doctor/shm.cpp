#include "doctor/shm.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

namespace hawser::cli::doctor {
namespace {

std::string failed(std::string_view what, int error) { return fmt::format("{}: {}", what, std::strerror(error)); }

// A child of ours, as a peer: runs `attempt`, which gives 0 or an error number; nothing in it may allocate.
template <class Attempt>
int in_child(Attempt attempt) {
  const pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) ::_exit(attempt());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;  // Else a filter has ended it for what it tried.
}

// As the transport makes it, and as a peer opens it.
void try_shared_memory(ShmFacts& facts) {
  constexpr std::size_t bytes = 1 << 20;
  const int file = ::memfd_create("hawser-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) {
    facts.memory_error = failed("memfd_create", errno);
    return;
  }
  if (::ftruncate(file, bytes) != 0) {
    facts.memory_error = failed("ftruncate", errno);
  } else if (void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0); memory == MAP_FAILED) {
    facts.memory_error = failed("mmap", errno);
  } else {
    ::munmap(memory, bytes);
    const std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), file);
    const int error = in_child([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC) < 0 ? errno : 0; });
    if (error != 0) facts.peer_open_error = failed("opening /proc/PID/fd of another process", error);
  }
  ::close(file);
}

// A child reads from us: of the two directions the one that kernel.yama.ptrace_scope=1 forbids, as it does between
// processes that are no kin.
void try_peer_read(ShmFacts& facts) {
  static constexpr std::array<char, 8> word = {'h', 'a', 'w', 's', 'e', 'r', '!', '\n'};
  const pid_t parent = ::getpid();
  const int error = in_child([parent] {
    std::array<char, word.size()> copy{};
    const iovec to{copy.data(), copy.size()};
    const iovec from{const_cast<char*>(word.data()), word.size()};
    const ssize_t count = ::process_vm_readv(parent, &to, 1, &from, 1, 0);
    if (count < 0) return errno;
    return count == static_cast<ssize_t>(word.size()) && copy == word ? 0 : EIO;
  });
  if (error != 0) facts.peer_read_error = failed("process_vm_readv", error);
}

}  // namespace

ShmFacts read_shm(const SystemFiles& files) {
  ShmFacts facts;
  facts.ptrace_scope = files.number("/proc/sys/kernel/yama/ptrace_scope").value_or(0);
  try_shared_memory(facts);
  try_peer_read(facts);
  return facts;
}

Section examine_shm(const ShmFacts& facts) {
  Section section{"shm", "Shared memory", facts.memory_error.empty() && facts.peer_open_error.empty(), {}};
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
  if (!facts.peer_open_error.empty()) {
    section.findings.push_back({"shm.memory",
                                Severity::problem,
                                facts.peer_open_error,
                                "mount /proc without hidepid, and run both processes as the same user and in the same "
                                "namespace of process numbers",
                                {}});
    return section;
  }
  section.findings.push_back(
      {"shm.memory", Severity::good, "memory can be shared with processes of this user", {}, {}});
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
