#include "os/kernel_tls.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/descriptor.h"

namespace hawser {
namespace {

constexpr int tls_level = 282;  // SOL_TLS, which older headers do not define.
constexpr std::size_t record_bytes_max = 16 * 1024;
constexpr std::size_t block_bytes = 16;
// Bytes of a record beside its content: header, type and tag. The kernel pads nothing.
constexpr std::uint64_t record_overhead_bytes = 5 + 1 + 16;
constexpr unsigned char alert_record = 21;
constexpr unsigned tcp_state_closed = 7;  // TCP_CLOSE, which another header of the system defines.

template <class Info, class Function>
void visit_info(std::uint16_t type, Function& function) noexcept {
  Info info;
  std::memset(&info, 0, sizeof info);
  function(info, type);
  explicit_bzero(&info, sizeof info);
}

// Calls `function` with an empty key for this cipher, in the form of setsockopt(TLS_TX), and with the cipher's number
// in the kernel. Wipes the key.
template <class Function>
void visit_info(KernelCipher cipher, Function function) noexcept {
  switch (cipher) {
    case KernelCipher::aes_128_gcm: return visit_info<tls12_crypto_info_aes_gcm_128>(TLS_CIPHER_AES_GCM_128, function);
    case KernelCipher::aes_256_gcm: return visit_info<tls12_crypto_info_aes_gcm_256>(TLS_CIPHER_AES_GCM_256, function);
    case KernelCipher::chacha20_poly1305:
      return visit_info<tls12_crypto_info_chacha20_poly1305>(TLS_CIPHER_CHACHA20_POLY1305, function);
  }
}

// Returns 0 as soon as `socket` is ready, otherwise an errno: ETIMEDOUT after `wait_max`.
int wait_for(int socket, short events, Duration wait_max) noexcept {
  const auto end = std::chrono::steady_clock::now() + wait_max;
  pollfd waiting{socket, events, 0};
  for (;;) {
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    const int ready = ::poll(&waiting, 1, rest.count() > 0 ? static_cast<int>(rest.count()) : 0);
    if (ready > 0) return 0;
    if (ready == 0) return ETIMEDOUT;
    if (errno != EINTR) return errno;
  }
}

int enable(int socket) noexcept {
  return setsockopt(socket, IPPROTO_TCP, TCP_ULP, "tls", sizeof "tls") == 0 ? 0 : errno;
}

int set_key(int socket, const KernelTlsKey& key) noexcept {
  int error = 0;
  visit_info(key.cipher, [&](auto& one, std::uint16_t type) {
    one.info.version = TLS_1_3_VERSION;
    one.info.cipher_type = type;
    static_assert(sizeof one.key <= sizeof key.key && sizeof one.salt + sizeof one.iv == sizeof key.iv);
    std::memcpy(one.key, key.key.data(), sizeof one.key);
    // The kernel puts both together again.
    std::memcpy(one.salt, key.iv.data(), sizeof one.salt);
    std::memcpy(one.iv, key.iv.data() + sizeof one.salt, sizeof one.iv);
    for (std::size_t i = 0; i < sizeof one.rec_seq; ++i) {
      one.rec_seq[i] = static_cast<unsigned char>(key.next_record >> (8 * (sizeof one.rec_seq - 1 - i)));
    }
    error = setsockopt(socket, tls_level, TLS_TX, &one, sizeof one) == 0 ? 0 : errno;
  });
  return error;
}

// Connects a socket that does not block. Returns 0 or an errno: ETIMEDOUT if nobody has answered within `wait_max`.
int connect_within(int socket, const sockaddr& to, socklen_t size, Duration wait_max) noexcept {
  if (connect(socket, &to, size) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (const int error = wait_for(socket, POLLOUT, wait_max); error != 0) return error;
  int error = 0;
  socklen_t error_size = sizeof error;
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &error_size) == 0 ? error : errno;
}

// Two connected sockets of this host. Returns an errno.
int connect_pair(Descriptor& client, Descriptor& server) noexcept {
  const Descriptor listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  client = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  if (!listening.valid() || !client.valid() || bind(listening.get(), where, size) != 0 ||
      listen(listening.get(), 1) != 0 || getsockname(listening.get(), where, &size) != 0) {
    return errno;
  }
  if (const int error = connect_within(client.get(), *where, size, KernelTls::trial_wait_max); error != 0) return error;
  if (const int error = wait_for(listening.get(), POLLIN, KernelTls::trial_wait_max); error != 0) return error;
  server = Descriptor(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return server.valid() ? 0 : errno;
}

}  // namespace

KernelTlsKey::~KernelTlsKey() {
  explicit_bzero(key.data(), key.size());
  explicit_bzero(iv.data(), iv.size());
}

KernelTls::Failure KernelTls::try_key(const KernelTlsKey& key) noexcept {
  Descriptor client;
  Descriptor server;
  if (const int error = connect_pair(client, server); error != 0) return {Step::connection, error};
  KernelTls trial;
  if (const Failure failure = trial.begin(client.get(), key); failure.step != Step::none) return failure;
  errno = 0;
  if (!trial.next_record()) return {Step::report, errno != 0 ? errno : ENOTSUP};
  return {};
}

KernelTls::Failure KernelTls::begin(int socket, const KernelTlsKey& key) noexcept {
  if (const int error = enable(socket); error != 0) return {Step::module, error};
  const std::optional<std::uint64_t> queued = queued_bytes(socket);
  if (const int error = queued ? set_key(socket, key) : ENOTCONN; error != 0) return {Step::key, error};
  socket_ = socket;
  cipher_ = key.cipher;
  first_record_ = key.next_record;
  first_byte_ = *queued;
  return {};
}

void KernelTls::count(std::size_t bytes, std::size_t pieces) noexcept {
  content_bytes_ += bytes;
  // The kernel may end a record before it is full, at most once for each piece.
  blocks_ += bytes / block_bytes + 2 * (bytes / record_bytes_max + 1 + pieces);
}

bool KernelTls::send_alert(const std::array<std::byte, 2>& alert) noexcept {
  iovec content{const_cast<std::byte*>(alert.data()), alert.size()};
  alignas(cmsghdr) std::array<unsigned char, CMSG_SPACE(sizeof alert_record)> control{};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = tls_level;
  header->cmsg_type = TLS_SET_RECORD_TYPE;
  header->cmsg_len = CMSG_LEN(sizeof alert_record);
  *CMSG_DATA(header) = alert_record;
  const ssize_t sent = sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) count(static_cast<std::size_t>(sent), 1);
  // After another error nothing is sent any more.
  return sent > 0 || (errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ENOMEM);
}

std::optional<std::uint64_t> KernelTls::next_record() const noexcept {
  std::optional<std::uint64_t> next;
  visit_info(cipher_, [&](auto& one, std::uint16_t) {
    socklen_t size = sizeof one;
    if (getsockopt(socket_, tls_level, TLS_TX, &one, &size) != 0) return;
    std::uint64_t number = 0;
    for (const unsigned char byte : one.rec_seq) number = number << 8 | byte;
    next = number;
  });
  return next;
}

// The bytes that TCP has been given since the connection opened.
std::optional<std::uint64_t> KernelTls::queued_bytes(int socket) noexcept {
  // Acknowledgements may arrive between the calls.
  for (int attempt = 0; attempt < 8; ++attempt) {
    tcp_info before{};
    tcp_info after{};
    socklen_t before_size = sizeof before;
    socklen_t after_size = sizeof after;
    int unacknowledged = 0;
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &before, &before_size) != 0 ||
        ioctl(socket, SIOCOUTQ, &unacknowledged) != 0 ||
        getsockopt(socket, IPPROTO_TCP, TCP_INFO, &after, &after_size) != 0) {
      return std::nullopt;
    }
    if (before.tcpi_bytes_acked == after.tcpi_bytes_acked) {
      return before.tcpi_bytes_acked + static_cast<std::uint64_t>(unacknowledged);
    }
  }
  return std::nullopt;
}

std::uint64_t KernelTls::held_bytes() const noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  // After the end of the connection nothing is sent any more.
  if (getsockopt(socket_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_state == tcp_state_closed) return 0;
  const std::optional<std::uint64_t> next = next_record();
  const std::optional<std::uint64_t> queued = queued_bytes(socket_);
  if (!next || !queued) return 1;
  const std::uint64_t all = content_bytes_ + (*next - first_record_) * record_overhead_bytes;
  const std::uint64_t left = *queued - first_byte_;
  return left >= all ? 0 : all - left;
}

}  // namespace hawser
