#pragma once

#include <cstdint>

#include "hawser/error.h"
#include "lab/testbed.h"

namespace hawser::lab {

// Receive queues of several connections.
enum class Receives : std::uint8_t {
  own,             // Each queue pair has a queue of its own.
  shared_central,  // One shared receive queue, to which one thread posts for all.
  shared_by_each,  // One shared receive queue, to which each thread posts batches of its own.
};

// One stream of sends, or several at the same time, each with its own sending thread.
struct StreamPlan {
  std::size_t size_bytes = 16;
  std::uint64_t count = 4096;  // Number of messages of each connection.
  unsigned window = 1;
  unsigned batch = 1;
  bool signal_each = true;  // Every send is signalled; else one of each batch.
  bool use_inline = false;
  unsigned connections = 1;
  bool one_receiver = false;  // One thread and one completion queue for all connections; else one for each.
  Receives receives = Receives::own;
  unsigned recv_queue_depth = 0;  // Receives of each connection; 0: twice the window, at least 64, at most 512.
  bool credits = false;           // Senders wait for credits; else they send as fast as they can.
  unsigned poll_burst = 32;
  unsigned repost_batch = 8;
  bool verify_each = false;
  LinkOptions link;
};

struct StreamResult {
  double elapsed_ns = 0;  // From the first post until the last completion.
  std::uint64_t messages = 0;
  std::uint64_t receiver_not_ready = 0;

  double message_ns() const noexcept { return messages > 0 ? elapsed_ns / static_cast<double>(messages) : 0; }
};

// Runs the plan, and compares the receivers' memory with the messages that were sent. Returns an error if they differ.
Result<StreamResult> run_stream(const Testbed& testbed, const StreamPlan& plan);

struct PingPongPlan {
  std::size_t size_bytes = 16;
  std::uint64_t count = 1000;
  bool use_inline = false;
};
// Returns half of each round trip, in ns.
Result<std::vector<double>> run_ping_pong(const Testbed& testbed, const PingPongPlan& plan);

}  // namespace hawser::lab
