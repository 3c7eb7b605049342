#include "base/try.h"
#include "lab/send_receive.h"
#include "lab/steps/ladder.h"

namespace hawser::lab {

// The receiver posts each receive again as soon as its message has been processed.
std::vector<LadderVariant> step_send_one(const LadderOptions& options) {
  const auto run = [options](const Testbed& testbed) -> Result<LadderRun> {
    const StreamPlan plan{.size_bytes = options.size_bytes,
                          .count = options.count,
                          .window = 1,
                          .recv_queue_depth = 4,
                          .poll_burst = 1,
                          .repost_batch = 1};
    TRY(const StreamResult& result, run_stream(testbed, plan));
    return LadderRun{result.elapsed_ns, result.messages, {}};
  };
  return {{"", TransferMode::send, options.size_bytes, 1, run}};
}

}  // namespace hawser::lab
