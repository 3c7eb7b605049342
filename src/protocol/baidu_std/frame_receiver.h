#pragma once

#include <cstddef>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"
#include "hawser/error.h"
#include "protocol/baidu_std/frame.h"
#include "transport/common/payload_buffer.h"

namespace hawser::protocol::baidu_std {

// A complete frame. The views are valid until the next call of the receiver.
struct ReceivedFrame {
  BaiduStdFrameKind kind = BaiduStdFrameKind::rpc;
  Bytes meta;
  Bytes data;              // Everything behind the meta.
  Block* block = nullptr;  // Holds `data`.
  bool discarded = false;  // The account refused the memory, so that `data` is empty.
};

// Takes frames from received bytes, without I/O. A short frame is read where it lies. The data of a long frame gets
// memory of its own, which is charged to the account when it is allocated and into which the rest is received.
class FrameReceiver {
 public:
  // A frame that is longer than this is received into memory of its own. No meta may be longer.
  static constexpr std::size_t short_frame_bytes_max = 32 * 1024;

  // A null account refuses nothing. Another one outlives this object.
  FrameReceiver(std::size_t frame_bytes_max, detail::ReceiveAccount* account) noexcept
      : limits_{.frame_bytes_max = frame_bytes_max, .meta_bytes_max = short_frame_bytes_max - FrameHeader::bytes},
        account_(account) {}

  // Takes bytes from the front of `bytes`, which `block` holds, and returns their number. 0: more bytes are needed, at
  // most short_frame_bytes_max in all. Sets `frame` and returns true in `complete` if a frame is complete.
  Result<std::size_t> take(Bytes bytes, Block& block, ReceivedFrame& frame, bool& complete);
  // While a long frame is incomplete: memory for its next bytes. Else empty.
  MutableBytes direct_space();
  // So many bytes lie at the front of the last direct_space(). Returns true if `frame` is complete.
  bool direct_received(std::size_t bytes, ReceivedFrame& frame);
  // True while a frame has begun and is not complete.
  bool receiving() const noexcept { return long_ || partial_; }

 private:
  void begin_long(const FrameHeader& header, Bytes present);

  const FrameLimits limits_;
  detail::ReceiveAccount* const account_;
  bool partial_ = false;
  bool long_ = false;  // A long frame has begun; the members below describe it.
  BaiduStdFrameKind kind_ = BaiduStdFrameKind::rpc;
  Buffer meta_;
  transport::PayloadBuffer payload_;
  std::size_t size_ = 0;
  std::size_t done_ = 0;
  Buffer last_;  // Holds the data of the last long frame until the next call.
};

}  // namespace hawser::protocol::baidu_std
