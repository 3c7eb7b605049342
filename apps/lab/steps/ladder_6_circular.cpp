#include "lab/steps/ladder.h"
#include "lab/writer.h"

namespace hawser::lab {
namespace {

class Circular final : public Writer {
 public:
  using Writer::Writer;

 private:
  Result<std::uint64_t> post(Processor&, std::uint64_t message, std::uint64_t) override {
    return post_one(message, message % chunks_ * size_bytes_);
  }
};

}  // namespace

std::vector<LadderVariant> ladder_circular(const LadderOptions& options) {
  const auto run = [options](const Bed& bed) { return run_step<Circular>(bed, circular_plan(options)); };
  return {{"", Transfer::write, options.size_bytes, options.depth, run}};
}

}  // namespace hawser::lab
