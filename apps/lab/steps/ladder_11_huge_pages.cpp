#include "lab/steps/ladder.h"
#include "lab/writer.h"

namespace hawser::lab {

std::vector<LadderVariant> ladder_huge_pages(const LadderOptions& options) {
  std::vector<LadderVariant> variants;
  for (const bool huge_pages : {false, true}) {
    variants.push_back({huge_pages ? "2 MiB pages" : "4 KiB pages", Transfer::write, options.size_bytes, options.depth,
                        [options, huge_pages](const Bed& bed) {
                          return run_reused(bed, {.size_bytes = options.size_bytes,
                                                  .count = options.count,
                                                  .depth = options.depth,
                                                  .huge_pages = huge_pages});
                        }});
  }
  return variants;
}

}  // namespace hawser::lab
