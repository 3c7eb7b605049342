#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lab/bed.h"
#include "lab/executor.h"
#include "lab/ladder.h"
#include "lab/memory.h"
#include "transport/rdma/verbs.h"

namespace hawser::lab {

// What the steps with one-sided transfers work on: two stretches of memory of equal size, and a connection.
struct WritePair {
  struct Options {
    std::size_t bytes = 0;  // Of each side.
    unsigned depth = 1;
    std::size_t inline_bytes = 0;
    std::size_t misaligned = 0;
    bool huge_pages = false;
  };
  std::optional<RegisteredMemory> source;  // The sender's.
  std::optional<RegisteredMemory> target;  // The receiver's, poisoned.
  std::unique_ptr<transport::rdma::CompletionQueue> sender_completions;
  std::unique_ptr<transport::rdma::CompletionQueue> receiver_completions;
  std::unique_ptr<transport::rdma::QueuePair> sender;
  std::unique_ptr<transport::rdma::QueuePair> receiver;

  static Result<std::unique_ptr<WritePair>> make(const Bed& bed, const Options& options);
};

// Keeps `depth` one-sided requests outstanding until `count` have completed. What differs between steps is how one is posted.
class Writer : public Role {
 public:
  Writer(WritePair& pair, std::size_t size_bytes, std::uint64_t count, unsigned depth)
      : pair_(pair), size_bytes_(size_bytes), count_(count), depth_(depth) {}

  Result<bool> step(Processor& processor) final;
  bool done() const final { return completed_ == count_; }
  double elapsed_ns() const noexcept { return end_ns_ - start_ns_; }

 protected:
  // Posts request `message`, and those that follow it if they are chained; at most `room`. The ids are those of messages
  // plus 1, and a completion of one speaks for all before it. Gives how many.
  virtual Result<std::uint64_t> post(Processor& processor, std::uint64_t message, std::uint64_t room) = 0;
  // How many must be posted at a time; fewer only at the end.
  virtual std::uint64_t chain() const noexcept { return 1; }

  // The request of a message whose bytes go from an offset to the same offset of the other side.
  transport::rdma::SendRequest request(std::uint64_t message, std::size_t offset,
                                       const transport::rdma::Segment& segment) const noexcept;

  WritePair& pair_;
  const std::size_t size_bytes_;
  const std::uint64_t count_;
  const unsigned depth_;

 private:
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  double start_ns_ = 0;
  double end_ns_ = 0;
};

// Runs the writer, tells the receiver by a send that all is written, and gives what it took until the last write completed.
Result<LadderRun> run_writer(const Bed& bed, WritePair& pair, Writer& writer);

// Compares `memory` with the patterns of its chunks: chunk i has that of `first_seed` + i.
Result<void> verify_chunks(const RegisteredMemory& memory, std::size_t size_bytes, std::uint64_t chunks,
                           std::uint64_t first_seed);
void fill_chunks(RegisteredMemory& memory, std::size_t size_bytes, std::uint64_t chunks);

// Chunks that circular steps use: twice the depth, so that none is on the wire twice.
constexpr std::uint64_t circular_chunks(unsigned depth) noexcept { return 2 * std::uint64_t{depth}; }
// Messages that steps without reuse send.
std::uint64_t distinct_messages(const LadderOptions& options) noexcept;

// Step 8 with its parts as parameters, on which the steps beyond it build.
struct ReusedPlan {
  std::size_t size_bytes = 0;
  std::uint64_t count = 0;
  unsigned depth = 1;
  transport::rdma::Opcode opcode = transport::rdma::Opcode::write;
  bool use_inline = false;
  std::size_t misaligned = 0;
  bool huge_pages = false;
};
Result<LadderRun> run_reused(const Bed& bed, const ReusedPlan& plan);

}  // namespace hawser::lab
