#pragma once

#include <cstddef>
#include <cstdint>

namespace hawser::transport {

// Costs of a simulated device, of its link and of the processors that drive it. All are at least 0.
//
// No constant was measured separately. The defaults describe one pair of machines: Xeon Gold 6152, ConnectX-5, RoCE at
// 100 Gb/s, one switch, as reported by an evaluation of Send/Receive connections over them. A letter gives the source
// of each constant:
//   D  data sheet or specification
//   M  a value of the evaluation, inverted if it is a rate
//   F  fitted: set so that a value of the evaluation results, without any other constant
//   S  fitted together: several constants are set so that a value results; only their sum is determined
//   A  assumed: no value supports it
// The table in docs/lab.md, "Where the constants come from", names the value. sim_constants() has the same for
// programs, with the uncertainty of each constant. The three must agree: sim_constants_test compares them.
struct SimParameters {
  // ---- Processor
  double doorbell_ns = 30;            // S  Per post_send(), whatever it posts.
  double send_request_ns = 60;        // S  Per work request.
  double inline_byte_ns = 0.1;        // A  Additionally, per inline byte.
  double poll_ns = 12;                // S  Per poll(), whatever it finds.
  double send_completion_ns = 28;     // S  Per completion of a send, read or write.
  double receive_completion_ns = 16;  // S  Per completion of a receive.
  double receive_doorbell_ns = 6;     // S  Per post_receive().
  double receive_request_ns = 8;      // S  Per receive.
  // S  For a completion queue of several queue pairs: finding another connection than that of the last completion.
  double switch_ns = 37;
  // S  Number of receives, in the queues that one processor posts to, beyond which its caches miss.
  double cached_receives = 512;
  double cache_miss_ns = 60;  // S
  // F  A queue between processors, at each of its ends, or the lock of a shared receive queue after another holder.
  double handover_ns = 500;
  double registration_ns = 20'000;    // A  Per registration of memory.
  double registration_page_ns = 100;  // A  Additionally, per page of the memory.
  double allocation_ns = 60;          // A  Per message in the naive steps of the ladder.
  double log_line_ns = 900;           // A
  double fill_byte_ns = 0.1;          // A

  // ---- Device
  unsigned processing_units = 4;          // A  Each serves some of the queue pairs.
  double gap_ns = 71.4;                   // M  Of a processing unit, between two messages.
  double doorbell_latency_ns = 50;        // S
  double fetch_ns = 200;                  // S  Reading data that is not inline from the host's memory.
  double memory_byte_ns = 0.06;           // A  On each side; up to one packet, because packets overlap.
  std::size_t inline_receive_bytes = 32;  // M  Messages up to this size arrive within their completion.
  double inline_receive_gap_ns = 25;      // S  Of the receiving device, between two such messages.
  double inline_receive_ns = 28;          // F  Of the processor, to copy such a message.
  double receive_gap_ns = 58;             // F  Of the receiving device, between two larger messages.
  double shared_receive_gap_ns = 500;     // M  The same if several queue pairs share their receives.
  double completion_ns = 679;             // S  Until the host sees a completion.
  double acknowledge_ns = 1033;           // S  Until the device sends an acknowledgement.
  unsigned inline_bytes_max = 256;        // A  A setting of queue pairs; here the limit.
  std::size_t reads_outstanding = 16;     // D

  // ---- Link
  double gbit_per_s = 100;          // D
  double link_ns = 800;             // S
  std::size_t packet_bytes = 4096;  // D
  double jitter = 0;                // A  Relative variation of the link's latency in both directions; below 1.

  // ---- Behaviour when a queue pair ends. mlx5 does both, Soft-RoCE of Linux 6.1 neither.
  // DeviceEventKind::last_receive_reached, after a queue pair with shared receives failed.
  bool raises_last_receive = true;
  bool destroy_drops_entries = true;  // Destroying it removes its completions that were not polled from their queue.

  // One byte of the message with this number is corrupted, counted from 1; 0: no message.
  std::uint64_t corrupt_message = 0;

  double byte_ns() const noexcept { return 8 / gbit_per_s; }
};

}  // namespace hawser::transport
