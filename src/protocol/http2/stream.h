#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hawser/time.h"
#include "protocol/http2/request_rules.h"
#include "protocol/http2/stream_output.h"
#include "protocol/http2/stream_pace.h"

namespace hawser::protocol::http2 {

// One stream of a connection: one request and its response. Reused for later streams.
struct Http2Stream {
  std::int32_t id = 0;
  std::uint32_t call = 0;  // Slot in the low 16 bits, generation in the high 16 bits.
  bool open = false;       // HTTP/2 has the stream.
  Time opened{};           // When it was opened.
  bool busy = false;       // The session uses it: it is not reused although it may be closed.
  // A client's request that waits in the RequestQueue. HTTP/2 does not have it yet, and id is 0.
  bool waiting = false;
  std::vector<std::pair<std::string, std::string>> waiting_fields;

  // ---- Receiving ----
  RequestRules rules;  // Server.
  bool headers_seen = false;
  bool remote_ended = false;  // The peer has ended its direction.
  // Server: the whole response has been sent, and the rest of the request is discarded until its end, or a reset.
  bool discards = false;
  bool discards_long = false;  // It was discarded already when the stream was checked last.
  std::size_t discarded_bytes = 0;

  // ---- Sending ----
  StreamOutput out;
  StreamPace pace;
  bool headers_sent = false;  // Submitted.
  bool plain = false;         // Server: the response has no trailers behind its body.
  bool deferred = false;      // HTTP/2 asked for data and there was none.
  bool ending = false;        // Nothing follows `out` but the trailers, if there are some.
  bool ended = false;         // The end was handed to HTTP/2.
  bool breaks = false;        // Behind `out` the stream is reset, since the response is not complete.
  bool resetting = false;     // RST_STREAM was handed to HTTP/2.

  // The stream, which is closed, will be another one.
  void restart() noexcept {
    id = 0;
    waiting_fields.clear();
    rules = {};
    headers_seen = remote_ended = discards = discards_long = false;
    discarded_bytes = 0;
    out.restart();
    pace = {};
    headers_sent = plain = deferred = ending = ended = breaks = resetting = false;
  }
};

}  // namespace hawser::protocol::http2
