#include "lab/naive_writer.h"

#include <cstdio>
#include <memory>

#include "base/try.h"

namespace hawser::lab {

namespace rdma = transport::rdma;

Result<std::uint64_t> NaiveWriter::post_naively(Processor& processor, std::uint64_t message, std::size_t offset,
                                                std::uint32_t local_key) {
  fill_pattern(pair_.source->memory.bytes().subspan(offset, size_bytes_), message);
  processor.did(CpuTask::fill_byte, size_bytes_);

  const auto segment = std::make_unique<rdma::Segment>(pair_.source->segment(offset, size_bytes_));
  segment->local_key = local_key;
  const auto write = std::make_unique<rdma::SendRequest>(request(message, offset, *segment));
  processor.did(CpuTask::allocate, 2);

  // Formats the line like a logger, without printing it.
  std::snprintf(log_line_.data(), log_line_.size(), "%.3f writer: message %llu, %zu bytes at offset %zu of %p",
                processor.now_ns() / 1e9, static_cast<unsigned long long>(message), size_bytes_, offset,
                static_cast<const void*>(pair_.source->memory.data()));
  processor.did(CpuTask::log_line);

  TRY(pair_.sender->post_send({write.get(), 1}));
  return 1;
}

}  // namespace hawser::lab
