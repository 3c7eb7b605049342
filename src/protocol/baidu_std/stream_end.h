#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/detail/receive_account.h"
#include "hawser/detail/stream_core.h"
#include "hawser/error.h"
#include "protocol/baidu_std/frame_receiver.h"
#include "protocol/baidu_std/rpc_meta.h"

namespace hawser::protocol::baidu_std {

// One side's state of a call's stream, without I/O. Both the server and the client have it.
struct StreamEnd {
  using Item = detail::StreamCore::Item;

  // Consumed bytes are reported once they amount to this, or when everything has been read.
  static constexpr std::int64_t feedback_bytes = 64 * 1024;
  static constexpr const char* unknown_frame = "a STRM frame has an unknown frame_type";

  std::int64_t id = 0;  // This side's; never 0.
  std::int64_t peer_id = 0;
  bool peer_needs_feedback = false;
  bool incoming = false;     // This side reads the stream.
  bool open = false;         // The reply that opens the stream has been sent or received.
  bool extended = false;     // Both sides know the frames of StreamSettings::extended.
  bool peer_closed = false;  // The peer has closed or reset the stream, or has been notified of its reset.
  std::shared_ptr<detail::StreamCore> core;
  std::int64_t consumed = 0;       // Bytes that this side has read.
  std::int64_t reported = 0;       // The part of them that FEEDBACK has reported.
  std::int64_t produced = 0;       // Bytes that this side has written.
  std::int64_t peer_consumed = 0;  // The part of them that the peer has reported.
  // A message that arrives in several frames, and the charge for its parts.
  std::vector<Buffer> parts;
  std::size_t parts_bytes = 0;
  detail::ReceiveCharge parts_charge;

  // The settings that this side sends when it opens the stream.
  StreamSettings settings(bool needs_feedback) const {
    return {.stream_id = id, .need_feedback = needs_feedback, .writable = incoming, .extended = extended};
  }
  // The meta of a frame to the peer.
  StreamFrameMeta frame(StreamFrameType type) const noexcept {
    return {.stream_id = peer_id, .source_stream_id = id, .type = type};
  }

  // Takes a DATA frame. Returns a complete message, or nothing if more parts follow. Fails with `limit_exceeded` if the
  // message is larger than `message_bytes_max`, or, with Initiator::local, if the account refuses its memory. `limits`
  // names the limits of the account.
  Result<std::optional<Item>> take_data(const StreamFrameMeta& meta, const ReceivedFrame& frame,
                                        detail::ReceiveAccount& account, std::size_t message_bytes_max,
                                        std::string_view limits);
  // Takes FEEDBACK, which reports `size` consumed bytes in all. Fails if so many were not sent.
  Result<void> take_feedback(std::int64_t size);
  // Takes END. Fails if the peer may not send it.
  Result<void> take_end();
  // Counts bytes that have been read. Returns true if `consumed` is to be reported now.
  bool count_consumed(std::uint32_t bytes) noexcept;
  void drop_parts() noexcept;
};

}  // namespace hawser::protocol::baidu_std
