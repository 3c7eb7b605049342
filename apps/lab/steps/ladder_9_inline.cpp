#include "lab/steps/ladder.h"
#include "lab/writer.h"

namespace hawser::lab {

// At a size that every device grants, whatever the ladder's own.
std::vector<LadderVariant> ladder_inline(const LadderOptions& options) {
  constexpr std::size_t size_bytes = 64;
  std::vector<LadderVariant> variants;
  for (const bool use_inline : {false, true}) {
    variants.push_back(
        {use_inline ? "64 B inline" : "64 B from memory", Transfer::write, size_bytes, options.depth,
         [options, use_inline](const Bed& bed) {
           return run_reused(
               bed,
               {.size_bytes = size_bytes, .count = options.count, .depth = options.depth, .use_inline = use_inline});
         }});
  }
  return variants;
}

}  // namespace hawser::lab
