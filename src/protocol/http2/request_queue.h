#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <utility>

#include "protocol/http2/stream.h"

namespace hawser::protocol::http2 {

// The requests of a client that wait until the server allows another stream, in order. nghttp2 does not know them yet:
// it would keep a request above the limit, also one that has been cancelled, until the server allows it.
class RequestQueue {
 public:
  using Field = std::pair<std::string_view, std::string_view>;

  // True if no request waits.
  bool empty() const noexcept { return count_ == 0; }
  // `fields` are copied.
  void add(Http2Stream& stream, std::span<const Field> fields);
  // The first request that waits. The queue is not empty.
  Http2Stream& front();
  // HTTP/2 has the request, which may have waited, until it is closed.
  void on_submitted(Http2Stream& stream) noexcept;
  void on_closed(Http2Stream& stream) noexcept;
  // The requests that HTTP/2 has.
  std::size_t submitted() const noexcept { return submitted_; }
  // Empties the queue and calls `use` for each request that waited, which closes it.
  template <class Use>
  void empty_into(Use use) {
    const std::deque<Entry> entries = std::exchange(entries_, {});
    for (const Entry& entry : entries) {
      if (waits(entry)) use(*entry.stream);
    }
  }

 private:
  // The queue is not used after its streams. A stream is used again with another `call`.
  struct Entry {
    Http2Stream* stream;
    std::uint32_t call;
  };
  static bool waits(const Entry& entry) noexcept { return entry.stream->waiting && entry.stream->call == entry.call; }

  std::deque<Entry> entries_;  // Some do not wait any more.
  std::size_t count_ = 0;      // Entries that wait.
  std::size_t submitted_ = 0;
};

}  // namespace hawser::protocol::http2
