#pragma once

#include <cstddef>
#include <cstdint>

namespace hawser::lab {

// What a simulated device, its link and the processors that drive it cost. The defaults are those of a ConnectX-5 at 100 Gb/s
// as the evaluation of Send/Receive connections found it: 2 us half round trip, 14 M messages/s of one queue pair, saturated
// by 32 outstanding. What could not be measured on its own is set so that the sums come out. All are at least 0.
struct SimParameters {
  // ---- A processor
  double doorbell_ns = 30;         // Of post_send(), whatever it posts.
  double send_request_ns = 60;     // For each work request.
  double inline_byte_ns = 0.1;     // For each inline byte, besides.
  double poll_ns = 12;             // Of poll(), whatever it finds.
  double send_completion_ns = 28;  // For each completion of a send, read or write.
  double receive_completion_ns = 16;
  double receive_doorbell_ns = 6;  // Of post_receive().
  double receive_request_ns = 8;   // For each receive.
  // A completion queue of several queue pairs: finding the connection, whenever it is not the last one's.
  double switch_ns = 37;
  // Receives in the queues that one processor posts to, beyond which its caches miss.
  double cached_receives = 512;
  double cache_miss_ns = 60;
  // A queue between processors, at each of its ends, or the lock of a shared receive queue that another one held last.
  double handover_ns = 500;
  double registration_ns = 20'000;  // Of memory, and for each page of it
  double registration_page_ns = 100;
  double allocation_ns = 60;  // What the naive steps of the ladder do for each message.
  double log_line_ns = 900;
  double fill_byte_ns = 0.1;

  // ---- The device
  unsigned processing_units = 4;  // Each works for some of the queue pairs.
  double gap_ns = 71.4;           // Of a processing unit, between two messages.
  double doorbell_latency_ns = 50;
  double fetch_ns = 200;                  // From the host's memory, what is not inline.
  double memory_byte_ns = 0.06;           // Each side; up to a packet, since packets overlap.
  std::size_t inline_receive_bytes = 32;  // Such small messages arrive within their completion:
  double inline_receive_gap_ns = 25;      // of the receiving device, between two of them;
  double inline_receive_ns = 28;          // of the processor, to copy it out;
  double receive_gap_ns = 58;             // between two larger ones,
  double shared_receive_gap_ns = 500;     // or if several queue pairs share their receives.
  double completion_ns = 679;             // Until the host sees a completion.
  double acknowledge_ns = 1033;           // Until the device sends an acknowledgement.
  unsigned inline_bytes_max = 256;
  std::size_t reads_outstanding = 16;

  // ---- The link
  double gbit_per_s = 100;
  double link_ns = 800;
  std::size_t packet_bytes = 4096;
  double jitter = 0;  // The link's latency varies by so much of it, either way; below 1.

  // ---- What a queue pair leaves behind. mlx5 does both, Soft-RoCE of Linux 6.1 neither.
  bool raises_last_receive = true;    // DeviceEventKind::last_receive_reached, once one with shared receives failed.
  bool destroy_drops_entries = true;  // Its completions that were not polled are taken out of their queue with it.

  std::uint64_t corrupt_message = 0;  // One byte of this message arrives wrong, counted from 1; 0 for none.

  double byte_ns() const noexcept { return 8 / gbit_per_s; }
};

}  // namespace hawser::lab
