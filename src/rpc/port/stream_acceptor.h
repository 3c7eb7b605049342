#pragma once

#include <cstdint>
#include <memory>

#include "hawser/detail/reply_sink.h"

namespace hawser::rpc {

// A session of a protocol in which a caller offers a stream with its request, and the method decides whether it accepts
// it. A detail::ReplySink may be one. Loop's thread only.
class StreamAcceptor {
 public:
  // True if the caller of `call` has offered a stream that is not open.
  virtual bool offers_stream(std::uint32_t call) noexcept = 0;
  // Sends the result `body` with `extras`, which opens the stream. The reply to the call then closes it. `incoming`:
  // the method reads the stream. Null if the connection has ended or a limit was exceeded; the call is finished then.
  virtual std::shared_ptr<detail::StreamCore> accept_stream(std::uint32_t call, Bytes body,
                                                            const detail::ReplyExtras& extras, bool incoming) = 0;

 protected:
  ~StreamAcceptor() = default;
};

}  // namespace hawser::rpc
