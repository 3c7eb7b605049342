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

// Sockets with nothing around them, and the leanest loop over them: what "baseline" measures.
namespace hawser::bench {

// Closes its descriptor. Empty after moving from it.
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

// Throws std::runtime_error: `text`, and the error that errno has.
[[noreturn]] void fail_with_errno(const char* text);

// The first bytes on each connection.
struct BaselineHello {
  std::uint64_t size_bytes = 0;
  std::uint32_t connections = 0;  // That belong together: so many will come.
  std::uint32_t ack = 0;          // 1: reply with 16 bytes, else with the payload.
};

// Listens at a free port of the loopback address, or with `unix` as a Unix socket. Throws std::runtime_error, as do the
// next two.
BaselineSocket listen_baseline(std::string& address, bool unix);
// Connects, says hello, and does not block from then on.
BaselineSocket connect_baseline(const std::string& address, const BaselineHello& hello);
// Waits for the next connection and its hello. It does not block from then on.
BaselineSocket accept_baseline(const BaselineSocket& listener, BaselineHello& hello);

// What flows in either direction, without end: window(at) are the bytes at that place of the stream, `bytes_max` of
// them, which is the most for one call of the kernel. Small enough to stay in the cache.
class BaselineStream {
 public:
  static constexpr std::size_t bytes_max = 1024 * 1024;

  std::string_view window(std::uint64_t at) const noexcept { return {bytes_ + at % period, bytes_max}; }
  // Whether `bytes` are those at that place, going by their ends.
  bool right(std::uint64_t at, std::string_view bytes) const noexcept;

  BaselineStream();

 private:
  static constexpr std::size_t period = 64 * 1024;
  char bytes_[period + bytes_max];
};

// One end of a connected socket.
class SocketChannel {
 public:
  // `buffer`, which channels may share, holds what was received last.
  SocketChannel(BaselineSocket socket, std::span<char> buffer) noexcept : socket_(std::move(socket)), buffer_(buffer) {}

  int descriptor() const noexcept { return socket_.descriptor(); }
  // The next bytes, valid until the next call of any that share the buffer. Empty if none are there.
  std::string_view receive(std::size_t most) noexcept;
  // Whether the connection has ended.
  bool lost() const noexcept { return lost_; }
  // How many bytes could be sent.
  std::size_t send(std::string_view bytes) noexcept;
  // How many are worth receiving when they are to be sent on: what can't be sent has to be kept.
  std::size_t room() const noexcept { return buffer_.size(); }

 private:
  BaselineSocket socket_;
  std::span<char> buffer_;
  bool lost_ = false;
};

// Looks after sockets in the way that `wait` says.
class BaselinePoll {
 public:
  static constexpr int descriptors_per_poll_max = 256;

  explicit BaselinePoll(Wait wait);
  BaselinePoll(const BaselinePoll&) = delete;
  BaselinePoll& operator=(const BaselinePoll&) = delete;
  ~BaselinePoll();

  // `owner` is what ready() gives.
  void add(int descriptor, void* owner);
  void want_to_write(int descriptor, void* owner, bool on);
  void remove(int descriptor);

  // Whether the only socket there is should be tried without asking first.
  bool try_first() const noexcept { return wait_ != Wait::event && !tired_; }
  // Waits, or only looks; but then what is ready.
  std::span<const epoll_event> ready();
  // Something came, or nothing did.
  void note(bool work);

 private:
  using Clock = std::chrono::steady_clock;

  const Wait wait_;
  const int descriptor_;
  bool idle_ = false;
  bool tired_ = false;  // Has looked in vain for so long that it is time to sleep.
  Clock::time_point idle_since_{};
  epoll_event events_[descriptors_per_poll_max];
};

// Keeps `endpoints` going until `go_on` says no or all have ended. An endpoint has descriptor(), pump(), which does
// what can be done now and tells whether that was anything, ended(), and blocked(): whether it has something to send.
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
