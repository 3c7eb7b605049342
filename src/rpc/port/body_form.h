#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "hawser/bytes.h"
#include "hawser/detail/json_transcoder.h"
#include "hawser/error.h"
#include "rpc/session/work_charge.h"

// Requests whose body is not the arguments yet: PortSession::serve_form().
namespace hawser::rpc {

// JSON of more bytes, and JSON of values of more bytes, is converted on a thread of the offload pool. libprotobuf
// converts some types at 2 MB/s.
inline constexpr std::size_t json_in_place_max = 8 * 1024;
using JsonPointer = std::shared_ptr<const detail::JsonTranscoder>;

// How the arguments of a call are made of the body of its request. That happens behind the interceptors: a caller that
// they refuse costs neither the time nor the memory of it. A body of both kinds is decompressed first.
struct BodyForm {
  // Compressed bodies of at most packed_in_place_max bytes, whose result has at most unpacked_in_place_max bytes, are
  // decompressed on the loop, up to unpacked_tick_max bytes in a tick.
  static constexpr std::size_t packed_in_place_max = 16 * 1024;
  static constexpr std::size_t unpacked_in_place_max = 64 * 1024;
  static constexpr std::size_t unpacked_tick_max = 256 * 1024;
  // The conversion of JSON is charged this number of bytes beside each byte of it: about 3 are needed for maps of
  // numbers, and 9 for lists of short numbers. That of long JSON is charged a quarter of the connection's share, or the
  // smaller factor, so that a message of a quarter of the share fits into it.
  static constexpr std::size_t json_memory_factor = 9;
  static constexpr std::size_t json_memory_factor_least = 3;

  // Decompresses a body. Fails if it is malformed or has more than `bytes_max` bytes then. Any thread.
  using Unpack = Result<Buffer> (*)(Bytes packed, std::size_t bytes_max);

  JsonPointer json = nullptr;    // Converts the body. Null: it is not JSON.
  Unpack unpack = nullptr;       // Decompresses the body. Null: it is not compressed.
  std::size_t unpacked_max = 0;  // Limit of the decompressed body.

  bool plain() const noexcept { return json == nullptr && unpack == nullptr; }
  // The memory for which arguments() is charged, beside the body. `share_bytes` is the connection's share.
  std::size_t memory_bytes(std::size_t body_bytes, std::size_t share_bytes) const noexcept {
    const std::size_t text_bytes = unpack == nullptr ? body_bytes : unpacked_max;
    const std::size_t json_bytes =
        std::max(std::min(json_memory_factor * text_bytes, share_bytes / 4), json_memory_factor_least * text_bytes);
    return (unpack == nullptr ? 0 : unpacked_max) + (json == nullptr ? 0 : json_bytes);
  }
  // True if arguments() is quick enough for the loop.
  bool in_place(std::size_t body_bytes) const noexcept {
    if (json != nullptr && (unpack == nullptr ? body_bytes : unpacked_max) > json_in_place_max) return false;
    return unpack == nullptr || (body_bytes <= packed_in_place_max && unpacked_max <= unpacked_in_place_max);
  }
  // Any thread.
  Result<Buffer> arguments(Bytes body) const {
    if (unpack == nullptr) return json->arguments_from_json(as_text(body));
    Result<Buffer> unpacked = unpack(body, unpacked_max);
    if (!unpacked || json == nullptr) return unpacked;
    return json->arguments_from_json(unpacked->text());
  }
};

// The charge for the conversion of a result of `bytes` bytes to JSON. It is held already, so it is not refused.
inline WorkCharge charge_of_result(detail::ReceiveAccount& account, std::size_t bytes) {
  WorkCharge charge;
  charge.add(account, (1 + BodyForm::json_memory_factor_least) * bytes, 0, true);
  return charge;
}

// Notifies a session of calls that have a BodyForm or interceptors.
class BodyFormEvents {
 public:
  // The arguments of a call begin to be made on another thread.
  virtual void conversion_begins() {}
  // They have been made, or are not awaited any more. The session may act in a later turn of the loop only: handlers
  // and interceptors are running.
  virtual void conversion_ended() noexcept {}
  // The handler of the call has begun, behind its interceptors and with its arguments, and has not answered.
  virtual void handler_begun(std::uint32_t call) { static_cast<void>(call); }

 protected:
  ~BodyFormEvents() = default;
};

}  // namespace hawser::rpc
