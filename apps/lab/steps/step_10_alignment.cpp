#include "lab/step_writer.h"
#include "lab/steps/ladder.h"

namespace hawser::lab {

std::vector<LadderVariant> step_alignment(const LadderOptions& options) {
  // An alignment at which calloc() often returns memory.
  constexpr std::size_t misaligned_bytes = 16;
  std::vector<LadderVariant> variants;
  for (const std::size_t misaligned : {std::size_t{0}, misaligned_bytes}) {
    variants.push_back({misaligned == 0 ? "aligned to 64 B" : "16 B past it", TransferMode::write, options.size_bytes,
                        options.depth, [options, misaligned](const Testbed& testbed) {
                          return run_reused(testbed, {.size_bytes = options.size_bytes,
                                                      .count = options.count,
                                                      .depth = options.depth,
                                                      .misaligned = misaligned});
                        }});
  }
  return variants;
}

}  // namespace hawser::lab
