#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hawser/detail/reply_sink.h"

namespace hawser::rpc {

// A session of a protocol in which a caller offers streams with its request, and the method decides whether it accepts
// them. A detail::ReplySink may be one. Loop's thread only.
class StreamAcceptor {
 public:
  using Cores = std::vector<std::shared_ptr<detail::StreamCore>>;

  // The number of streams that the caller of `call` has offered and that are not open.
  virtual std::size_t streams_offered(std::uint32_t call) noexcept = 0;
  // Sends the result `body` with `extras`, which opens all streams that are offered. The reply to the call then closes
  // them. `incoming`: the method reads the streams. Empty if the connection has ended or a limit was exceeded; the call
  // is finished then.
  virtual Cores accept_streams(std::uint32_t call, Bytes body, const detail::ReplyExtras& extras, bool incoming) = 0;
  // Closes one of these streams, and leaves the others open. Does nothing if the stream has ended.
  virtual void close_stream(const detail::StreamCore& core) = 0;

 protected:
  ~StreamAcceptor() = default;
};

}  // namespace hawser::rpc
