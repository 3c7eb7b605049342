#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/processor.h"
#include "bench/baseline/baseline_socket.h"

// Rings in memory that two processes share, and a minimal loop over them, for "baseline --transport shm". The loop
// never sleeps.
namespace hawser::bench {

// One direction: a writer and a reader, each with its own position, which only grows.
struct BaselineRing {
  static constexpr std::size_t bytes = 256 * 1024;
  static constexpr std::size_t line_bytes = 128;  // Processors fetch cache lines in pairs.

  alignas(line_bytes) std::atomic<std::uint64_t> written;
  alignas(line_bytes) std::atomic<std::uint64_t> read;
  alignas(line_bytes) std::atomic<std::uint32_t> closed;  // Set by the writer.
  alignas(line_bytes) char data[bytes];
};
struct BaselineRings {
  BaselineRing to_server;
  BaselineRing to_client;
};

// One end of a connection over rings; the counterpart of SocketChannel.
class RingChannel {
 public:
  // Make the two ends of a connection after the hello on `socket`. The server makes the memory. They throw
  // std::runtime_error.
  static RingChannel serve(BaselineSocket socket);
  static RingChannel connect(BaselineSocket socket);

  RingChannel(RingChannel&&) = default;
  ~RingChannel();

  // Returns the next bytes, at most `most`, in place: they are valid until the next call. Empty if there are none.
  std::string_view receive(std::size_t most) noexcept;
  bool lost() const noexcept { return lost_; }
  // Writes as many bytes as the ring has room for, and returns how many.
  std::size_t send(std::string_view bytes) noexcept;
  std::size_t room() noexcept;

 private:
  // Largest number of bytes handled at a time, so that both sides work at once.
  static constexpr std::size_t step_bytes = 32 * 1024;

  struct Unmap {
    void operator()(BaselineRings* rings) const noexcept;
  };
  using Mapping = std::unique_ptr<BaselineRings, Unmap>;
  static Mapping map(int descriptor);
  // Called when there is nothing to do: the peer may have ended without reading or sending the rest.
  void look_for_end() noexcept;
  RingChannel(BaselineSocket socket, Mapping rings, bool server) noexcept;

  BaselineSocket socket_;  // Open as long as this end lives; its end shows that the peer has ended.
  Mapping rings_;
  BaselineRing* in_;
  BaselineRing* out_;
  std::uint64_t read_ = 0;       // Position in `in_`, behind the bytes that receive() returned last.
  std::uint64_t available_ = 0;  // Last known position of the writer of `in_`.
  std::uint64_t written_ = 0;    // Position in `out_`.
  std::uint64_t freed_ = 0;      // Last known position of the reader of `out_`.
  bool lost_ = false;
};

// Drives endpoints as pump_baseline() does for sockets.
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
    if (!work) spin_pause();
  }
}

}  // namespace hawser::bench
