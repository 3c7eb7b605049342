#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hawser/detail/json_transcoder.h"

// Calls whose arguments come as JSON: PortSession::serve_json().
namespace hawser::rpc {

// JSON of more bytes, and JSON of values of more bytes, is converted on a thread of the offload pool. libprotobuf
// converts some types at 2 MB/s.
inline constexpr std::size_t json_in_place_max = 8 * 1024;
using JsonPointer = std::shared_ptr<const detail::JsonTranscoder>;

// Notifies a session of calls whose JSON is long, or is converted behind interceptors.
class JsonCallEvents {
 public:
  // JSON of a call begins to be converted on another thread.
  virtual void conversion_begins() {}
  // It has been converted, or is not awaited any more. The session may act in a later turn of the loop only: handlers
  // and interceptors are running.
  virtual void conversion_ended() noexcept {}
  // The JSON of the call has been converted, wherever that was, and its handler has begun and has not answered.
  virtual void json_call_begun(std::uint32_t call) { static_cast<void>(call); }

 protected:
  ~JsonCallEvents() = default;
};

}  // namespace hawser::rpc
