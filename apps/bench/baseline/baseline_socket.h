#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/loop.h"

// Bare sockets and a minimal loop over them, which "baseline" measures.
namespace hawser::bench {

// Owns a descriptor and closes it. Empty after a move.
class BaselineSocket {
 public:
  explicit BaselineSocket(int descriptor = -1) noexcept : descriptor_(descriptor) {}
  BaselineSocket(BaselineSocket&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  BaselineSocket& operator=(BaselineSocket&&) = delete;
  ~BaselineSocket();

  int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

// Throws std::runtime_error with `text` and the error of errno.
[[noreturn]] void fail_with_errno(const char* text);

// First bytes on each connection.
struct BaselineHello {
  std::uint64_t size_bytes = 0;
  std::uint32_t connections = 0;  // Connections of this cell.
  std::uint32_t ack = 0;          // 1: reply with 16 bytes, else with the payload.
};

// Listens at a free port of the loopback address, or with `unix` as a Unix socket. This and the next two functions
// throw std::runtime_error.
BaselineSocket listen_baseline(std::string& address, bool unix);
// Connects and sends the hello. The socket is non-blocking afterwards.
BaselineSocket connect_baseline(const std::string& address, const BaselineHello& hello);
// Waits for the next connection and receives its hello. The socket is non-blocking afterwards.
BaselineSocket accept_baseline(const BaselineSocket& listener, BaselineHello& hello);

// Pattern of bytes that flows in either direction without end: window(at) returns the `bytes_max` bytes at position
// `at`. One system call transfers at most so many; the buffer fits into the cache.
class BaselineStream {
 public:
  static constexpr std::size_t bytes_max = 1024 * 1024;

  std::string_view window(std::uint64_t at) const noexcept { return {bytes_ + at % period, bytes_max}; }
  // Compares the first and the last bytes of `bytes` with the pattern at position `at`.
  bool matches(std::uint64_t at, std::string_view bytes) const noexcept;

  BaselineStream();

 private:
  static constexpr std::size_t period = 64 * 1024;
  char bytes_[period + bytes_max];
};

// One end of a connected socket.
class SocketChannel {
 public:
  // `buffer` holds the bytes received last; several channels may share it.
  SocketChannel(BaselineSocket socket, std::span<char> buffer) noexcept : socket_(std::move(socket)), buffer_(buffer) {}

  int descriptor() const noexcept { return socket_.descriptor(); }
  // Returns the next bytes, valid until the next call of any channel with the same buffer. Empty if there are none.
  std::string_view receive(std::size_t most) noexcept;
  // Returns whether the connection has ended.
  bool lost() const noexcept { return lost_; }
  // Returns how many of `bytes` were sent.
  std::size_t send(std::string_view bytes) noexcept;
  // Largest number of bytes to receive at once when they are echoed: bytes that can't be sent have to be kept.
  std::size_t room() const noexcept { return buffer_.size(); }

 private:
  BaselineSocket socket_;
  std::span<char> buffer_;
  bool lost_ = false;
};

// Waits for sockets in the mode `wait`: by sleeping, spinning or both.
class BaselinePoll {
 public:
  static constexpr int descriptors_per_poll_max = 256;

  explicit BaselinePoll(Wait wait);
  BaselinePoll(const BaselinePoll&) = delete;
  BaselinePoll& operator=(const BaselinePoll&) = delete;
  ~BaselinePoll();

  // Adds a descriptor. ready() returns `owner` with its events.
  void add(int descriptor, void* owner);
  void want_to_write(int descriptor, void* owner, bool on);
  void remove(int descriptor);

  // Returns whether the only socket should be read without asking the kernel first.
  bool try_first() const noexcept { return wait_ != Wait::event && !tired_; }
  // Returns the sockets that are ready. Waits for one if the mode and the time without work ask for it.
  std::span<const epoll_event> ready();
  // Records whether the last pass did any work.
  void note(bool work);

 private:
  using Clock = std::chrono::steady_clock;

  const Wait wait_;
  const int descriptor_;
  bool idle_ = false;
  bool tired_ = false;  // Has polled without work for so long that the next wait sleeps.
  Clock::time_point idle_since_{};
  epoll_event events_[descriptors_per_poll_max];
};

// Drives `endpoints` until `go_on` returns false or all have ended. An endpoint has descriptor(); pump(), which does
// the work that is possible now and returns whether there was any; ended(); and blocked(), whether it has bytes to
// send.
template <class Endpoint, class GoOn>
void pump_baseline(std::span<Endpoint> endpoints, Wait wait, GoOn go_on) {
  struct Armed {
    Endpoint* endpoint;
    bool to_write = false;
  };
  std::vector<Armed> all;
  all.reserve(endpoints.size());
  BaselinePoll poll(wait);
  std::size_t open = 0;
  for (Endpoint& endpoint : endpoints) {
    all.push_back({&endpoint});
    poll.add(endpoint.descriptor(), &all.back());
    ++open;
  }
  const auto pump = [&](Armed& one) {
    const bool work = one.endpoint->pump();
    if (one.endpoint->ended()) {
      poll.remove(one.endpoint->descriptor());
      --open;
    } else if (one.endpoint->blocked() != one.to_write) [[unlikely]] {
      one.to_write = !one.to_write;
      poll.want_to_write(one.endpoint->descriptor(), &one, one.to_write);
    }
    return work;
  };
  for (Armed& one : all) pump(one);
  while (open > 0 && go_on()) {
    bool work = false;
    if (all.size() == 1 && poll.try_first()) {
      work = pump(all.front());
    } else {
      for (const epoll_event& event : poll.ready()) {
        Armed& one = *static_cast<Armed*>(event.data.ptr);
        if (!one.endpoint->ended()) work |= pump(one);
      }
    }
    poll.note(work);
  }
}

}  // namespace hawser::bench
