#pragma once

#include <cstddef>
#include <cstdint>

namespace hawser::transport {

// The costs of a simulated device, of its link and of the processors that drive it. All are at least 0.
//
// No constant was measured on its own. The defaults describe one pair of machines: Xeon Gold 6152, ConnectX-5, RoCE at
// 100 Gb/s, one switch, as an evaluation of Send/Receive connections over them reports. The letter says where a
// constant comes from:
//   D  data sheet or specification
//   M  a figure of the evaluation as it stands, inverted where it is a rate
//   F  fitted: set so that a figure of the evaluation comes out, and no other constant takes part
//   S  fitted together: several constants are set so that a figure comes out; only their sum is determined
//   A  assumed: no figure stands behind it
// The table in docs/lab.md, "Where the constants come from", names the figure; sim_constants() has the same for
// programs, with the uncertainty of each. Keep the three in step: sim_constants_test compares them.
struct SimParameters {
  // ---- A processor
  double doorbell_ns = 30;            // S  Of post_send(), whatever it posts.
  double send_request_ns = 60;        // S  For each work request.
  double inline_byte_ns = 0.1;        // A  For each inline byte, besides.
  double poll_ns = 12;                // S  Of poll(), whatever it finds.
  double send_completion_ns = 28;     // S  For each completion of a send, read or write.
  double receive_completion_ns = 16;  // S  For each completion of a receive.
  double receive_doorbell_ns = 6;     // S  Of post_receive().
  double receive_request_ns = 8;      // S  For each receive.
  // S  A completion queue of several queue pairs: finding the connection, whenever it is not the last one's.
  double switch_ns = 37;
  // S  Receives in the queues that one processor posts to, beyond which its caches miss.
  double cached_receives = 512;
  double cache_miss_ns = 60;  // S
  // F  A queue between processors, at each of its ends, or the lock of a shared receive queue after another holder.
  double handover_ns = 500;
  double registration_ns = 20'000;    // A  Of memory.
  double registration_page_ns = 100;  // A  For each page of it.
  double allocation_ns = 60;          // A  What the naive steps of the ladder do for each message.
  double log_line_ns = 900;           // A
  double fill_byte_ns = 0.1;          // A

  // ---- The device
  unsigned processing_units = 4;          // A  Each works for some of the queue pairs.
  double gap_ns = 71.4;                   // M  Of a processing unit, between two messages.
  double doorbell_latency_ns = 50;        // S
  double fetch_ns = 200;                  // S  From the host's memory, what is not inline.
  double memory_byte_ns = 0.06;           // A  Each side; up to a packet, since packets overlap.
  std::size_t inline_receive_bytes = 32;  // M  Such small messages arrive within their completion:
  double inline_receive_gap_ns = 25;      // S  of the receiving device, between two of them;
  double inline_receive_ns = 28;          // F  of the processor, to copy it out;
  double receive_gap_ns = 58;             // F  between two larger ones,
  double shared_receive_gap_ns = 500;     // M  or if several queue pairs share their receives.
  double completion_ns = 679;             // S  Until the host sees a completion.
  double acknowledge_ns = 1033;           // S  Until the device sends an acknowledgement.
  unsigned inline_bytes_max = 256;        // A  A setting of queue pairs, here the limit.
  std::size_t reads_outstanding = 16;     // D

  // ---- The link
  double gbit_per_s = 100;          // D
  double link_ns = 800;             // S
  std::size_t packet_bytes = 4096;  // D
  double jitter = 0;                // A  The link's latency varies by so much of it, either way; below 1.

  // ---- What a queue pair leaves behind. mlx5 does both, Soft-RoCE of Linux 6.1 neither.
  bool raises_last_receive = true;    // DeviceEventKind::last_receive_reached, once one with shared receives failed.
  bool destroy_drops_entries = true;  // Its completions that were not polled are taken out of their queue with it.

  std::uint64_t corrupt_message = 0;  // One byte of this message arrives wrong, counted from 1; 0 for none.

  double byte_ns() const noexcept { return 8 / gbit_per_s; }
};

}  // namespace hawser::transport
