#include "base/try.h"
#include "lab/naive_writer.h"
#include "lab/steps/ladder.h"

namespace hawser::lab {
namespace {

// Each message overwrites the previous one. Its source is a memory region that is registered for this message alone.
class WriteOne final : public NaiveWriter {
 public:
  WriteOne(const Testbed& testbed, WritePair& pair, const StepPlan& plan)
      : NaiveWriter(pair, plan), testbed_(testbed) {}

 private:
  Result<std::uint64_t> post(Processor& processor, std::uint64_t message, std::uint64_t) override {
    region_.reset();
    TRY(auto&& region, testbed_.sender().register_memory(pair_.source->memory.bytes().first(size_bytes_), {}));
    region_ = std::move(region);
    return post_naively(processor, message, 0, region_->local_key());
  }

  const Testbed& testbed_;
  std::unique_ptr<transport::rdma::MemoryRegion> region_;
};

}  // namespace

std::vector<LadderVariant> step_write_one(const LadderOptions& options) {
  const auto run = [options](const Testbed& testbed) -> Result<LadderRun> {
    TRY(auto&& pair, WritePair::make(testbed, {.bytes = options.size_bytes, .depth = 1}));
    WriteOne writer(testbed, *pair, {.size_bytes = options.size_bytes, .count = options.count, .chunks = 1});
    Result<LadderRun> result = run_writer(testbed, *pair, writer);
    if (!result) return result;
    // The last message has overwritten all others.
    TRY(verify_chunks(*pair->target, options.size_bytes, 1, options.count - 1));
    result->messages = options.count;
    return result;
  };
  return {{"", TransferMode::write, options.size_bytes, 1, run}};
}

}  // namespace hawser::lab
