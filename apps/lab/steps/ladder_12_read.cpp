#include "lab/steps/ladder.h"
#include "lab/writer.h"

namespace hawser::lab {

std::vector<LadderVariant> ladder_read(const LadderOptions& options) {
  return {{"", Transfer::read, options.size_bytes, options.depth, [options](const Bed& bed) {
             return run_reused(bed, {.size_bytes = options.size_bytes,
                                     .count = options.count,
                                     .depth = options.depth,
                                     .opcode = transport::rdma::Opcode::read});
           }}};
}

}  // namespace hawser::lab
