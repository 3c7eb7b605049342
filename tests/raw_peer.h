#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/testing.h"
#include "wire/frame.h"
#include "wire/hello.h"
#include "wire/metadata.h"

// A peer that speaks the wire format by hand, correctly or with the errors that a test needs.
namespace hawser::testing_tools {

using Octets = std::vector<std::byte>;

inline Octets octets(std::string_view text) {
  const Bytes bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}
inline Octets operator+(Octets left, const Octets& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}
inline Octets first(const Octets& bytes, std::size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

// Returns the prefix of a message with these announced lengths.
inline Octets prefix(std::uint32_t head_bytes, std::uint32_t payload_bytes) {
  Octets out(8);
  store_le(out.data(), head_bytes);
  store_le(out.data() + 4, payload_bytes);
  return out;
}

// The header of a frame with every field, for frames that the library's encoder does not write. The meaning of some
// fields depends on the kind: docs/wire-format.md, "Frames".
struct RawHeader {
  wire::FrameKind kind = wire::FrameKind::request;
  std::uint8_t flags = 0;
  std::uint16_t metadata_bytes = 0;
  std::uint32_t call = 0;
  std::uint32_t method = 0;
  std::uint32_t signature = 0;
  std::uint32_t deadline = 0;
  std::uint32_t attachment_bytes = 0;
  std::uint32_t checksum = 0;
};
inline void write_raw_header(std::byte* to, const RawHeader& header) {
  store_le(to, static_cast<std::uint8_t>(header.kind));
  store_le(to + 1, header.flags);
  store_le(to + 2, header.metadata_bytes);
  store_le(to + 4, header.call);
  store_le(to + 8, header.method);
  store_le(to + 12, header.signature);
  store_le(to + 16, header.deadline);
  store_le(to + 20, header.attachment_bytes);
  store_le(to + 24, header.checksum);
}
inline RawHeader read_raw_header(Bytes head) {
  const std::byte* const from = head.data();
  return {.kind = static_cast<wire::FrameKind>(load_le<std::uint8_t>(from)),
          .flags = load_le<std::uint8_t>(from + 1),
          .metadata_bytes = load_le<std::uint16_t>(from + 2),
          .call = load_le<std::uint32_t>(from + 4),
          .method = load_le<std::uint32_t>(from + 8),
          .signature = load_le<std::uint32_t>(from + 12),
          .deadline = load_le<std::uint32_t>(from + 16),
          .attachment_bytes = load_le<std::uint32_t>(from + 20),
          .checksum = load_le<std::uint32_t>(from + 24)};
}

// Returns a whole message. The header is written as it is given, also if it is wrong.
inline Octets message(const RawHeader& header, std::string_view after_header = {}, std::string_view payload = {}) {
  Octets head(wire::header_bytes);
  write_raw_header(head.data(), header);
  head = head + octets(after_header);
  return prefix(static_cast<std::uint32_t>(head.size()), static_cast<std::uint32_t>(payload.size())) + head +
         octets(payload);
}

// Returns the body of a call with one text.
inline std::string text_body(std::string_view text) {
  std::string body(4, '\0');
  store_le(reinterpret_cast<std::byte*>(body.data()), static_cast<std::uint32_t>(text.size()));
  return body + std::string(text);
}

inline wire::Hello usual_hello() { return {.message_bytes_max = 64U << 20, .stream_window_bytes = 256 * 1024}; }

struct RawFrame {
  RawHeader header;
  std::string body;
  std::string payload;
};

// One end of a TCP connection, with blocking calls that give up after `patience`.
class RawSocket {
 public:
  RawSocket() = default;
  explicit RawSocket(int fd) : fd_(fd) {}
  RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawSocket& operator=(RawSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~RawSocket() { close(); }

  // Connects to "127.0.0.1:port".
  static RawSocket connected_to(const std::string& address) {
    RawSocket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket.fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
      ADD_FAILURE() << "cannot connect to " << address << ": " << std::strerror(errno);
    }
    return socket;
  }
  // Connects and exchanges HELLOs.
  static RawSocket greeted(const std::string& address, const wire::Hello& hello = usual_hello()) {
    RawSocket socket = connected_to(address);
    socket.send(wire::encode_hello(hello));
    const Result<wire::Hello> answer = socket.receive_hello();
    EXPECT_TRUE(answer) << error_of(answer);
    if (answer) {
      EXPECT_FALSE(answer->refusal);
    }
    return socket;
  }

  int fd() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // Closes the socket so that the peer receives a reset.
  void reset() {
    const linger hard{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }
  // Returns false if the peer has gone, which many tests expect, or if no byte can be sent for `wait`.
  bool send(Bytes bytes, std::chrono::nanoseconds wait = patience) {
    while (!bytes.empty()) {
      if (!ready(POLLOUT, wait)) return false;
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // Sends as many bytes as possible without waiting.
  std::size_t send_some(Bytes bytes) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent < 0 ? 0 : static_cast<std::size_t>(sent);
  }

  // Receives exactly `count` bytes; nothing if the peer closes or is silent before.
  std::optional<Octets> receive(std::size_t count) {
    Octets out(count);
    for (std::size_t got = 0; got < count;) {
      if (!ready(POLLIN)) return std::nullopt;
      const ssize_t size = ::recv(fd_, out.data() + got, count - got, MSG_DONTWAIT);
      if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) return std::nullopt;
      if (size > 0) got += static_cast<std::size_t>(size);
    }
    return out;
  }
  Result<wire::Hello> receive_hello() {
    const auto head = receive(wire::hello_prefix_bytes);
    if (!head) return fail(ErrorCode::unavailable, "no hello came");
    const Result<std::size_t> body = wire::hello_body_bytes(*head);
    if (!body) return std::unexpected(body.error());
    const auto rest = receive(*body);
    if (!rest) return fail(ErrorCode::unavailable, "the hello was cut");
    return wire::decode_hello(*head + *rest);
  }
  std::optional<RawFrame> receive_frame() {
    const auto lengths = receive(8);
    if (!lengths) return std::nullopt;
    const auto head_bytes = load_le<std::uint32_t>(lengths->data());
    const auto payload_bytes = load_le<std::uint32_t>(lengths->data() + 4);
    const auto head = receive(head_bytes);
    const auto payload = receive(payload_bytes);
    if (!head || !payload || head_bytes < wire::header_bytes) return std::nullopt;
    RawFrame frame;
    frame.header = read_raw_header(*head);
    frame.body = std::string(as_text(Bytes(*head).subspan(wire::header_bytes + frame.header.metadata_bytes)));
    frame.payload = std::string(as_text(*payload));
    return frame;
  }
  // Receives the next frame of this kind and skips the others.
  std::optional<RawFrame> receive_frame(wire::FrameKind kind) {
    for (;;) {
      std::optional<RawFrame> frame = receive_frame();
      if (!frame || frame->header.kind == kind) return frame;
    }
  }
  // Receives text up to and with `end`, or up to the peer's end if that comes before.
  std::string receive_text(std::string_view end) {
    std::string out;
    while (!out.ends_with(end)) {
      const auto one = receive(1);
      if (!one) break;
      out += as_text(*one);
    }
    return out;
  }
  // Receives everything up to the peer's end.
  std::string receive_all() {
    std::string out;
    for (char scrap[4096];;) {
      if (!ready(POLLIN)) return out + "(the peer does not close)";
      const ssize_t size = ::recv(fd_, scrap, sizeof scrap, MSG_DONTWAIT);
      if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) return out;
      if (size > 0) out.append(scrap, static_cast<std::size_t>(size));
    }
  }
  // Reads until the peer closes or resets the connection; false if it does neither.
  bool closed_by_peer() { return read_to_end().has_value(); }
  // Reads until the peer closes; false if it resets the connection or does not close.
  bool closed_without_reset() { return read_to_end() == 0; }

 private:
  // The error that ends the connection, 0 for its orderly end; nothing if it does not end.
  std::optional<int> read_to_end() {
    std::byte scrap[4096];
    for (;;) {
      if (!ready(POLLIN)) return std::nullopt;
      const ssize_t size = ::recv(fd_, scrap, sizeof scrap, MSG_DONTWAIT);
      if (size == 0) return 0;
      if (size < 0 && errno != EAGAIN && errno != EINTR) return errno;
    }
  }
  bool ready(short events, std::chrono::nanoseconds wait = patience) const {
    pollfd one{fd_, events, 0};
    const auto bound = std::chrono::duration_cast<std::chrono::milliseconds>(wait);
    return ::poll(&one, 1, static_cast<int>(bound.count())) > 0;
  }

  int fd_ = -1;
};

// Listens on a free port of 127.0.0.1.
class RawListener {
 public:
  RawListener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(fd_, 16), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  RawListener(const RawListener&) = delete;
  RawListener& operator=(const RawListener&) = delete;
  ~RawListener() { ::close(fd_); }

  const std::string& address() const { return address_; }
  // Waits for a connection no longer than `wait`. Without one, the socket's descriptor is -1.
  RawSocket accept_within(std::chrono::milliseconds wait) {
    pollfd one{fd_, POLLIN, 0};
    return ::poll(&one, 1, static_cast<int>(wait.count())) > 0 ? accept() : RawSocket(-1);
  }
  RawSocket accept() { return RawSocket(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)); }
  // Accepts a connection and exchanges HELLOs.
  RawSocket accept_greeted(wire::Hello hello = {}) {
    RawSocket socket = accept();
    const Result<wire::Hello> theirs = socket.receive_hello();
    EXPECT_TRUE(theirs) << error_of(theirs);
    if (hello.message_bytes_max == 0) {
      hello.message_bytes_max = 64U << 20;
      hello.calls_max = 64;
      hello.stream_window_bytes = 256 * 1024;
    }
    socket.send(wire::encode_hello(hello));
    return socket;
  }

 private:
  int fd_;
  std::string address_;
};

}  // namespace hawser::testing_tools
