#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "protocol/grpc/server_session.h"

// Calls that wait until the client has taken earlier responses. A client that reads is never refused for its speed.
namespace hawser::protocol::grpc {
namespace {

// A client that takes nothing for so long may be waiting for a response of a call that waits.
constexpr Duration wait_max = std::chrono::milliseconds(200);

}  // namespace

std::size_t Http2ServerSession::waiting_memory() const noexcept {
  // About what a stream holds beside the bytes of its response: its state, its fields, and the rest of the block.
  constexpr std::size_t stream_bytes = 12 * 1024;
  const std::size_t bytes = machine_.waiting_bytes();
  return bytes <= rpc::SendCharge::step_bytes ? bytes : bytes + machine_.used_streams() * stream_bytes;
}

bool Http2ServerSession::calls_wait() noexcept {
  // So little is charged when the tick ends.
  if (backlog() + machine_.waiting_bytes() > rpc::SendCharge::step_bytes) set_waiting(waiting_memory());
  return backlog() + machine_.waiting_bytes() > backlog_mark();
}

// A response that is not read, or a slow one, must not stop other calls: the client may be a proxy with many clients of
// its own. So a few calls begin above the mark, and each gives way to the next one when the client has taken its
// response.
bool Http2ServerSession::begins_above_mark(std::uint32_t call) noexcept {
  if (!memory_left() || (backlog() + machine_.waiting_bytes()) / 2 > backlog_mark()) return false;
  const auto is_taken = [&](std::uint32_t one) {
    const GrpcStream* const stream = machine_.find(one);
    return stream == nullptr || !stream->open || (stream->headers_sent && stream->out.bytes() == 0);
  };
  for (std::uint32_t& above : above_mark_) {
    if (above != 0 && !is_taken(above)) continue;
    above = call;
    return true;
  }
  return false;
}

bool Http2ServerSession::begins_later(std::uint32_t call) {
  if (waiting_.empty()) [[likely]] {
    if (!calls_wait()) [[likely]] {
      late_bytes_max_ = 0;
      return false;
    }
    if (begins_above_mark(call)) return false;
  }
  if (waiting_.size() >= 2 * calls_max()) {
    std::erase_if(waiting_, [&](std::uint32_t one) { return machine_.find(one) == nullptr; });
  }
  waiting_.push_back(call);
  if (!wait_.running()) {
    taken_at_check_ = sent_bytes() + machine_.data_sent();
    wait_.start(host().loop, host().loop.after(wait_max));
  }
  return true;
}

void Http2ServerSession::begin_waiting(bool one_at_least) noexcept try {
  while (!waiting_.empty() && !closed() && !finishing() && !failed_) {
    GrpcStream* const stream = machine_.find(waiting_.front());
    const bool gone = stream == nullptr || !stream->open || stream->ending;
    if (!gone && !std::exchange(one_at_least, false) && calls_wait() && !begins_above_mark(stream->call)) break;
    waiting_.pop_front();
    if (gone) continue;
    if (rpc::HttpExchange* const exchange = exchange_of(*stream)) {
      exchange->begin_late();
    } else if (stream->take == GrpcStream::Take::keep_one) {
      begin_call(*stream);
    }
  }
  if (waiting_.empty()) wait_.stop();
} catch (const std::exception&) {
  fail_connection();
}

void Http2ServerSession::check_waiting() noexcept {
  if (closed() || finishing() || waiting_.empty()) return;
  const std::uint64_t taken = sent_bytes() + machine_.data_sent();
  const bool stuck = taken == std::exchange(taken_at_check_, taken);
  wait_.start(host().loop, host().loop.after(wait_max));
  const std::size_t held = backlog() + machine_.waiting_bytes();
  if (stuck && late_bytes_max_ == 0) late_bytes_max_ = held + backlog_mark();
  begin_waiting(stuck && memory_left() && held <= late_bytes_max_);
  if (!closed()) send_soon();
}

}  // namespace hawser::protocol::grpc
