#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"
#include "hawser/error.h"
#include "hawser/time.h"
#include "rpc/port/byte_session.h"

namespace hawser::protocol::http {

// A body of up to so many bytes may take the last of the memory that the connection may use.
inline constexpr std::size_t small_body_bytes = 4096;

// True if `bytes` more can be charged so that the connection can still receive: bodies that have used up its share
// would stop it otherwise.
inline bool leaves_rest(detail::ReceiveAccount& account, std::size_t bytes) noexcept {
  constexpr std::size_t rest_bytes = 2 * rpc::ByteSession::receive_block_bytes;
  if (!account.acquire(bytes + rest_bytes)) return false;
  account.release(bytes + rest_bytes);
  return true;
}

// The body of a request that the handler of its route reads in parts. No I/O.
struct IncomingBody {
  // If the handler did not read for so long, the pace of the client is measured anew: the client had to wait.
  static constexpr Duration pause_min = std::chrono::milliseconds(100);

  bool active = false;         // The present request has such a body, perhaps an empty one.
  bool ended = false;          // All of it has arrived.
  bool asks = false;           // The client waits for 100 (Continue) before it sends the body.
  bool reading = false;        // The handler waits for the next part.
  bool begins = false;         // The handler has not begun, since the bytes at hand go first.
  bool paused = false;         // The connection is not read until the handler has read.
  std::string bytes;           // Have arrived and were not read.
  std::optional<Error> error;  // The rest can't be received.
  Time read_at{};              // The end of the last read, or the begin of the request.

  void begin(Time now, bool client_asks) {
    active = true;
    asks = client_asks;
    read_at = now;
  }
  void clear() noexcept {
    if (!active) return;
    active = ended = asks = reading = begins = paused = false;
    std::string().swap(bytes);  // An assignment would keep the memory.
    release();
    error.reset();
  }
  // True if a read must wait.
  bool waits() const noexcept { return bytes.empty() && !ended && !error; }
  // Adds a part. The memory that `bytes` holds is charged to `account`, also what it holds ahead. False if there is not
  // enough memory.
  bool add(Bytes part, detail::ReceiveAccount& account) noexcept {
    const std::size_t needed = bytes.size() + part.size();
    if (needed > bytes.capacity()) {
      const std::size_t ahead = std::max(needed, 2 * bytes.capacity());
      if (!grow(ahead, account) && (ahead == needed || !grow(needed, account))) return false;
    }
    bytes.append(as_text(part));
    return true;
  }
  // The end of a read: everything that has arrived, or the error.
  Result<std::string> take(Time now) {
    read_at = now;
    if (bytes.empty() && error) return fail(*error);
    std::string part = std::move(bytes);
    std::string().swap(bytes);
    release();
    return part;
  }

 private:
  bool grow(std::size_t capacity, detail::ReceiveAccount& account) noexcept {
    const std::size_t more = capacity > charged_bytes_ ? capacity - charged_bytes_ : 0;
    if (capacity > small_body_bytes && !leaves_rest(account, more)) return false;
    if (!charge_.add(account, more)) return false;
    charged_bytes_ += more;
    try {
      // std::string at least doubles the memory that it has, so another one is filled.
      std::string larger;
      larger.reserve(capacity);
      larger.append(bytes);
      bytes = std::move(larger);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }
  void release() noexcept {
    charge_.reset();
    charged_bytes_ = 0;
  }

  detail::ReceiveCharge charge_;
  std::size_t charged_bytes_ = 0;
};

}  // namespace hawser::protocol::http
