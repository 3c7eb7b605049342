#include "lab/steps/ladder.h"

namespace hawser::lab {

std::string_view to_string(TransferMode transfer) noexcept {
  switch (transfer) {
    case TransferMode::send: return "send";
    case TransferMode::write: return "write";
    case TransferMode::read: return "read";
  }
  return "";
}

const std::vector<LadderStep>& ladder() {
  static const std::vector<LadderStep> steps = {
      {1, "send, one at a time", "Send/receive, the next when the last has completed.",
       "The start: every message pays for the whole round trip.", "", step_send_one},
      {2, "send, pipelined", "Several sends outstanding.",
       "A window of messages covers the round trip, until something else sets the pace.",
       "the window covers the round trip already: the device or the wire sets the pace", step_send_pipelined},
      {3, "write, one at a time",
       "RDMA writes, a final send reports their end; region registered, memory filled, request allocated and a "
       "line logged for each.",
       "The receiver's processor has nothing to do, but the sender again waits for each round trip.",
       "what is done for each message costs more than the receives that it saves", step_write_one},
      {4, "write, pipelined", "Writes outstanding to distinct offsets, the region registered once.",
       "Registering costs a system call and walks the pages; the window covers the round trip again.",
       "neither registering nor the round trip set the pace", step_write_pipelined},
      {5, "filled beforehand", "Memory filled before, nothing logged or allocated on the path.",
       "Filling, allocating and logging take the sender's processor from posting.",
       "the processor had time for all that while the device was busy", step_filled_beforehand},
      {6, "circular reuse", "Chunks used again in turn, so that messages exceed memory.",
       "Less memory fits caches and the device's translation tables.",
       "the memory before fitted them as well, or the device keeps no such tables", step_circular},
      {7, "lists prepared", "All addresses and scatter lists computed beforehand.", "Less work for each request.",
       "computing addresses is nothing beside moving the bytes", step_prepared_lists},
      {8, "requests reused", "Work requests prepared once, chained behind one doorbell, one of a chain signalled.",
       "Fewer doorbells and completions for each message.",
       "at this size they are few beside the bytes: see --size 256 --depth 128", step_reused_requests},
      {9, "inline", "Small payloads within the work request.", "The device need not fetch them from memory.",
       "this device copies from memory as fast, or fetching is hidden behind other messages", step_inline},
      {10, "alignment", "Memory that begins at a cache line, and one that does not.",
       "What straddles a cache line is transferred in two parts.", "this device moves both as fast", step_alignment},
      {11, "huge pages", "2 MiB pages and 4 KiB pages.", "Fewer translations for the device to look up.",
       "the translations of so little memory are all kept, or cost nothing", step_huge_pages},
      {12, "read", "The same bytes by RDMA reads.", "The other side's memory comes at its owner's wish.",
       "reads cost a request each, and the device bounds how many are outstanding", step_read},
  };
  return steps;
}

}  // namespace hawser::lab
