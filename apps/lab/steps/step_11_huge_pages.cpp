#include "lab/step_writer.h"
#include "lab/steps/ladder.h"

namespace hawser::lab {

std::vector<LadderVariant> step_huge_pages(const LadderOptions& options) {
  std::vector<LadderVariant> variants;
  for (const bool huge_pages : {false, true}) {
    variants.push_back({huge_pages ? "2 MiB pages" : "4 KiB pages", TransferMode::write, options.size_bytes,
                        options.depth, [options, huge_pages](const Testbed& testbed) {
                          return run_reused(testbed, {.size_bytes = options.size_bytes,
                                                      .count = options.count,
                                                      .depth = options.depth,
                                                      .huge_pages = huge_pages});
                        }});
  }
  return variants;
}

}  // namespace hawser::lab
