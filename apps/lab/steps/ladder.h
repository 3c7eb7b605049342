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
  unsigned depth = 16;                                    // Work requests outstanding.
  std::size_t memory_bytes_max = std::size_t{256} << 20;  // Of each side; steps 4 and 5 send no more than that.
};

// What the tools of perftest would measure at the same size and depth.
enum class TransferMode : std::uint8_t { send, write, read };
std::string_view to_string(TransferMode transfer) noexcept;

struct LadderRun {
  double elapsed_ns = 0;
  std::uint64_t messages = 0;
  std::string note;  // What came out other than asked for, such as unaligned memory; mostly empty.
};

// A measurement of a step; most steps have one.
struct LadderVariant {
  std::string label;  // Within the step; empty if it is the only one.
  TransferMode transfer = TransferMode::write;
  std::size_t size_bytes = 0;
  unsigned depth = 1;
  std::function<Result<LadderRun>(const Testbed&)> run;
};

// One rung: what it changes, why that should help, and why it may not.
struct LadderStep {
  unsigned number = 0;
  std::string_view name;
  std::string_view change;
  std::string_view why;
  std::string_view otherwise;  // The rest of a sentence.
  std::vector<LadderVariant> (*variants)(const LadderOptions& options) = nullptr;
};

// All of them, in their order.
const std::vector<LadderStep>& ladder();

// ---- One function for each file ladder_*.cpp.
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
