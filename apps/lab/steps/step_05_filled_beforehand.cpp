#include "lab/step_writer.h"
#include "lab/steps/ladder.h"

namespace hawser::lab {
namespace {

// The request lives on the stack, and the measured loop only posts it.
class FilledBeforehand final : public StepWriter {
 public:
  using StepWriter::StepWriter;

 private:
  Result<std::uint64_t> post(Processor&, std::uint64_t message, std::uint64_t) override {
    return post_one(message, message * size_bytes_);
  }
};

}  // namespace

std::vector<LadderVariant> step_filled_beforehand(const LadderOptions& options) {
  const auto run = [options](const Testbed& testbed) {
    return with_memory_note(run_step<FilledBeforehand>(testbed, distinct_plan(options)), options);
  };
  return {{"", TransferMode::write, options.size_bytes, options.depth, run}};
}

}  // namespace hawser::lab
