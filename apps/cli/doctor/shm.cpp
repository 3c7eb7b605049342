#include "cli/doctor/shm.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
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

// Runs `attempt` in a child process, which acts as the peer. `attempt` returns 0 or an error number and must not
// allocate memory.
template <class Attempt>
int in_child(Attempt attempt) {
  const pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) ::_exit(attempt());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;  // Otherwise a system call filter has ended the child.
}

// A child connects to a Unix socket without a file, as a client of the transport does to pass the shared memory.
int try_meeting() {
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return errno;
  // The kernel chooses the name.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t size = sizeof(sa_family_t);
  int error = 0;
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), size) != 0 || ::listen(listener, 1) != 0) {
    error = errno;
  } else if (size = sizeof address; ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    error = errno;
  } else {
    error = in_child([&] {
      const int peer = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      return peer < 0 || ::connect(peer, reinterpret_cast<const sockaddr*>(&address), size) != 0 ? errno : 0;
    });
  }
  ::close(listener);
  return error;
}

// Creates shared memory like the transport, and passes it like a peer.
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
    if (const int error = try_meeting(); error != 0) {
      facts.peer_meet_error = failed("connecting to an abstract Unix socket", error);
    }
  }
  ::close(file);
}

// A child reads from its parent. kernel.yama.ptrace_scope=1 forbids this direction, as it does between unrelated
// processes.
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
  facts.proc = files.exists("/proc/sys/kernel/random/boot_id");
  facts.ptrace_scope = files.number("/proc/sys/kernel/yama/ptrace_scope").value_or(0);
  try_shared_memory(facts);
  try_peer_read(facts);
  return facts;
}

Section examine_shm(const ShmFacts& facts) {
  Section section{
      "shm", "Shared memory", facts.proc && facts.memory_error.empty() && facts.peer_meet_error.empty(), {}};
  if (!facts.proc) {
    section.findings.push_back({"shm.memory",
                                Severity::problem,
                                "/proc can't be read, by which two processes know that they are on one host",
                                "mount -t proc proc /proc",
                                {}});
    return section;
  }
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
  if (!facts.peer_meet_error.empty()) {
    section.findings.push_back({"shm.memory",
                                Severity::problem,
                                facts.peer_meet_error,
                                "let the seccomp filter or security module pass abstract Unix sockets, and run both "
                                "processes as the same user and in the same network namespace",
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
  // There is no remedy in the report: a setting that allows this lets every process of the user read the memory of all
  // others.
  std::string reason = facts.peer_read_error;
  if (facts.ptrace_scope > 0) reason += fmt::format(" (kernel.yama.ptrace_scope is {})", facts.ptrace_scope);
  section.findings.push_back(
      {"shm.direct_read",
       Severity::note,
       reason + ": payloads of 8 MiB and more are copied twice rather than once, and nothing else is lost: leave the "
                "protection against tracing as it is",
       {},
       {}});
  return section;
}

}  // namespace hawser::cli::doctor
