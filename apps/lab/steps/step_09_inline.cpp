#include "lab/step_writer.h"
#include "lab/steps/ladder.h"

namespace hawser::lab {

// The step uses a size that every device supports inline, independently of the requested size.
std::vector<LadderVariant> step_inline(const LadderOptions& options) {
  constexpr std::size_t size_bytes = 64;
  std::vector<LadderVariant> variants;
  for (const bool use_inline : {false, true}) {
    variants.push_back(
        {use_inline ? "64 B inline" : "64 B from memory", TransferMode::write, size_bytes, options.depth,
         [options, use_inline](const Testbed& testbed) {
           return run_reused(
               testbed,
               {.size_bytes = size_bytes, .count = options.count, .depth = options.depth, .use_inline = use_inline});
         }});
  }
  return variants;
}

}  // namespace hawser::lab
