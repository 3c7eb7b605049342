#include "lab/stream_sender.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "base/try.h"

namespace hawser::lab {

namespace rdma = transport::rdma;

Error completion_error(const rdma::Completion& completion) {
  return Error::of_connection(ErrorCode::unavailable, "work request " + std::to_string(completion.id) +
                                                          " failed: " + std::string(to_string(completion.status)));
}

StreamSender::StreamSender(const SenderPlan& plan, rdma::QueuePair& queue_pair, rdma::CompletionQueue& completions,
                           const LabMemory& payload, std::uint64_t* granted)
    : plan_(plan), queue_pair_(queue_pair), completions_(completions), granted_(granted) {
  const std::size_t stride = stride_of(plan.size_bytes);
  segments_.reserve(plan.window);
  for (unsigned i = 0; i < plan.window; ++i) segments_.push_back(payload.segment(i * stride, plan.size_bytes));
  for (const rdma::Segment& segment : segments_) {
    requests_.push_back({.segments = {&segment, 1}, .inlined = plan.use_inline, .signalled = plan.signal_each});
  }
}

bool StreamSender::may_send(std::uint64_t messages) const noexcept {
  if (posted_ - completed_ + messages > plan_.window) return false;
  if (granted_ == nullptr) return true;
  return std::atomic_ref(*granted_).load(std::memory_order_acquire) >= posted_ + messages;
}

Result<bool> StreamSender::step(Processor& processor) {
  if (posted_ == 0) start_ns_ = processor.now_ns();
  // A batch ends at the last slot.
  const std::uint64_t place = posted_ % plan_.window;
  const std::uint64_t messages = std::min<std::uint64_t>({plan_.batch, plan_.count - posted_, plan_.window - place});
  if (messages > 0 && may_send(messages)) {
    for (std::uint64_t i = 0; i < messages; ++i) requests_[place + i].id = posted_ + i + 1;
    rdma::SendRequest& last = requests_[place + messages - 1];
    last.signalled = true;
    Result<void> sent = queue_pair_.post_send({&requests_[place], messages});
    last.signalled = plan_.signal_each;
    TRY(sent);
    posted_ += messages;
    return true;
  }
  std::array<rdma::Completion, poll_burst_max> completions;
  const std::size_t count = completions_.poll(completions);
  for (std::size_t i = 0; i < count; ++i) {
    if (completions[i].status != rdma::WorkStatus::success) return fail(completion_error(completions[i]));
    completed_ = std::max(completed_, completions[i].id);
  }
  if (done()) end_ns_ = processor.now_ns();
  return count > 0;
}

}  // namespace hawser::lab
