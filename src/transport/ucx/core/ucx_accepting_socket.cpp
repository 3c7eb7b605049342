#include "transport/ucx/core/ucx_accepting_socket.h"

#include <linux/filter.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>

#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>

namespace hawser::transport {
namespace {

// Calls `use` for each descriptor of this process.
template <class Use>
void for_each_descriptor(const Use& use) {
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error); !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    if (descriptor >= 0) use(descriptor);
  }
}

// Returns true if `local`, the address of a socket, is `address` or is covered by it. An address of zeros covers all.
bool covers(const sockaddr_storage& address, const sockaddr_storage& local) {
  if (address.ss_family != local.ss_family) return false;
  if (address.ss_family == AF_INET) {
    const auto& ours = reinterpret_cast<const sockaddr_in&>(address);
    const auto& other = reinterpret_cast<const sockaddr_in&>(local);
    return ours.sin_port == other.sin_port &&
           (ours.sin_addr.s_addr == INADDR_ANY || ours.sin_addr.s_addr == other.sin_addr.s_addr);
  }
  const auto& ours = reinterpret_cast<const sockaddr_in6&>(address);
  const auto& other = reinterpret_cast<const sockaddr_in6&>(local);
  return ours.sin6_port == other.sin6_port &&
         (IN6_IS_ADDR_UNSPECIFIED(&ours.sin6_addr) || IN6_ARE_ADDR_EQUAL(&ours.sin6_addr, &other.sin6_addr));
}

bool is_on(int descriptor, const sockaddr_storage& address) {
  sockaddr_storage local{};
  socklen_t bytes = sizeof local;
  return ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &bytes) == 0 && covers(address, local);
}

bool accepts(int descriptor) {
  int accepting = 0;
  socklen_t bytes = sizeof accepting;
  int protocol = 0;
  socklen_t protocol_bytes = sizeof protocol;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &protocol_bytes) == 0 &&
         protocol == IPPROTO_TCP && ::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &bytes) == 0 &&
         accepting != 0;
}

// Returns true for a connected TCP socket on which this side has sent no data.
bool unanswered(int descriptor) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  return ::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && info.tcpi_data_segs_out == 0;
}

}  // namespace

UcxAcceptingSocket::UcxAcceptingSocket(const sockaddr_storage& address) : address_(address) {
  for_each_descriptor([this](int descriptor) {
    if (is_on(descriptor, address_) && accepts(descriptor)) descriptor_ = descriptor;
  });
}

void UcxAcceptingSocket::refuse() noexcept {
  if (descriptor_ < 0) return;
  sock_filter drop{.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};
  const sock_fprog program{.len = 1, .filter = &drop};
  ::setsockopt(descriptor_, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

bool UcxAcceptingSocket::cut_unanswered() noexcept {
  if (descriptor_ < 0) return true;
  pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
  bool none = ::poll(&waiting, 1, 0) == 0;
  for_each_descriptor([&](int descriptor) {
    if (descriptor == descriptor_ || !is_on(descriptor, address_) || !unanswered(descriptor)) return;
    none = false;
    ::shutdown(descriptor, SHUT_RDWR);
  });
  return none;
}

}  // namespace hawser::transport
