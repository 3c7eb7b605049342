#pragma once

#include <array>
#include <cstdint>

#include "lab/step_writer.h"

namespace hawser::lab {

// Steps 3 and 4 fill the memory, allocate the request and log a line for each message.
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
