#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/descriptor.h"
#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/transfer_batch.h"

namespace hawser {

// A part of the memory behind a dma-buf descriptor, with a descriptor of its own and addresses that name the part.
// Nothing is mapped at the addresses: an access by the processor is a fault.
class DmabufRange {
 public:
  DmabufRange() noexcept = default;
  // Errors: `invalid_argument` for a descriptor that is not open, or a part that is empty or not within its memory;
  // `overloaded` if the process has no more descriptors or address space.
  static Result<DmabufRange> open(int descriptor, std::uint64_t offset, std::size_t bytes);
  DmabufRange(DmabufRange&& other) noexcept
      : descriptor_(std::move(other.descriptor_)),
        pages_(std::exchange(other.pages_, {})),
        addresses_(std::exchange(other.addresses_, {})),
        offset_(other.offset_) {}
  DmabufRange& operator=(DmabufRange&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(pages_, other.pages_);
    std::swap(addresses_, other.addresses_);
    std::swap(offset_, other.offset_);
    return *this;
  }
  ~DmabufRange();

  // True if a part of the runs' local memory lies in a range of this process. Any thread.
  static bool names(std::span<const TransferBatch::Run> runs) noexcept;

  bool empty() const noexcept { return addresses_.empty(); }
  // Their offset within a page is that of offset().
  MutableBytes addresses() const noexcept { return addresses_; }
  int descriptor() const noexcept { return descriptor_.get(); }
  std::uint64_t offset() const noexcept { return offset_; }

 private:
  Descriptor descriptor_;
  MutableBytes pages_;  // The reserved addresses.
  MutableBytes addresses_;
  std::uint64_t offset_ = 0;
};

}  // namespace hawser
