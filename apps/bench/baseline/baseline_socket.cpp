#include "bench/baseline/baseline_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace hawser::bench {
namespace {

constexpr int backlog = 4096;
constexpr int sleep_ms_max = 100;                 // So that the end is noticed without traffic.
constexpr std::chrono::milliseconds spin_max(1);  // The longest time that a Loop spins.

// Address of either family.
struct BaselinePlace {
  union {
    sockaddr any;
    sockaddr_in internet;
    sockaddr_un local;
  };
  socklen_t bytes = 0;
};

BaselinePlace loopback(std::uint16_t port) {
  BaselinePlace place{};
  place.internet.sin_family = AF_INET;
  place.internet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.internet.sin_port = htons(port);
  place.bytes = sizeof(place.internet);
  return place;
}

// Abstract name of a Unix socket: it begins with a zero byte, and no file has to be removed.
BaselinePlace unix_place(std::string_view name) {
  BaselinePlace place{};
  place.local.sun_family = AF_UNIX;
  name = name.substr(0, sizeof(place.local.sun_path) - 1);
  name.copy(place.local.sun_path + 1, name.size());
  place.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return place;
}

constexpr std::string_view unix_prefix = "unix:@";

void prepare(int descriptor) {
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  fcntl(descriptor, F_SETFL, O_NONBLOCK);
}

}  // namespace

void fail_with_errno(const char* text) { throw std::runtime_error(std::string(text) + ": " + std::strerror(errno)); }

BaselineSocket::~BaselineSocket() {
  if (descriptor_ >= 0) close(descriptor_);
}

BaselineSocket listen_baseline(std::string& address, bool unix) {
  const std::string name = "hawser-baseline-" + std::to_string(getpid());
  BaselinePlace place = unix ? unix_place(name) : loopback(0);
  BaselineSocket listener(socket(place.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.descriptor() < 0 || bind(listener.descriptor(), &place.any, place.bytes) != 0 ||
      listen(listener.descriptor(), backlog) != 0 ||
      getsockname(listener.descriptor(), &place.any, &place.bytes) != 0) {
    fail_with_errno("cannot listen");
  }
  address = unix ? std::string(unix_prefix) + name : "127.0.0.1:" + std::to_string(ntohs(place.internet.sin_port));
  return listener;
}

BaselineSocket connect_baseline(const std::string& address, const BaselineHello& hello) {
  const BaselinePlace place =
      address.starts_with(unix_prefix)
          ? unix_place(std::string_view(address).substr(unix_prefix.size()))
          : loopback(static_cast<std::uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str())));
  BaselineSocket connection(socket(place.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connection.descriptor() < 0 || connect(connection.descriptor(), &place.any, place.bytes) != 0 ||
      send(connection.descriptor(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
    fail_with_errno("cannot connect");
  }
  prepare(connection.descriptor());
  return connection;
}

BaselineSocket accept_baseline(const BaselineSocket& listener, BaselineHello& hello) {
  BaselineSocket connection(accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.descriptor() < 0) fail_with_errno("cannot accept");
  if (recv(connection.descriptor(), &hello, sizeof(hello), MSG_WAITALL) != sizeof(hello)) hello = {};
  prepare(connection.descriptor());
  return connection;
}

std::string_view SocketChannel::receive(std::size_t most) noexcept {
  const ssize_t count = recv(socket_.descriptor(), buffer_.data(), std::min(most, buffer_.size()), 0);
  if (count > 0) return {buffer_.data(), static_cast<std::size_t>(count)};
  lost_ = lost_ || count == 0 || (errno != EAGAIN && errno != EINTR);
  return {};
}

std::size_t SocketChannel::send(std::string_view bytes) noexcept {
  const ssize_t count = ::send(socket_.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (count >= 0) return static_cast<std::size_t>(count);
  lost_ = lost_ || (errno != EAGAIN && errno != EINTR);
  return 0;
}

BaselineStream::BaselineStream() {
  std::uint32_t word = 1;
  for (std::size_t i = 0; i < period; ++i) {
    word = word * 1664525 + 1013904223;  // A linear congruential generator: the pattern only has to vary.
    bytes_[i] = static_cast<char>(word >> 24);
  }
  for (std::size_t i = period; i < sizeof(bytes_); ++i) bytes_[i] = bytes_[i - period];
}

bool BaselineStream::matches(std::uint64_t at, std::string_view bytes) const noexcept {
  const std::size_t end = std::min<std::size_t>(bytes.size(), sizeof(std::uint64_t));
  return bytes.substr(0, end) == window(at).substr(0, end) &&
         bytes.substr(bytes.size() - end) == window(at + bytes.size() - end).substr(0, end);
}

BaselinePoll::BaselinePoll(Wait wait) : wait_(wait), descriptor_(epoll_create1(EPOLL_CLOEXEC)) {
  if (descriptor_ < 0) fail_with_errno("cannot wait");
}

BaselinePoll::~BaselinePoll() { close(descriptor_); }

void BaselinePoll::add(int descriptor, void* owner) {
  epoll_event event{.events = EPOLLIN, .data = {.ptr = owner}};
  if (epoll_ctl(descriptor_, EPOLL_CTL_ADD, descriptor, &event) != 0) fail_with_errno("cannot wait");
}

void BaselinePoll::want_to_write(int descriptor, void* owner, bool on) {
  epoll_event event{.events = on ? EPOLLIN | EPOLLOUT : EPOLLIN, .data = {.ptr = owner}};
  if (epoll_ctl(descriptor_, EPOLL_CTL_MOD, descriptor, &event) != 0) fail_with_errno("cannot wait");
}

void BaselinePoll::remove(int descriptor) { epoll_ctl(descriptor_, EPOLL_CTL_DEL, descriptor, nullptr); }

std::span<const epoll_event> BaselinePoll::ready() {
  const bool sleep = wait_ == Wait::event || tired_;
  const int count = epoll_wait(descriptor_, events_, descriptors_per_poll_max, sleep ? sleep_ms_max : 0);
  return {events_, static_cast<std::size_t>(std::max(count, 0))};
}

void BaselinePoll::note(bool work) {
  if (wait_ != Wait::spin) return;
  if (work) {
    idle_ = tired_ = false;
    return;
  }
  const Clock::time_point now = Clock::now();
  if (!idle_) idle_since_ = now;
  idle_ = true;
  tired_ = now - idle_since_ > spin_max;
}

}  // namespace hawser::bench
