#include "lab/step_writer.h"
#include "lab/steps/ladder.h"

namespace hawser::lab {

std::vector<LadderVariant> step_read(const LadderOptions& options) {
  return {{"", TransferMode::read, options.size_bytes, options.depth, [options](const Testbed& testbed) {
             return run_reused(testbed, {.size_bytes = options.size_bytes,
                                         .count = options.count,
                                         .depth = options.depth,
                                         .opcode = transport::rdma::Opcode::read});
           }}};
}

}  // namespace hawser::lab
