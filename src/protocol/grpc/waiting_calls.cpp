#include <algorithm>
#include <chrono>
#include <exception>

#include "protocol/grpc/server_session.h"

// Calls that wait until the client has taken earlier responses. A client that reads is never refused for its speed.
namespace hawser::protocol::grpc {
namespace {

// A client that takes nothing for so long may be waiting for a response of a call that waits.
constexpr Duration wait_max = std::chrono::milliseconds(200);

}  // namespace

std::size_t ServerSession::waiting_memory() const noexcept {
  // About what a stream holds beside the bytes of its response: its state, its fields, and the rest of the block.
  constexpr std::size_t stream_bytes = 12 * 1024;
  const std::size_t bytes = machine_.waiting_bytes();
  return bytes <= rpc::SendCharge::step_bytes ? bytes : bytes + machine_.used_streams() * stream_bytes;
}

bool ServerSession::calls_wait() noexcept {
  // So little is charged when the tick ends.
  if (backlog() + machine_.waiting_bytes() > rpc::SendCharge::step_bytes) set_waiting(waiting_memory());
  return !has_room();
}

bool ServerSession::begins_later(std::uint32_t call) {
  if (waiting_.empty() && !calls_wait()) [[likely]] {
    late_bytes_max_ = 0;
    return false;
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

void ServerSession::begin_waiting(bool one_at_least) noexcept try {
  while (!waiting_.empty() && !closed() && !finishing() && !failed_ && (one_at_least || !calls_wait())) {
    Stream* const stream = machine_.find(waiting_.front());
    waiting_.pop_front();
    if (stream == nullptr || !stream->open || stream->ending) continue;
    one_at_least = false;
    if (rpc::HttpExchange* const exchange = exchange_of(*stream)) {
      exchange->begin_late();
    } else if (stream->take == Stream::Take::keep_one) {
      begin_call(*stream);
    }
  }
  if (waiting_.empty()) wait_.stop();
} catch (const std::exception&) {
  fail_connection();
}

void ServerSession::check_waiting() noexcept {
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
