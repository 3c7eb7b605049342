#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "bench/baseline/baseline_socket.h"

// Bytes through memory that two processes share, and the leanest loop over it: what "baseline --transport shm"
// measures. It never sleeps.
namespace hawser::bench {

// One direction: a writer and a reader, each with a position of its own that only grows.
struct BaselineRing {
  static constexpr std::size_t bytes = 256 * 1024;
  static constexpr std::size_t line_bytes = 128;  // Processors fetch cache lines in pairs.

  alignas(line_bytes) std::atomic<std::uint64_t> written;
  alignas(line_bytes) std::atomic<std::uint64_t> read;
  alignas(line_bytes) std::atomic<std::uint32_t> closed;  // By the writer.
  alignas(line_bytes) char data[bytes];
};
struct BaselineRings {
  BaselineRing to_server;
  BaselineRing to_client;
};

// One end of a connection, as SocketChannel is of a socket.
class RingChannel {
 public:
  // The two ends of what a hello on `socket` has begun: the server makes the memory. Throws std::runtime_error.
  static RingChannel serve(BaselineSocket socket);
  static RingChannel connect(BaselineSocket socket);

  RingChannel(RingChannel&&) = default;
  ~RingChannel();

  // The next bytes, at most `most`, in place: valid until the next call. Empty if none are there.
  std::string_view receive(std::size_t most) noexcept;
  bool lost() const noexcept { return lost_; }
  // Takes as much as there is room for.
  std::size_t send(std::string_view bytes) noexcept;
  std::size_t room() noexcept;

 private:
  // At most so much is taken at a time, so that both sides are at work.
  static constexpr std::size_t step_bytes = 32 * 1024;

  struct Unmap {
    void operator()(BaselineRings* rings) const noexcept;
  };
  using Mapping = std::unique_ptr<BaselineRings, Unmap>;
  static Mapping map(int descriptor);
  // Where nothing can be done: the peer may have gone without taking, or sending, what is left.
  void look_for_end() noexcept;
  RingChannel(BaselineSocket socket, Mapping rings, bool server) noexcept;

  BaselineSocket socket_;  // Open for as long as this end lives.
  Mapping rings_;
  BaselineRing* in_;
  BaselineRing* out_;
  std::uint64_t read_ = 0;       // Of `in_`, with what was given last.
  std::uint64_t available_ = 0;  // The writer's position as it was last seen.
  std::uint64_t written_ = 0;    // Of `out_`.
  std::uint64_t freed_ = 0;      // The reader's position as it was last seen.
  bool lost_ = false;
};

// As pump_baseline() does for sockets.
template <class Endpoint, class GoOn>
void pump_rings(std::span<Endpoint> endpoints, GoOn go_on) {
  for (std::size_t open = 1; open > 0 && go_on();) {
    bool work = false;
    open = 0;
    for (Endpoint& endpoint : endpoints) {
      if (endpoint.ended()) continue;
      ++open;
      work |= endpoint.pump();
    }
    if (!work) __builtin_ia32_pause();
  }
}

}  // namespace hawser::bench
