#include <vector>

#include "base/try.h"
#include "lab/step_writer.h"
#include "lab/steps/ladder.h"

namespace hawser::lab {
namespace {

class PreparedLists final : public StepWriter {
 public:
  PreparedLists(WritePair& pair, const StepPlan& plan) : StepWriter(pair, plan) {
    for (std::uint64_t chunk = 0; chunk < chunks_; ++chunk) {
      segments_.push_back(pair.source->segment(chunk * size_bytes_, size_bytes_));
      remote_addresses_.push_back(pair.target->address(chunk * size_bytes_));
    }
    remote_key_ = pair.target->region->remote_key();
  }

 private:
  Result<std::uint64_t> post(Processor&, std::uint64_t message, std::uint64_t) override {
    const transport::rdma::SendRequest write{.id = message + 1,
                                             .segments = {&segments_[chunk_], 1},
                                             .opcode = transport::rdma::Opcode::write,
                                             .signalled = true,
                                             .remote_address = remote_addresses_[chunk_],
                                             .remote_key = remote_key_};
    if (++chunk_ == segments_.size()) chunk_ = 0;
    TRY(pair_.sender->post_send({&write, 1}));
    return 1;
  }

  std::vector<transport::rdma::Segment> segments_;
  std::vector<std::uint64_t> remote_addresses_;
  std::uint32_t remote_key_ = 0;
  std::size_t chunk_ = 0;
};

}  // namespace

std::vector<LadderVariant> step_prepared_lists(const LadderOptions& options) {
  const auto run = [options](const Testbed& testbed) {
    return run_step<PreparedLists>(testbed, circular_plan(options));
  };
  return {{"", TransferMode::write, options.size_bytes, options.depth, run}};
}

}  // namespace hawser::lab
