#include "lab/steps/ladder.h"
#include "lab/writer.h"

namespace hawser::lab {
namespace {

// The request lives on the stack, and the path does nothing but post it.
class FilledBeforehand final : public Writer {
 public:
  using Writer::Writer;

 private:
  Result<std::uint64_t> post(Processor&, std::uint64_t message, std::uint64_t) override {
    return post_one(message, message * size_bytes_);
  }
};

}  // namespace

std::vector<LadderVariant> ladder_filled_beforehand(const LadderOptions& options) {
  const auto run = [options](const Bed& bed) {
    return with_memory_note(run_step<FilledBeforehand>(bed, distinct_plan(options)), options);
  };
  return {{"", Transfer::write, options.size_bytes, options.depth, run}};
}

}  // namespace hawser::lab
