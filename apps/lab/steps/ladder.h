#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "lab/testbed.h"

namespace hawser::lab {

struct LadderOptions {
  std::size_t size_bytes = 64 * 1024;
  std::uint64_t count = 1000;                             // Messages of each measurement.
  unsigned depth = 16;                                    // Most outstanding work requests.
  std::size_t memory_bytes_max = std::size_t{256} << 20;  // Each side's memory; steps 4 and 5 send at most so much.
};

// Operation by which the tools of perftest would measure the step at the same size and depth.
enum class TransferMode : std::uint8_t { send, write, read };
std::string_view to_string(TransferMode transfer) noexcept;

struct LadderRun {
  double elapsed_ns = 0;
  std::uint64_t messages = 0;
  std::string note;  // Deviation from the request, such as unaligned memory; usually empty.
};

// A measurement of a step; most steps have one.
struct LadderVariant {
  std::string label;  // Identifies the variant within the step; empty if the step has only one.
  TransferMode transfer = TransferMode::write;
  std::size_t size_bytes = 0;
  unsigned depth = 1;
  std::function<Result<LadderRun>(const Testbed&)> run;
};

// One step: its change, the reason why the change should help, and the reason why it may not.
struct LadderStep {
  unsigned number = 0;
  std::string_view name;
  std::string_view change;
  std::string_view why;
  std::string_view otherwise;  // The rest of a sentence in the report.
  std::vector<LadderVariant> (*variants)(const LadderOptions& options) = nullptr;
};

// Returns all steps in their order.
const std::vector<LadderStep>& ladder();

// ---- One function for each file step_*.cpp.
std::vector<LadderVariant> step_send_one(const LadderOptions& options);
std::vector<LadderVariant> step_send_pipelined(const LadderOptions& options);
std::vector<LadderVariant> step_write_one(const LadderOptions& options);
std::vector<LadderVariant> step_write_pipelined(const LadderOptions& options);
std::vector<LadderVariant> step_filled_beforehand(const LadderOptions& options);
std::vector<LadderVariant> step_circular(const LadderOptions& options);
std::vector<LadderVariant> step_prepared_lists(const LadderOptions& options);
std::vector<LadderVariant> step_reused_requests(const LadderOptions& options);
std::vector<LadderVariant> step_inline(const LadderOptions& options);
std::vector<LadderVariant> step_alignment(const LadderOptions& options);
std::vector<LadderVariant> step_huge_pages(const LadderOptions& options);
std::vector<LadderVariant> step_read(const LadderOptions& options);

}  // namespace hawser::lab
