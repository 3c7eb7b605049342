#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "block/store/file.h"

namespace hawser::block {

// Uninitialised memory at an address that every File accepts.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(std::size_t bytes)
      : data_(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(file_alignment)))), size_(bytes) {}

  MutableBytes bytes() noexcept { return {data_.get(), size_}; }
  std::size_t size() const noexcept { return size_; }

 private:
  struct Delete {
    void operator()(std::byte* data) const noexcept { ::operator delete(data, std::align_val_t(file_alignment)); }
  };
  std::unique_ptr<std::byte, Delete> data_;
  std::size_t size_;
};

}  // namespace hawser::block
