#include <algorithm>
#include <string>
#include <vector>

#include "base/try.h"
#include "lab/step_writer.h"
#include "lab/steps/ladder.h"

namespace hawser::lab {
namespace {

namespace rdma = transport::rdma;

class ReusedRequests final : public StepWriter {
 public:
  ReusedRequests(WritePair& pair, const StepPlan& step, rdma::Opcode opcode, bool use_inline)
      : StepWriter(pair, step), chain_(std::max(1u, step.depth / 4)) {
    segments_.reserve(chunks_);  // Pointers to the elements must stay valid.
    for (std::uint64_t chunk = 0; chunk < chunks_; ++chunk) {
      segments_.push_back(pair.source->segment(chunk * size_bytes_, size_bytes_));
      rdma::SendRequest prepared = request(0, chunk * size_bytes_, segments_.back());
      prepared.opcode = opcode;
      prepared.inlined = use_inline;
      prepared.signalled = false;
      requests_.push_back(prepared);
    }
  }

 private:
  std::uint64_t chain() const noexcept override { return chain_; }

  Result<std::uint64_t> post(Processor&, std::uint64_t message, std::uint64_t room) override {
    const std::uint64_t first = message % requests_.size();
    const std::uint64_t count = std::min<std::uint64_t>({chain_, room, requests_.size() - first});
    // A completion also completes all earlier requests, so only the last request of a chain needs one.
    rdma::SendRequest& last = requests_[first + count - 1];
    last.id = message + count;
    last.signalled = true;
    const Result<void> posted = pair_.sender->post_send({&requests_[first], count});
    last.signalled = false;
    TRY(posted);
    return count;
  }

  const unsigned chain_;
  std::vector<rdma::Segment> segments_;
  std::vector<rdma::SendRequest> requests_;
};

}  // namespace

Result<LadderRun> run_reused(const Testbed& testbed, const ReusedPlan& plan) {
  const StepPlan step = circular_plan({.size_bytes = plan.size_bytes, .count = plan.count, .depth = plan.depth});
  TRY(auto&& pair, WritePair::make(testbed, {.bytes = step.chunks * step.size_bytes,
                                             .depth = plan.depth,
                                             .inline_bytes = plan.use_inline ? plan.size_bytes : 0,
                                             .misaligned = plan.misaligned,
                                             .huge_pages = plan.huge_pages}));
  const bool reads = plan.opcode == rdma::Opcode::read;
  fill_chunks(reads ? *pair->target : *pair->source, step.size_bytes, step.chunks);
  const bool use_inline = plan.use_inline && pair->sender->inline_bytes() >= plan.size_bytes;
  ReusedRequests writer(*pair, step, plan.opcode, use_inline);
  Result<LadderRun> result = run_writer(testbed, *pair, writer);
  if (!result) return result;
  const std::uint64_t moved = std::min(step.chunks, step.count);
  TRY(verify_chunks(reads ? *pair->source : *pair->target, plan.size_bytes, moved, 0));
  result->messages = plan.count;
  if (plan.use_inline && !use_inline) {
    result->note = "the device grants " + std::to_string(pair->sender->inline_bytes()) + " inline bytes only";
  }
  if (plan.huge_pages && !pair->source->memory.huge_pages()) result->note = "no huge pages to be had";
  return result;
}

std::vector<LadderVariant> step_reused_requests(const LadderOptions& options) {
  return {{"", TransferMode::write, options.size_bytes, options.depth, [options](const Testbed& testbed) {
             return run_reused(testbed,
                               {.size_bytes = options.size_bytes, .count = options.count, .depth = options.depth});
           }}};
}

}  // namespace hawser::lab
