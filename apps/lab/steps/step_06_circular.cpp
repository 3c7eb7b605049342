#include "lab/step_writer.h"
#include "lab/steps/ladder.h"

namespace hawser::lab {
namespace {

class Circular final : public StepWriter {
 public:
  using StepWriter::StepWriter;

 private:
  Result<std::uint64_t> post(Processor&, std::uint64_t message, std::uint64_t) override {
    return post_one(message, message % chunks_ * size_bytes_);
  }
};

}  // namespace

std::vector<LadderVariant> step_circular(const LadderOptions& options) {
  const auto run = [options](const Testbed& testbed) { return run_step<Circular>(testbed, circular_plan(options)); };
  return {{"", TransferMode::write, options.size_bytes, options.depth, run}};
}

}  // namespace hawser::lab
