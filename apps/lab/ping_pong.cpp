#include "lab/ping_pong.h"

#include <array>
#include <string>

#include "base/try.h"
#include "lab/stream_sender.h"

namespace hawser::lab {

namespace rdma = transport::rdma;

namespace {

constexpr std::uint64_t ping_seed = 1;
constexpr std::uint64_t pong_seed = 2;

}  // namespace

PingPong::PingPong(const Plan& plan, rdma::QueuePair& queue_pair, rdma::CompletionQueue& completions, LabMemory& memory)
    : plan_(plan), queue_pair_(queue_pair), completions_(completions), memory_(memory) {
  fill_pattern(memory_.memory.bytes().first(plan.size_bytes), plan.begins ? ping_seed : pong_seed);
  segment_ = memory_.segment(0, plan.size_bytes);
  receive_ = {.id = 0, .segment = memory_.segment(stride_of(plan.size_bytes), plan.size_bytes)};
  if (plan.begins) half_trips_ns_.reserve(plan.count);
}

Result<void> PingPong::post_first() { return queue_pair_.post_receive({&receive_, 1}); }

Result<void> PingPong::send(Processor& processor) {
  const rdma::SendRequest request{
      .id = ++sent_, .segments = {&segment_, 1}, .inlined = plan_.use_inline, .signalled = true};
  if (plan_.begins) sent_ns_ = processor.now_ns();
  return queue_pair_.post_send({&request, 1});
}

Result<void> PingPong::on_message(Processor& processor, const rdma::Completion& completion) {
  if (plan_.begins) half_trips_ns_.push_back((processor.now_ns() - sent_ns_) / 2);
  ++received_;
  const MutableBytes arrived = memory_.memory.bytes().subspan(stride_of(plan_.size_bytes), plan_.size_bytes);
  const bool same =
      completion.bytes == plan_.size_bytes && !find_difference(arrived, plan_.begins ? pong_seed : ping_seed);
  if (!same) return fail(ErrorCode::internal, "verification failed: a ping-pong's message is not what was sent");
  poison(arrived);
  TRY(queue_pair_.post_receive({&receive_, 1}));
  const bool more = !plan_.begins || received_ < plan_.count;
  return more ? send(processor) : Result<void>();
}

Result<bool> PingPong::step(Processor& processor) {
  if (plan_.begins && sent_ == 0) {
    TRY(send(processor));
    return true;
  }
  std::array<rdma::Completion, 4> completions;
  const std::size_t count = completions_.poll(completions);
  for (std::size_t i = 0; i < count; ++i) {
    if (completions[i].status != rdma::WorkStatus::success) return fail(completion_error(completions[i]));
    if (!completions[i].received) {
      ++sends_completed_;
    } else
      TRY(on_message(processor, completions[i]));
  }
  return count > 0;
}

}  // namespace hawser::lab
