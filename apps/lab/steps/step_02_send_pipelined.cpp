#include <algorithm>
#include <string>

#include "base/try.h"
#include "lab/send_receive.h"
#include "lab/steps/ladder.h"

namespace hawser::lab {
namespace {

Result<LadderRun> run_at(const Testbed& testbed, const LadderOptions& options, unsigned depth) {
  const StreamPlan plan{.size_bytes = options.size_bytes,
                        .count = options.count,
                        .window = depth,
                        .recv_queue_depth = 2 * depth + 2,
                        .credits = true};
  TRY(const StreamResult& result, run_stream(testbed, plan));
  LadderRun run{result.elapsed_ns, result.messages, {}};
  if (result.receiver_not_ready > 0) {
    run.note = "receiver not ready, " + std::to_string(result.receiver_not_ready) + " times";
  }
  return run;
}

}  // namespace

// The step runs at depths that double up to the requested one. Credits keep the receiver ready.
std::vector<LadderVariant> step_send_pipelined(const LadderOptions& options) {
  std::vector<LadderVariant> variants;
  for (unsigned depth = 2; depth < 2 * options.depth; depth *= 2) {
    const unsigned at = std::min(depth, options.depth);
    variants.push_back({"depth " + std::to_string(at), TransferMode::send, options.size_bytes, at,
                        [options, at](const Testbed& testbed) { return run_at(testbed, options, at); }});
  }
  if (variants.empty()) {
    variants.push_back({"depth 1", TransferMode::send, options.size_bytes, 1,
                        [options](const Testbed& testbed) { return run_at(testbed, options, 1); }});
  }
  return variants;
}

}  // namespace hawser::lab
