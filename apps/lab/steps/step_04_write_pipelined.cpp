#include "lab/naive_writer.h"
#include "lab/steps/ladder.h"

namespace hawser::lab {
namespace {

// Each message has an offset of its own, because the previous message may still be on the wire.
class WritePipelined final : public NaiveWriter {
 public:
  using NaiveWriter::NaiveWriter;

 private:
  Result<std::uint64_t> post(Processor& processor, std::uint64_t message, std::uint64_t) override {
    return post_naively(processor, message, message * size_bytes_, pair_.source->region->local_key());
  }
};

}  // namespace

std::vector<LadderVariant> step_write_pipelined(const LadderOptions& options) {
  const auto run = [options](const Testbed& testbed) {
    StepPlan plan = distinct_plan(options);
    plan.filled = false;
    return with_memory_note(run_step<WritePipelined>(testbed, plan), options);
  };
  return {{"", TransferMode::write, options.size_bytes, options.depth, run}};
}

}  // namespace hawser::lab
