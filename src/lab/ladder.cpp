#include "lab/ladder.h"

namespace hawser::lab {

std::string_view to_string(Transfer transfer) noexcept {
  switch (transfer) {
    case Transfer::send: return "send";
    case Transfer::write: return "write";
    case Transfer::read: return "read";
  }
  return "";
}

const std::vector<LadderStep>& ladder() {
  static const std::vector<LadderStep> steps = {
      {1, "send, one at a time", "send/receive, the next when the last has completed",
       "the start: every message pays for the whole round trip", ladder_send_one},
      {2, "send, pipelined", "several sends outstanding",
       "a window of messages covers the round trip, until something else sets the pace", ladder_send_pipelined},
      {3, "write, one at a time",
       "RDMA writes, a final send tells that they are done; region registered, memory filled, request allocated and a "
       "line logged for each",
       "the receiver's processor has nothing to do, but the sender again waits for each round trip", ladder_write_one},
      {4, "write, pipelined", "writes outstanding to distinct offsets, the region registered once",
       "registering costs a system call and walks the pages; the window covers the round trip again",
       ladder_write_pipelined},
      {5, "filled beforehand", "memory filled before, nothing logged or allocated on the path",
       "filling, allocating and logging take the sender's processor from posting", ladder_filled_beforehand},
      {6, "circular reuse", "chunks used again in turn, so that messages exceed memory",
       "less memory fits caches and the device's translation tables", ladder_circular},
      {7, "lists prepared", "all addresses and scatter lists computed beforehand", "less work for each request",
       ladder_prepared_lists},
      {8, "requests reused", "work requests prepared once, chained behind one doorbell, one of a chain signalled",
       "fewer doorbells and completions for each message", ladder_reused_requests},
      {9, "inline", "small payloads within the work request", "the device need not fetch them from memory",
       ladder_inline},
      {10, "alignment", "memory that begins at a cache line, and one that does not",
       "what straddles a cache line is transferred in two parts", ladder_alignment},
      {11, "huge pages", "2 MiB pages and 4 KiB pages", "fewer translations for the device to look up",
       ladder_huge_pages},
      {12, "read", "the same bytes by RDMA reads", "the other side's memory comes at its owner's wish", ladder_read},
  };
  return steps;
}

}  // namespace hawser::lab
