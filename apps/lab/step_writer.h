#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lab/executor.h"
#include "lab/memory.h"
#include "lab/steps/ladder.h"
#include "lab/testbed.h"
#include "transport/rdma/device/verbs.h"

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

  static Result<std::unique_ptr<WritePair>> make(const Testbed& testbed, const Options& options);
};

// What a step with one-sided transfers moves.
struct StepPlan {
  std::size_t size_bytes = 0;
  std::uint64_t count = 0;
  unsigned depth = 1;
  std::uint64_t chunks = 0;  // Of the memory, each for one message at a time. Message i goes to chunk i modulo that.
  bool filled = true;        // Before the run; else the step fills each chunk itself.
};
// A chunk for each message, as many as the memory holds.
StepPlan distinct_plan(const LadderOptions& options) noexcept;
// Chunks that are used again: twice the depth, so that none is on the wire twice.
StepPlan circular_plan(const LadderOptions& options) noexcept;

// Keeps `depth` one-sided requests outstanding until `count` have completed. What differs between steps is how one is
// posted.
class StepWriter : public Role {
 public:
  StepWriter(WritePair& pair, const StepPlan& plan)
      : pair_(pair), size_bytes_(plan.size_bytes), count_(plan.count), depth_(plan.depth), chunks_(plan.chunks) {}

  Result<bool> step(Processor& processor) final;
  bool done() const final { return completed_ == count_; }
  double elapsed_ns() const noexcept { return end_ns_ - start_ns_; }

 protected:
  // Posts request `message`, and those that follow it if they are chained; at most `room`. The ids are those of
  // messages plus 1, and a completion of one speaks for all before it. Gives how many.
  virtual Result<std::uint64_t> post(Processor& processor, std::uint64_t message, std::uint64_t room) = 0;
  // How many must be posted at a time; fewer only at the end.
  virtual std::uint64_t chain() const noexcept { return 1; }

  // The request of a message whose bytes go from an offset to the same offset of the other side.
  transport::rdma::SendRequest request(std::uint64_t message, std::size_t offset,
                                       const transport::rdma::Segment& segment) const noexcept;
  // Posts that, made on the spot.
  Result<std::uint64_t> post_one(std::uint64_t message, std::size_t offset);

  WritePair& pair_;
  const std::size_t size_bytes_;
  const std::uint64_t count_;
  const unsigned depth_;
  const std::uint64_t chunks_;

 private:
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  double start_ns_ = 0;
  double end_ns_ = 0;
};

// Runs the writer, tells the receiver by a send that all is written, and gives what it took until the last write
// completed.
Result<LadderRun> run_writer(const Testbed& testbed, WritePair& pair, StepWriter& writer);

// A step from its memory to the comparison of what has arrived: each chunk has been written to, the last time by the
// message of its number or one with the same contents.
using MakeWriter = std::unique_ptr<StepWriter> (*)(WritePair& pair, const StepPlan& plan);
Result<LadderRun> run_step(const Testbed& testbed, const StepPlan& plan, MakeWriter make);
template <class Step>
Result<LadderRun> run_step(const Testbed& testbed, const StepPlan& plan) {
  return run_step(testbed, plan, [](WritePair& pair, const StepPlan& its) -> std::unique_ptr<StepWriter> {
    return std::make_unique<Step>(pair, its);
  });
}

// Says in its note if distinct_plan() had to send fewer messages than asked for.
Result<LadderRun> with_memory_note(Result<LadderRun> run, const LadderOptions& options);

// Compares `memory` with the patterns of its chunks: chunk i has that of `first_seed` + i.
Result<void> verify_chunks(const RegisteredMemory& memory, std::size_t size_bytes, std::uint64_t chunks,
                           std::uint64_t first_seed);
void fill_chunks(RegisteredMemory& memory, std::size_t size_bytes, std::uint64_t chunks);

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
Result<LadderRun> run_reused(const Testbed& testbed, const ReusedPlan& plan);

}  // namespace hawser::lab
