#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "hawser/transport/stream.h"
#include "security/tls/session.h"

namespace hawser::security::tls {

// The bytes that a stream within TLS sends on the stream below, and whether that has room.
class TlsOutput {
 public:
  // Sends the encrypted bytes that wait, and then those of `output`, which is the session's. False: the stream below
  // has not accepted all.
  bool send(transport::Stream& below, ByteQueue& output) {
    while (!below_blocked_) {
      if (waiting_.empty()) {
        if (output.empty()) return true;
        waiting_.swap(output);
      }
      const Bytes bytes = waiting_.bytes();
      const ConstBuffer piece{bytes.data(), bytes.size()};
      const std::size_t taken = below.send(std::span(&piece, 1));
      if (taken != 0) waiting_.consume(taken);
      below_blocked_ = taken < piece.size;
    }
    return false;
  }
  // The stream below has accepted `bytes` of those that wait, and has room.
  void on_sendable(std::size_t bytes) noexcept {
    if (bytes != 0) waiting_.consume(bytes);
    below_blocked_ = false;
  }
  // The sink's bytes go to the stream below without being encrypted here, and it has accepted all of them or not.
  void on_passed(bool all) noexcept { sink_blocked_ = below_blocked_ = !all; }

  bool below_blocked() const noexcept { return below_blocked_; }
  bool empty() const noexcept { return waiting_.empty(); }
  std::size_t size() const noexcept { return waiting_.bytes().size(); }
  std::size_t capacity() const noexcept { return waiting_.capacity(); }

  // Not all that the sink sent was accepted, so it waits for room.
  void set_sink_blocked(bool blocked) noexcept { sink_blocked_ = blocked; }
  bool take_sink_blocked() noexcept { return std::exchange(sink_blocked_, false); }

 private:
  ByteQueue waiting_;  // The stream below is sending it.
  bool below_blocked_ = false;
  bool sink_blocked_ = false;
};

}  // namespace hawser::security::tls
