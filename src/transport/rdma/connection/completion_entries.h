#pragma once

#include <cstddef>
#include <string>

#include "hawser/error.h"

namespace hawser::transport::rdma {

// The entries of a completion queue. Each connection reserves as many as it posts at most, so that the queue never
// overruns.
class CompletionEntries {
 public:
  explicit CompletionEntries(std::size_t entries) noexcept : entries_(entries) {}

  Result<void> acquire(std::size_t entries) {
    if (used_ + entries > entries_) {
      return fail(Error::of_transport(
          ErrorCode::overloaded, "the completion queue's " + std::to_string(entries_) +
                                     " entries are reserved: raise RdmaOptions::cq_entries or lower send_queue_depth"));
    }
    used_ += entries;
    return {};
  }
  void release(std::size_t entries) noexcept { used_ -= entries; }

 private:
  const std::size_t entries_;
  std::size_t used_ = 0;
};

}  // namespace hawser::transport::rdma
