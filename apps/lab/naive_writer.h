#pragma once

#include <array>
#include <cstdint>

#include "lab/step_writer.h"

namespace hawser::lab {

// What steps 3 and 4 do for each message: fill its memory, allocate its request, log a line.
class NaiveWriter : public StepWriter {
 public:
  using StepWriter::StepWriter;

 protected:
  Result<std::uint64_t> post_naively(Processor& processor, std::uint64_t message, std::size_t offset,
                                     std::uint32_t local_key);

 private:
  std::array<char, 160> log_line_{};
};

}  // namespace hawser::lab
