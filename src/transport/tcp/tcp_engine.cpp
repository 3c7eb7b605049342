#include "transport/tcp/tcp_engine.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "transport/tcp/socket.h"

namespace hawser::transport {
namespace {

constexpr std::size_t iovecs_max = 64;

// Errors of the connection. Receiving reports them too, after the data that the peer sent before.
bool is_of_connection(int error) noexcept {
  return error == EPIPE || error == ECONNRESET || error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ENETDOWN || error == ECONNABORTED || error == ENOTCONN;
}

// `sent` is what the kernel returned.
Sent result_of(ssize_t sent, std::size_t offered) noexcept {
  Sent result;
  if (sent >= 0) [[likely]] {
    result.bytes = static_cast<std::size_t>(sent);
  } else if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ENOMEM) {
    result.error = errno;
    result.broken = is_of_connection(errno);
  }
  result.all = result.bytes == offered;
  return result;
}

[[gnu::noinline]] Sent send_pieces(int fd, std::span<const ConstBuffer> pieces) noexcept {
  std::array<iovec, iovecs_max> vectors;
  const std::size_t count = std::min(pieces.size(), vectors.size());
  for (std::size_t i = 0; i < count; ++i) vectors[i] = {const_cast<std::byte*>(pieces[i].data), pieces[i].size};
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = count;
  std::size_t offered = 0;
  for (const ConstBuffer& piece : pieces) offered += piece.size;
  return result_of(sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT), offered);
}

}  // namespace

Sent send_now(int fd, std::span<const ConstBuffer> pieces) noexcept {
  if (pieces.size() != 1) [[unlikely]]
    return send_pieces(fd, pieces);
  const ConstBuffer& only = pieces.front();
  return result_of(::send(fd, only.data, only.size, MSG_NOSIGNAL | MSG_DONTWAIT), only.size);
}

Error end_reason(int received, int sent) noexcept {
  try {
    if (sent != 0) return socket_error(ErrorCode::unavailable, "sending failed", sent);
    if (received < 0) return socket_error(ErrorCode::unavailable, "receiving failed", -received);
    return Error::of_connection(Initiator::peer, ErrorCode::unavailable, "the peer closed the connection");
  } catch (const std::bad_alloc&) {
    // The text is so short that it needs no memory.
    return Error::of_connection(ErrorCode::unavailable, "it ended");
  }
}

}  // namespace hawser::transport
