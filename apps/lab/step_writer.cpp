#include "lab/step_writer.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "lab/stream_sender.h"

namespace hawser::lab {

namespace rdma = transport::rdma;

namespace {

// Size of the send that notifies the receiver. It uses the last 16 bytes of both memories, which nothing else writes.
constexpr std::size_t signal_bytes = 16;
constexpr std::uint64_t signal_seed = 0x5160;

// Waits until the receiver has received the signal, or until the sender's signal has completed.
class AwaitOne final : public Role {
 public:
  explicit AwaitOne(rdma::CompletionQueue& completions) : completions_(completions) {}
  Result<bool> step(Processor&) override {
    std::array<rdma::Completion, 1> completion;
    if (completions_.poll(completion) == 0) return false;
    if (completion[0].status != rdma::WorkStatus::success) return fail(completion_error(completion[0]));
    return done_ = true;
  }
  bool done() const override { return done_; }

 private:
  rdma::CompletionQueue& completions_;
  bool done_ = false;
};

template <class T, class Made>
Result<void> keep(T& where, Made made) {
  TRY(made);
  where = std::move(*made);
  return {};
}

Result<void> signal(const Testbed& testbed, WritePair& pair) {
  const std::size_t at = pair.source->memory.size() - signal_bytes;
  fill_pattern(pair.source->memory.bytes().subspan(at), signal_seed);
  const rdma::Segment segment = pair.source->segment(at, signal_bytes);
  const rdma::SendRequest request{.segments = {&segment, 1}, .signalled = true};
  TRY(pair.sender->post_send({&request, 1}));
  AwaitOne sent(*pair.sender_completions);
  AwaitOne received(*pair.receiver_completions);
  const std::vector<std::vector<Role*>> threads = {{&sent, &received}};
  TRY(testbed.executor().run(threads));
  if (find_difference(pair.target->memory.bytes().subspan(at), signal_seed)) {
    return fail(ErrorCode::internal, "verification failed: the final signal is not what was sent");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<WritePair>> WritePair::make(const Testbed& testbed, const Options& options) {
  auto pair = std::make_unique<WritePair>();
  MemoryOptions memory{
      .bytes = options.bytes + signal_bytes, .huge_pages = options.huge_pages, .misaligned = options.misaligned};
  const rdma::Access access{.remote_read = true, .remote_write = true};
  Result<void> made;
  {
    TRY(auto&& source, LabMemory::make(testbed.sender(), memory, access));
    pair->source.emplace(std::move(source));
    TRY(auto&& target, LabMemory::make(testbed.receiver(), memory, access));
    pair->target.emplace(std::move(target));
  }
  poison(pair->target->memory.bytes());
  made = keep(pair->sender_completions, testbed.sender().create_completion_queue(options.depth + 2));
  if (made) made = keep(pair->receiver_completions, testbed.receiver().create_completion_queue(4));
  TRY(made);
  const rdma::QueuePairOptions sender{.completions = pair->sender_completions.get(),
                                      .send_requests = options.depth + 1,
                                      .receive_requests = 1,
                                      .inline_bytes = static_cast<unsigned>(options.inline_bytes)};
  const rdma::QueuePairOptions receiver{
      .completions = pair->receiver_completions.get(), .send_requests = 1, .receive_requests = 1};
  made = keep(pair->sender, testbed.sender().create_queue_pair(sender, testbed.port()));
  if (made) made = keep(pair->receiver, testbed.receiver().create_queue_pair(receiver, testbed.port()));
  TRY(made);
  const rdma::ReceiveRequest receive{.segment = pair->target->segment(options.bytes, signal_bytes)};
  made = pair->receiver->post_receive({&receive, 1});
  if (made) made = testbed.connect(*pair->sender, *pair->receiver, {});
  TRY(made);
  return pair;
}

Result<bool> StepWriter::step(Processor& processor) {
  if (posted_ == 0) start_ns_ = processor.now_ns();
  const std::uint64_t room = std::min<std::uint64_t>(depth_ - (posted_ - completed_), count_ - posted_);
  if (room > 0 && room >= std::min<std::uint64_t>(chain(), count_ - posted_)) {
    TRY(std::uint64_t posted, post(processor, posted_, room));
    posted_ += posted;
    return true;
  }
  std::array<rdma::Completion, poll_burst_max> completions;
  const std::size_t count = pair_.sender_completions->poll(completions);
  for (std::size_t i = 0; i < count; ++i) {
    if (completions[i].status != rdma::WorkStatus::success) return fail(completion_error(completions[i]));
    completed_ = std::max(completed_, completions[i].id);
  }
  if (done()) end_ns_ = processor.now_ns();
  return count > 0;
}

rdma::SendRequest StepWriter::request(std::uint64_t message, std::size_t offset,
                                      const rdma::Segment& segment) const noexcept {
  return {.id = message + 1,
          .segments = {&segment, 1},
          .opcode = rdma::Opcode::write,
          .signalled = true,
          .remote_address = pair_.target->address(offset),
          .remote_key = pair_.target->region->remote_key()};
}

Result<std::uint64_t> StepWriter::post_one(std::uint64_t message, std::size_t offset) {
  const rdma::Segment segment = pair_.source->segment(offset, size_bytes_);
  const rdma::SendRequest write = request(message, offset, segment);
  TRY(pair_.sender->post_send({&write, 1}));
  return 1;
}

Result<LadderRun> run_writer(const Testbed& testbed, WritePair& pair, StepWriter& writer) {
  const std::vector<std::vector<Role*>> threads = {{&writer}};
  TRY(testbed.executor().run(threads));
  TRY(signal(testbed, pair));
  LadderRun run{.elapsed_ns = writer.elapsed_ns()};
  if (!pair.source->memory.aligned() || !pair.target->memory.aligned()) run.note = "memory is not aligned to 64 B";
  return run;
}

Result<void> verify_chunks(const LabMemory& memory, std::size_t size_bytes, std::uint64_t chunks,
                           std::uint64_t first_seed) {
  for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
    const Bytes bytes(memory.memory.data() + chunk * size_bytes, size_bytes);
    const std::optional<std::size_t> wrong = find_difference(bytes, first_seed + chunk);
    if (!wrong) continue;
    return fail(ErrorCode::internal, "verification failed: byte " + std::to_string(*wrong) + " of chunk " +
                                         std::to_string(chunk) + " is not what was written");
  }
  return {};
}

void fill_chunks(LabMemory& memory, std::size_t size_bytes, std::uint64_t chunks) {
  for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
    fill_pattern(memory.memory.bytes().subspan(chunk * size_bytes, size_bytes), chunk);
  }
}

StepPlan distinct_plan(const LadderOptions& options) noexcept {
  const std::uint64_t count =
      std::clamp<std::uint64_t>(options.memory_bytes_max / options.size_bytes, 1, options.count);
  return {.size_bytes = options.size_bytes, .count = count, .depth = options.depth, .chunks = count};
}

StepPlan circular_plan(const LadderOptions& options) noexcept {
  return {.size_bytes = options.size_bytes,
          .count = options.count,
          .depth = options.depth,
          .chunks = 2 * std::uint64_t{options.depth}};
}

Result<LadderRun> with_memory_note(Result<LadderRun> run, const LadderOptions& options) {
  if (run && run->messages < options.count) {
    run->note = "as many messages as the memory holds: " + std::to_string(run->messages);
  }
  return run;
}

Result<LadderRun> run_step(const Testbed& testbed, const StepPlan& plan, MakeWriter make) {
  TRY(auto&& pair, WritePair::make(testbed, {.bytes = plan.chunks * plan.size_bytes, .depth = plan.depth}));
  if (plan.filled) fill_chunks(*pair->source, plan.size_bytes, plan.chunks);
  const std::unique_ptr<StepWriter> writer = make(*pair, plan);
  Result<LadderRun> result = run_writer(testbed, *pair, *writer);
  if (!result) return result;
  const std::uint64_t written = std::min(plan.chunks, plan.count);
  TRY(verify_chunks(*pair->target, plan.size_bytes, written, 0));
  result->messages = plan.count;
  return result;
}

}  // namespace hawser::lab
