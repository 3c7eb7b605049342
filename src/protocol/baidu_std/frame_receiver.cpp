#include "protocol/baidu_std/frame_receiver.h"

#include <algorithm>
#include <cstring>

#include "pipe/null_sink.h"

namespace hawser::protocol::baidu_std {
Result<std::size_t> FrameReceiver::take(Bytes bytes, Block& block, ReceivedFrame& frame, bool& complete) {
  complete = false;
  last_ = {};
  const Result<std::optional<FrameHeader>> parsed = parse_header(bytes, limits_);
  if (!parsed) [[unlikely]]
    return fail(parsed.error());
  partial_ = true;
  if (!*parsed) return std::size_t{0};
  const FrameHeader& header = **parsed;
  const std::size_t total = FrameHeader::bytes + header.body_bytes;
  if (bytes.size() >= total) [[likely]] {
    partial_ = false;
    complete = true;
    frame = {.kind = header.kind,
             .meta = bytes.subspan(FrameHeader::bytes, header.meta_bytes),
             .data = bytes.subspan(FrameHeader::bytes + header.meta_bytes, header.body_bytes - header.meta_bytes),
             .block = &block,
             .discarded = false};
    return total;
  }
  if (total <= short_frame_bytes_max || bytes.size() < FrameHeader::bytes + header.meta_bytes) return std::size_t{0};
  begin_long(header, bytes.subspan(FrameHeader::bytes));
  return bytes.size();
}

void FrameReceiver::begin_long(const FrameHeader& header, Bytes present) {
  kind_ = header.kind;
  meta_ = Buffer::copy_of(present.first(header.meta_bytes));
  const Bytes data = present.subspan(header.meta_bytes);
  size_ = header.body_bytes - header.meta_bytes;
  done_ = data.size();
  payload_ = transport::PayloadBuffer(size_, account_);
  long_ = true;
  if (!payload_.grow(std::max<std::size_t>(done_, 1), 0)) payload_.discard();
  if (payload_.data() != nullptr && !data.empty()) std::memcpy(payload_.data(), data.data(), data.size());
}

MutableBytes FrameReceiver::direct_space() {
  if (!long_) return {};
  if (!payload_.grow(done_ + 1, done_)) payload_.discard();
  if (payload_.data() != nullptr) return {payload_.data() + done_, payload_.room() - done_};
  return pipe::discard_buffer().first(std::min(pipe::discard_buffer().size(), size_ - done_));
}

bool FrameReceiver::direct_received(std::size_t bytes, ReceivedFrame& frame) {
  done_ += bytes;
  if (done_ < size_) return false;
  transport::Message message;
  payload_.complete(message);
  if (message.payload_block != nullptr) {
    last_ = Buffer::share(message.payload_block, message.payload.data(), message.payload.size());
  }
  payload_ = {};
  long_ = partial_ = false;
  frame = {.kind = kind_,
           .meta = meta_.bytes(),
           .data = message.payload,
           .block = message.payload_block,
           .discarded = message.discarded};
  return true;
}

}  // namespace hawser::protocol::baidu_std
