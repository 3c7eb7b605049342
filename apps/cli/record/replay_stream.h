#pragma once

#include <optional>

#include "cli/call/raw_call.h"
#include "hawser/error.h"
#include "hawser/task.h"
#include "hawser/time.h"
#include "observe/record_format.h"

namespace hawser::cli {

struct ReplayedStream {
  // Empty: the call was recorded in part, and was cancelled after the items of that part.
  std::optional<Result<RawCall::Answer>> answer = {};
  bool same_items = true;  // The items of the handler were those of the recording, in order.
  bool all_sent = false;   // Otherwise the call ended before all recorded items of the caller were sent.
};

// Sends the items of a recorded call at their times, divided by `speed`, after `begin`, and ends the stream where the
// caller ended it. Reads and compares the items of the handler meanwhile if `method` has some. Of a call that was
// recorded in part, it sends that part and ends the stream; the handler's items are compared up to the last recorded
// one. `call` has been sent; the arguments outlive the task.
Task<ReplayedStream> replay_stream(RawCall& call, const Method& method, const observe::RecordedCall& recorded,
                                   double speed, Time begin);

}  // namespace hawser::cli
