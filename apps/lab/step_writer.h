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

// Resources of the steps with one-sided transfers: two memory regions of equal size and a connection.
struct WritePair {
  struct Options {
    std::size_t bytes = 0;  // Size of each side's memory.
    unsigned depth = 1;
    std::size_t inline_bytes = 0;
    std::size_t misaligned = 0;
    bool huge_pages = false;
  };
  std::optional<LabMemory> source;  // Memory of the sender.
  std::optional<LabMemory> target;  // Memory of the receiver, poisoned.
  std::unique_ptr<transport::rdma::CompletionQueue> sender_completions;
  std::unique_ptr<transport::rdma::CompletionQueue> receiver_completions;
  std::unique_ptr<transport::rdma::QueuePair> sender;
  std::unique_ptr<transport::rdma::QueuePair> receiver;

  static Result<std::unique_ptr<WritePair>> make(const Testbed& testbed, const Options& options);
};

// The messages that a step with one-sided transfers moves.
struct StepPlan {
  std::size_t size_bytes = 0;
  std::uint64_t count = 0;
  unsigned depth = 1;
  std::uint64_t chunks = 0;  // Chunks of the memory, each for one message at a time. Message i uses chunk i % chunks.
  bool filled = true;        // The chunks are filled before the run; else the step fills each chunk itself.
};
// Plans a chunk for each message, as many as fit into the memory.
StepPlan distinct_plan(const LadderOptions& options) noexcept;
// Plans chunks that are reused: twice the depth, so that no chunk is on the wire twice.
StepPlan circular_plan(const LadderOptions& options) noexcept;

// Keeps `depth` one-sided requests outstanding until `count` have completed. Steps differ in how they post a request.
class StepWriter : public Role {
 public:
  StepWriter(WritePair& pair, const StepPlan& plan)
      : pair_(pair), size_bytes_(plan.size_bytes), count_(plan.count), depth_(plan.depth), chunks_(plan.chunks) {}

  Result<bool> step(Processor& processor) final;
  bool done() const final { return completed_ == count_; }
  double elapsed_ns() const noexcept { return end_ns_ - start_ns_; }

 protected:
  // Posts the request of `message`, and the following ones if they are chained, at most `room`. The id of a request is
  // its message plus 1; a completion also completes all earlier requests. Returns the number of posted requests.
  virtual Result<std::uint64_t> post(Processor& processor, std::uint64_t message, std::uint64_t room) = 0;
  // Returns the number of requests that must be posted at a time; fewer only at the end.
  virtual std::uint64_t chain() const noexcept { return 1; }

  // Returns the request of a message whose bytes move from `offset` to the same offset of the other side.
  transport::rdma::SendRequest request(std::uint64_t message, std::size_t offset,
                                       const transport::rdma::Segment& segment) const noexcept;
  // Creates and posts such a request.
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

// Runs the writer and notifies the receiver by a send when everything is written. Returns the time until the last write
// completed.
Result<LadderRun> run_writer(const Testbed& testbed, WritePair& pair, StepWriter& writer);

// Runs a step, from the allocation of memory to the verification. Each chunk must have been written, the last time by
// the message of its number or by one with the same contents.
using MakeWriter = std::unique_ptr<StepWriter> (*)(WritePair& pair, const StepPlan& plan);
Result<LadderRun> run_step(const Testbed& testbed, const StepPlan& plan, MakeWriter make);
template <class Step>
Result<LadderRun> run_step(const Testbed& testbed, const StepPlan& plan) {
  return run_step(testbed, plan, [](WritePair& pair, const StepPlan& its) -> std::unique_ptr<StepWriter> {
    return std::make_unique<Step>(pair, its);
  });
}

// Adds a note to the run if distinct_plan() had to plan fewer messages than requested.
Result<LadderRun> with_memory_note(Result<LadderRun> run, const LadderOptions& options);

// Compares `memory` with the patterns of its chunks: chunk i has the pattern of seed `first_seed` + i.
Result<void> verify_chunks(const LabMemory& memory, std::size_t size_bytes, std::uint64_t chunks,
                           std::uint64_t first_seed);
void fill_chunks(LabMemory& memory, std::size_t size_bytes, std::uint64_t chunks);

// Parameters of step 8, which the later steps use with other values.
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
